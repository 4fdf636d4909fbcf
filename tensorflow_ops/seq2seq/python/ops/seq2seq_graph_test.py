"""Tests of searches in graphs: any size in one trace, compiled by XLA, growing caches, SavedModel in a new process."""

import os
import traceback

import keras
import numpy as np
import process_testing
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library


def _chain(dtype=tf.float32):
    table = tf.constant(np.random.default_rng(0).normal(size=[6, 6]) * 2, dtype)
    return lambda tokens, state: (tf.gather(table, tokens), state)


class Translator(tf.Module):
    """A decoder with a GRU that reads a summary of its input."""

    def __init__(self):
        super().__init__()
        keras.utils.set_random_seed(0)
        self.embed = keras.layers.Embedding(9, 4)
        self.cell = keras.layers.GRUCell(4)
        self.out = keras.layers.Dense(9)
        # Scales the initial weights, so that sequences differ.
        self.embed.build()
        self.cell.build([None, 4])
        self.out.build([None, 4])
        self.out.kernel.assign(self.out.kernel * 8)

    def step_fn(self, tokens, state):
        hidden, _ = self.cell(self.embed(tokens), [state["hidden"]])
        return self.out(hidden), {"hidden": hidden}

    @tf.function(input_signature=[tf.TensorSpec([None, 4]), tf.TensorSpec([], tf.int32)])
    def translate(self, summary, max_length):
        result = tfo.seq2seq.beam_search(
            self.step_fn,
            {"hidden": summary},
            batch_size=tf.shape(summary)[0],
            beam_width=3,
            max_length=max_length,
            bos_id=1,
            eos_ids=[2],
            length_penalty=0.6,
            num_return_sequences=2,
        )
        return result._asdict()

    @tf.function(input_signature=[tf.TensorSpec([None, 4]), tf.TensorSpec([2], tf.int32), tf.TensorSpec([])])
    def draw(self, summary, seed, temperature):
        result = tfo.seq2seq.sample(
            self.step_fn,
            {"hidden": summary},
            batch_size=tf.shape(summary)[0],
            max_length=7,
            bos_id=1,
            eos_ids=[2],
            seed=seed,
            temperature=temperature,
            top_k=5,
            top_p=0.9,
        )
        return result._asdict()


def _no_repeats(step, sequences, logits):
    del step
    return logits, tf.reduce_any(tf.equal(sequences[..., tf.newaxis], tf.range(20)), 1)


def _lower_largest_token(step, sequences, logits):
    del step
    return tf.where(tf.equal(tf.range(20), tf.reduce_max(sequences, 1)[:, tf.newaxis]), logits - 1, logits)


_P = tfo.seq2seq.processors
_CHAIN_OF_ALL = _P.chain(
    _P.repetition_penalty(1.5),
    _P.bad_words([[1, 2], [3]]),
    _P.suppress_tokens([4], first_steps=2),
    _P.sequence_bias({(1, 2): 2.0, (3,): -1.0, (4, 5): -float("inf")}),
    _no_repeats,
    _lower_largest_token,
    _P.force_tokens([0, 7], step=7),
)
_FILTERS = _P.chain(_P.temperature(0.8), _P.top_k(9), _P.top_p(0.9), _P.min_p(0.05), _P.typical_p(0.9))
_BEAMS, _SEED = {"beam_width": 3}, {"seed": [1, 2]}
# Searches, names of options that are tensors in a graph, other options.
_CALLS = (
    (
        tfo.seq2seq.beam_search,
        ["length_penalty"],
        {**_BEAMS, "min_length": 2, "num_return_sequences": 2, "early_stopping": "never", "logits_processor": _FILTERS},
    ),
    (
        tfo.seq2seq.beam_search,
        ["prompt", "prompt_lengths"],
        {**_BEAMS, "num_groups": 3, "diversity_penalty": 0.5},
    ),
    (
        tfo.seq2seq.beam_search,
        ["length_penalty", "history"],
        {**_BEAMS, "cut_off": "count", "length_normalization": "length", "logits_processor": _CHAIN_OF_ALL},
    ),
    (tfo.seq2seq.sample, ["prompt"], {**_SEED, "top_k": 5, "num_return_sequences": 2}),
    (tfo.seq2seq.sample, ["temperature", "top_p"], {**_SEED, "min_length": 2, "min_p": 0.05, "typical_p": 0.9}),
    (
        tfo.seq2seq.stochastic_beam_search,
        ["history", "prompt"],
        {**_BEAMS, **_SEED, "logits_processor": _P.no_repeat_ngrams(2)},
    ),
)
_TENSORS = {
    "length_penalty": tf.constant(0.8),
    "temperature": tf.constant(0.7),
    "top_p": tf.constant(0.8),
    "prompt": tf.constant([[4, 5], [6, 8]]),
    "prompt_lengths": tf.constant([1, 2]),
    "history": tf.constant([[1, 1, 4], [-1, 2, 3]]),
}


def _in_a_session(run, specs):
    """Returns a function that runs one graph of TensorFlow 1, where a == b compares the identities of tensors."""
    with tf.Graph().as_default() as graph:
        inputs = [tf.compat.v1.placeholder(spec.dtype, spec.shape) for spec in specs]
        outputs = run(*inputs)
        session = tf.compat.v1.Session(graph=graph)
    return lambda *values: session.run(outputs, {x: value.numpy() for x, value in zip(inputs, values, strict=True)})


class GraphTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(call=_CALLS, mode=("function", "compiled", "session"))
    def test_one_trace_equals_eager_calls_of_any_size(self, call, mode):
        compiled = mode == "compiled"
        if compiled and library.xla_error:
            self.skipTest(library.xla_error)
        search, names, options = call
        logits = 2 * tf.random.stateless_normal([20, 20], [1, 2]).numpy()

        def run(bias, max_length, *tensors):
            def step_fn(tokens, state):
                return tf.gather(logits, tokens) + state, state

            sizes = {"batch_size": tf.shape(bias)[0], "max_length": max_length}
            more = dict(zip(names, tensors, strict=True))
            return search(step_fn, bias, bos_id=1, eos_ids=[0, 7], **sizes, **options, **more)

        arguments = [tf.random.stateless_normal([2, 20], [3, 4]), tf.constant(0), *(_TENSORS[name] for name in names)]
        specs = [tf.TensorSpec([None] * x.shape.rank, x.dtype) for x in arguments]
        function = tf.function(run, specs, jit_compile=compiled, autograph=False)
        if mode == "session":
            function = _in_a_session(run, specs)
        for batch, length in ((2, 8),) if compiled else ((2, 8), (1, 3), (0, 4)):
            bias, _, *tensors = (x[:batch] if x.shape.rank else x for x in arguments)
            expected, found = (f(bias, tf.constant(length), *tensors) for f in (run, function))
            self.assertEqual((found.sequences.shape[0], found.sequences.shape[-1]), (batch, length))
            self.assertAllEqual(found.sequences, expected.sequences)
            self.assertAllEqual(found.lengths, expected.lengths)
            self.assertAllClose(found.log_probs, expected.log_probs, rtol=1e-5)
        if mode != "session":
            self.assertEqual(function.experimental_get_tracing_count(), 1)

    def test_static_shapes(self):
        shapes = []

        @tf.function
        def trace(batch_size, max_length):
            for batch, length in ((3, 5), (batch_size, 5), (3, max_length)):
                options = {"batch_size": batch, "max_length": length, "bos_id": 0, "eos_ids": 1}
                result = tfo.seq2seq.beam_search(_chain(), (), beam_width=4, num_return_sequences=2, **options)
                drawn = tfo.seq2seq.sample(_chain(), (), seed=[1, 2], **options)
                shapes.append([t.shape.as_list() for t in (*result, *drawn)])

        trace.get_concrete_function(tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.int32))
        for got, (batch, length) in zip(shapes, ((3, 5), (None, 5), (3, None)), strict=True):
            beams = [batch, 2]
            self.assertEqual(got, [[*beams, length], beams, beams, beams, [batch, length], [batch], [batch]])

    def test_cache_may_grow(self):
        """The growing state lists all tokens so far, as an attention cache does; the other one sums them."""
        weights = tf.constant(np.random.default_rng(1).normal(size=[6, 6]), tf.float32)

        def grows(tokens, state):
            cache = tf.concat([state["cache"], tf.one_hot(tokens, 6)[:, tf.newaxis]], 1)
            return tf.reduce_sum(tf.matmul(cache, weights), 1), {"cache": cache}

        def sums(tokens, state):
            total = state["cache"] + tf.one_hot(tokens, 6)
            return tf.matmul(total, weights), {"cache": total}

        options = {"batch_size": 2, "beam_width": 3, "max_length": 6, "bos_id": 0, "eos_ids": 1}
        expected = tfo.seq2seq.beam_search(sums, {"cache": tf.zeros([2, 6])}, **options)
        for run in (lambda f: f(), lambda f: tf.function(f)()):
            result = run(lambda: tfo.seq2seq.beam_search(grows, {"cache": tf.zeros([2, 0, 6])}, **options))
            self.assertAllEqual(result.sequences, expected.sequences)
            self.assertAllClose(result.scores, expected.scores)

    def test_unknown_rank(self):
        def hidden(x):
            return tf.numpy_function(lambda x: x, [x], x.dtype)

        def step_fn(tokens, state):
            logits, state = _chain()(tokens, state)
            return hidden(logits), state

        values = {"prompt": [[1, 2], [3, 4]], "prompt_lengths": [1, 2], "history": [[1, 2], [3, 4]]}
        options = {"batch_size": 2, "max_length": 4, "bos_id": 0, "eos_ids": 5}
        options["logits_processor"] = tfo.seq2seq.processors.repetition_penalty(2.0)

        def searches(step_fn, more):
            return (
                *tfo.seq2seq.beam_search(step_fn, (), beam_width=3, **options, **more),
                *tfo.seq2seq.sample(step_fn, (), seed=[1, 2], **options, **more),
                *tfo.seq2seq.stochastic_beam_search(step_fn, (), beam_width=3, seed=[1, 2], **options, **more),
            )

        @tf.function
        def in_a_graph():
            return searches(step_fn, {name: hidden(tf.constant(x)) for name, x in values.items()})

        for found, expected in zip(in_a_graph(), searches(_chain(), values), strict=True):
            self.assertAllClose(found, expected)

    def test_stops_when_all_are_done(self):
        calls = tf.Variable(0)

        def step_fn(tokens, state):
            calls.assign_add(1)
            return tf.one_hot(tf.ones_like(tokens), 4) * 50, state

        options = {"batch_size": 2, "bos_id": 0, "eos_ids": 1, "max_length": 1000}
        tf.function(lambda: tfo.seq2seq.beam_search(step_fn, (), beam_width=1, **options))()
        self.assertEqual(int(calls), 1)
        tf.function(lambda: tfo.seq2seq.sample(step_fn, (), seed=[1, 2], **options))()
        self.assertEqual(int(calls), 2)

    def test_autograph_converts_unmarked_functions_only(self):
        """It converts nothing eagerly, with autograph=False, or if marked, such as another framework's model."""
        names = set()
        kept = tf.autograph.experimental.do_not_convert

        @kept
        def record():
            names.update(frame.name for frame in traceback.extract_stack())

        def step_fn(tokens, state):
            record()
            return tf.one_hot(tokens, 4), state

        def processor(step, sequences, logits):
            record()
            return logits

        def search(step_fn, processor):
            options = {"batch_size": 1, "max_length": 2, "bos_id": 0, "eos_ids": 1, "logits_processor": processor}
            tfo.seq2seq.beam_search(step_fn, (), beam_width=2, **options)
            tfo.seq2seq.sample(step_fn, (), seed=[1, 2], **options)

        marked = kept(step_fn), kept(processor)
        for case, run, converts in (
            ("eagerly", lambda: search(step_fn, processor), False),
            ("in a graph", tf.function(lambda: search(step_fn, processor)), True),
            ("with autograph=False", tf.function(lambda: search(step_fn, processor), autograph=False), False),
            # tf.function removes the marks from its arguments, so the lambda passes them.
            ("marked", tf.function(lambda: search(*marked)), False),
        ):
            names.clear()
            run()
            with self.subTest(case):
                self.assertEqual({"tf__step_fn", "tf__processor"} <= names, converts)
                self.assertEqual({"step_fn", "processor"} <= names, not converts)

    def test_saved_decoder_in_a_new_process(self):
        model = Translator()
        summary = tf.random.stateless_normal([3, 4], [3, 4])
        expected = model.translate(summary, 6)
        drawn = model.draw(summary, [5, 6], 0.8)
        path = os.path.join(self.get_temp_dir(), "decoder")
        tf.saved_model.save(model, path, signatures={"translate": model.translate})
        printed = process_testing.output(
            self.get_temp_dir(),
            """
            import sys
            import numpy as np
            import tensorflow as tf
            import tensorflow_ops

            model = tf.saved_model.load(sys.argv[1])
            summary = tf.random.stateless_normal([3, 4], [3, 4])
            result = model.translate(summary, 6)
            served = model.signatures["translate"](summary=summary, max_length=tf.constant(6))
            drawn = model.draw(summary, [5, 6], 0.8)
            print(result["sequences"].numpy().tolist())
            print(served["sequences"].numpy().tolist())
            print(drawn["sequences"].numpy().tolist())
            """,
            path,
        ).splitlines()
        self.assertEqual(printed[0], str(expected["sequences"].numpy().tolist()))
        self.assertEqual(printed[1], printed[0])
        self.assertEqual(printed[2], str(drawn["sequences"].numpy().tolist()))


if __name__ == "__main__":
    tf.test.main()
