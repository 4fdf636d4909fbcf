"""A small translator with attention, and its decoder as a graph from texts to dates."""

import data
import keras
import tensorflow as tf

import tensorflow_ops as tfo

UNITS = 128
CODES = 128  # ASCII


def encode_text(texts: tf.Tensor) -> tf.Tensor:
    """Returns ASCII codes [N, longest] of strings [N], padded with 0."""
    return tf.minimum(tf.strings.unicode_decode(tf.strings.lower(texts), "UTF-8").to_tensor(), CODES - 1)


def decode_text(ids: tf.Tensor) -> tf.Tensor:
    """Returns the strings [...] of target ids [..., T]."""
    characters = tf.constant(["", "", "", *data.CHARACTERS])
    return tf.strings.reduce_join(tf.gather(characters, ids), axis=-1)


class Translator(keras.Model):
    """Convolutions encode the text; a GRU with attention writes the date one character at a time.

    The attention is that of "Effective Approaches to Attention-based Neural Machine
    Translation", arXiv:1508.04025, section 3.1.
    """

    def __init__(self):
        super().__init__()
        self.embed_source = keras.layers.Embedding(CODES, UNITS)
        self.convolutions = [keras.layers.Conv1D(UNITS, 5, padding="same", activation="relu") for _ in range(3)]
        self.embed_target = keras.layers.Embedding(len(data.CHARACTERS) + 3, UNITS)
        self.cell = keras.layers.GRUCell(UNITS)
        self.recurrent = keras.layers.RNN(self.cell, return_sequences=True)
        self.combine = keras.layers.Dense(UNITS, activation="tanh")
        self.out = keras.layers.Dense(len(data.CHARACTERS) + 3)

    def encode(self, source):
        """Returns the attention's memory [N, S, UNITS], and a mask of its text positions."""
        is_text = tf.cast(source > 0, tf.float32)[..., tf.newaxis]
        x = self.embed_source(source) * is_text
        for convolution in self.convolutions:
            x = (x + convolution(x)) * is_text
        return x, is_text[..., 0]

    def logits(self, hidden, memory, is_text):
        """Returns logits [N, T, characters] of the next character from the GRU's outputs [N, T, UNITS]."""
        weights = tf.matmul(hidden, memory, transpose_b=True) / UNITS**0.5
        weights = tfo.nn.softmax(weights - 1e9 * (1 - is_text[:, tf.newaxis]))
        return self.out(self.combine(tf.concat([hidden, tf.matmul(weights, memory)], -1)))

    def call(self, inputs):
        """Returns logits [N, T, characters] of each character, given the true previous ones."""
        source, target = inputs
        before = tf.pad(target[:, :-1], [[0, 0], [1, 0]], constant_values=data.BOS)
        memory, is_text = self.encode(source)
        return self.logits(self.recurrent(self.embed_target(before)), memory, is_text)


class Decoder(tf.Module):
    """The exported module: converts texts to dates, with all hypotheses and their scores."""

    def __init__(self, translator: Translator, beam_width: int):
        super().__init__()
        self.translator, self.beam_width = translator, beam_width

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="texts")])
    def decode(self, texts):
        """Returns dates [N, K], best first, and their log probabilities."""
        translator = self.translator
        memory, is_text = translator.encode(encode_text(texts))
        # All beams of a text share these, so they need not be in the state, which each step gathers.
        memory, is_text = (tf.repeat(x, self.beam_width, axis=0) for x in (memory, is_text))

        def step_fn(tokens, hidden):
            output, (hidden,) = translator.cell(translator.embed_target(tokens), [hidden])
            return translator.logits(output[:, tf.newaxis], memory, is_text)[:, 0], hidden

        result = tfo.seq2seq.beam_search(
            step_fn,
            tf.zeros([tf.shape(texts)[0], UNITS]),
            batch_size=tf.shape(texts)[0],
            beam_width=self.beam_width,
            max_length=data.TARGET_LENGTH + 2,
            bos_id=data.BOS,
            eos_ids=data.EOS,
            pad_id=data.PAD,
            early_stopping="never",
            num_return_sequences=self.beam_width,
        )
        return {"dates": decode_text(result.sequences), "log_probs": result.log_probs}
