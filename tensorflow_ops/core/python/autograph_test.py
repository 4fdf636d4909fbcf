"""Tests that AutoGraph skips the public functions, except those that take callables."""

import types

import tensorflow as tf

import tensorflow_ops as tfo
from tensorflow_ops.core.python import autograph

# Public functions without the mark: they take callables, draw, run checks, or call no op.
_CONVERTED = {
    "testing.assert_gradients",
    "testing.gradient_error",
    "testing.opcheck",
    "testing.opcheck_samples",
    "distribute.make_parallel",
    "export.to_standard_ops",
    "onnx.register",
    "python_op",
    "seq2seq.beam_search",
    "seq2seq.ctc_beam_search_decode",
    "seq2seq.sample",
    "seq2seq.stochastic_beam_search",
    "show_versions",
    "summary.figure",
    "summary.labeled_images",
    "sysconfig.get_compile_flags",
    "sysconfig.get_include",
    "sysconfig.get_lib",
    "sysconfig.get_libs",
    "sysconfig.get_link_flags",
}


def _public_functions():
    for name in tfo.__all__:
        value = getattr(tfo, name)
        if isinstance(value, types.FunctionType):
            yield name, value
        for inner in getattr(value, "__all__", ()):
            if isinstance(getattr(value, inner), types.FunctionType):
                yield f"{name}.{inner}", getattr(value, inner)


def _absolute(x):
    if x > 0:  # on a tensor: needs AutoGraph in a graph
        return x
    return -x


class AutographTest(tf.test.TestCase):
    def test_public_functions_without_callables_are_not_converted(self):
        functions = dict(_public_functions())
        self.assertGreater(len(functions), 30)
        marked = {name for name, function in functions.items() if hasattr(function, "autograph_info__")}
        self.assertEqual(set(functions) - marked, _CONVERTED)

    def test_generated_functions_do_not_warn(self):
        with self.assertNoLogs("tensorflow", "WARNING"):
            self.assertAllEqual(tf.function(lambda x: tfo.zero_out(x))(tf.constant([3, 4])), [3, 0])

    def test_marked_function_is_not_converted(self):
        self.assertAllEqual(tf.function(lambda x: _absolute(x))(tf.constant(-3.0)), 3.0)

        @autograph.op_function
        def marked(x):
            return 1.0 if x > 0 else 2.0

        with self.assertRaises(tf.errors.OperatorNotAllowedInGraphError):
            tf.function(lambda x: marked(x))(tf.constant(-3.0))

    def test_user_callables_are_converted(self):
        def step_fn(tokens, state):
            if tf.reduce_sum(tokens) > 0:
                logits = tf.constant([[0.0, 1.0, 0.5]])
            else:
                logits = tf.constant([[0.0, 0.5, 1.0]])
            return tf.tile(logits, [tf.shape(tokens)[0], 1]), state

        def search():
            return tfo.seq2seq.beam_search(
                step_fn, (), batch_size=1, beam_width=1, max_length=3, bos_id=0, eos_ids=[], pad_id=0
            ).sequences

        self.assertAllEqual(tf.function(search)(), search())

        def absolute(x):
            return tf.reshape(_absolute(tf.reduce_sum(x)), [1])

        parallel = tf.function(tfo.distribute.make_parallel(absolute))
        self.assertAllEqual(parallel(tf.constant([-2.0])), [2.0])


if __name__ == "__main__":
    tf.test.main()
