"""The CTC decoders, compared with TensorFlow's, which read time-major logits; a search with a language model. 2 min.

Logits are normal numbers times a scale: a model that is sure of its labels has large ones.
"""

import tensorflow as tf
from harness import Case, in_graph, normal, table

import tensorflow_ops as tfo


def inputs_of(shape, scale):
    """Returns logits, their copy with the time first, and lengths."""
    logits = normal(*shape, scale=scale)
    return logits, tf.transpose(logits, [1, 0, 2]), tf.fill([shape[0]], shape[1])


def log_probs_apart(results):
    """Returns how much better our best paths are."""
    apart = float(tf.reduce_mean(results["ours"].log_probs - results["TF"][1]))
    return {"log probability, minus TF's": f"{apart:.4f}"}


@table()
def beam_search():
    """TensorFlow's search takes the last class as blank."""
    for shape, width, scale in (
        ((1, 200, 32), 16, 4.0),
        ((8, 200, 32), 100, 4.0),
        ((8, 200, 100), 10, 1.0),
        ((1, 1000, 100), 100, 4.0),
        ((4, 100, 1000), 20, 4.0),
    ):
        logits, time_major, lengths = inputs_of(shape, scale)
        options = {"beam_width": width, "top_paths": 1}
        yield Case(
            {"[batch, frames, classes]": list(shape), "beam": width, "scale": scale},
            lambda x=logits, n=lengths, o=options: tfo.seq2seq.ctc_beam_search_decode(
                x, n, blank_index=x.shape[2] - 1, **o
            ),
            {"TF": lambda x=time_major, n=lengths, o=options: tf.nn.ctc_beam_search_decoder(x, n, **o)},
            moved=(4 * logits.shape.num_elements(), 0),
            off=(),
            facts=log_probs_apart,
        )


@table()
def greedy():
    """TensorFlow's decoder sums the greatest logits. "log_softmax", with the maximum, is a part of ours."""
    for shape in ((1, 200, 32), (8, 400, 100), (32, 400, 128), (4, 200, 5000)):
        logits, time_major, lengths = inputs_of(shape, 1.0)
        yield Case(
            {"[batch, frames, classes]": list(shape)},
            lambda x=logits, n=lengths: tfo.seq2seq.ctc_greedy_decode(x, n),
            {
                "TF": lambda x=time_major, n=lengths: tf.nn.ctc_greedy_decoder(x, n, blank_index=0),
                "TF log_softmax": lambda x=logits: tf.reduce_max(tf.nn.log_softmax(x), -1),
            },
            moved=(4 * logits.shape.num_elements(), 0),
            off=(),
        )


@table()
def language_model():
    """A search with scores by the last label, which TensorFlow's decoder cannot take, and without."""
    for shape, width in (((1, 200, 32), 16), ((8, 200, 32), 100)):
        logits, _, lengths = inputs_of(shape, 4.0)
        bigrams = tf.nn.log_softmax(normal(shape[2], shape[2], seed=1))

        def decode(x, n, width=width, **options):
            return tfo.seq2seq.ctc_beam_search_decode(x, n, beam_width=width, **options)

        def with_model(x, n, decode=decode, bigrams=bigrams):
            return decode(x, n, step_fn=lambda labels, state: (tf.gather(bigrams, labels), state))

        yield Case(
            {"[batch, frames, classes]": list(shape), "beam": width},
            in_graph(with_model, (logits, lengths)),
            {"without": lambda x=logits, n=lengths, decode=decode: decode(x, n)},
            off=(),
        )
