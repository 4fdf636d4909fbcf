"""A decoder-only transformer over bytes, whose layer of attention is an argument."""

import keras

import tensorflow_ops as tfo

BYTES = 256
WIDTH, HEADS, LAYERS = 128, 4, 2
LEARNING_RATE = 3e-3
ATTENTIONS = {"fused": tfo.layers.MultiHeadAttention, "composed": keras.layers.MultiHeadAttention}


def block(x, attention: type[keras.layers.MultiHeadAttention]):
    """Applies a pre-norm transformer block: causal attention, then a network of two layers."""
    normalized = keras.layers.LayerNormalization()(x)
    x += attention(HEADS, WIDTH // HEADS)(normalized, normalized, use_causal_mask=True)
    hidden = keras.layers.Dense(4 * WIDTH, activation="gelu")(keras.layers.LayerNormalization()(x))
    return x + keras.layers.Dense(WIDTH)(hidden)


def build(attention: str, steps: int) -> keras.Model:
    """Returns a compiled model from bytes [N, T] to logits [N, T, 256] of the bytes that follow.

    T may be any length: there is no table of positions. A causal convolution gives the order
    of near bytes.
    """
    inputs = keras.Input([None], dtype="uint8")
    x = keras.layers.Embedding(BYTES, WIDTH, keras.initializers.RandomNormal(stddev=1.0))(inputs)
    x = keras.layers.Conv1D(WIDTH, 4, padding="causal")(x)
    for _ in range(LAYERS):
        x = block(x, ATTENTIONS[attention])
    model = keras.Model(inputs, keras.layers.Dense(BYTES)(keras.layers.LayerNormalization()(x)))
    schedule = keras.optimizers.schedules.CosineDecay(0.0, steps, warmup_target=LEARNING_RATE, warmup_steps=steps // 10)
    # Keras would compile by XLA where it sees a GPU.
    model.compile(keras.optimizers.Adam(schedule), tfo.losses.SparseSoftmaxCrossEntropy(), jit_compile=False)
    return model
