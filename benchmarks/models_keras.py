"""The models of models.py in Keras, and a batch of each. `MODELS` has them by name."""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import layers

CLASSES = 100
VOCABULARY, LENGTH, UNITS, HEADS, BLOCKS = 8000, 256, 256, 4, 4  # the GPT; the last three of the BERT, too
WORDS, TAGS = 20_000, 20
CHARACTERS = 80
TABLES, ROWS, WIDTH = 3, 300_000, 32
OBJECTS = 80  # classes of D-FINE


@dataclasses.dataclass
class Network:
    """A model and its data.

    Attributes:
      size: what one batch is.
      make: returns a new model with a loss.
      x: the inputs, y: the targets.
    """

    size: str
    make: Callable
    x: Any
    y: Any


def _compiled(model, **options):
    model.compile(keras.optimizers.AdamW(1e-4, weight_decay=0.01), **options)
    return model


def _classifier(model, **options):
    return _compiled(model, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), **options)


def _of_images(kind, size, batch):
    random = np.random.default_rng(0)
    options = {"weights": None, "classes": CLASSES, "classifier_activation": None}
    return Network(
        f"{batch} x {size}x{size}",
        lambda: _classifier(kind(input_shape=(size, size, 3), **options)),
        random.normal(size=[batch, size, size, 3]).astype(np.float32),
        random.integers(0, CLASSES, [batch]),
    )


def _gpt():
    import keras_hub

    def make():
        tokens = keras.Input([LENGTH], dtype="int32")
        h = layers.Embedding(VOCABULARY, UNITS)(tokens)
        h = layers.Dropout(0.1)(h + keras_hub.layers.PositionEmbedding(LENGTH)(h))
        for _ in range(BLOCKS):
            normal = layers.LayerNormalization(epsilon=1e-5)(h)
            attended = layers.MultiHeadAttention(HEADS, UNITS // HEADS)(normal, normal, use_causal_mask=True)
            h += layers.Dropout(0.1)(attended)
            wide = layers.Dense(4 * UNITS, "gelu")(layers.LayerNormalization(epsilon=1e-5)(h))
            h += layers.Dropout(0.1)(layers.Dense(UNITS)(wide))
        return _classifier(keras.Model(tokens, layers.Dense(VOCABULARY)(layers.LayerNormalization(epsilon=1e-5)(h))))

    tokens = np.random.default_rng(0).integers(0, VOCABULARY, [8, LENGTH + 1])
    return Network(f"8 x {LENGTH}", make, tokens[:, :-1], tokens[:, 1:])


def _bert():
    import keras_hub

    def make():
        backbone = keras_hub.models.BertBackbone(30_522, BLOCKS, HEADS, UNITS, 4 * UNITS, 0.1)
        return _classifier(keras_hub.models.BertTextClassifier(backbone, 2), metrics=[])  # by default, it has one

    random = np.random.default_rng(0)
    tokens = random.integers(1, 30_522, [16, 128])
    tokens[np.arange(128) >= random.integers(32, 129, [16, 1])] = 0
    x = {"token_ids": tokens, "padding_mask": tokens > 0, "segment_ids": np.zeros_like(tokens)}
    return Network("16 x 128", make, x, random.integers(0, 2, [16]))


def _readers(h):
    for _ in range(2):
        h = layers.Bidirectional(layers.LSTM(128, return_sequences=True))(h)
    return h


def _tagger():
    def make():
        words = keras.Input([64], dtype="int32")
        h = _readers(layers.Embedding(WORDS, 128, mask_zero=True)(words))
        return _classifier(keras.Model(words, layers.Dense(TAGS)(h)))

    random = np.random.default_rng(0)
    words = random.integers(1, WORDS, [32, 64])
    words[np.arange(64) >= random.integers(16, 65, [32, 1])] = 0
    return Network("32 x 64", make, words, random.integers(0, TAGS, [32, 64]))


def _crnn():
    def make():
        h = image = keras.Input([32, 128, 1])
        for filters, pool in ((64, (2, 2)), (128, (2, 2)), (256, (2, 1)), (256, (2, 1))):
            h = layers.BatchNormalization()(layers.Conv2D(filters, 3, padding="same", use_bias=False)(h))
            h = layers.MaxPooling2D(pool)(layers.ReLU()(h))
        h = layers.Reshape([32, 512])(layers.Permute([2, 1, 3])(h))
        return _compiled(keras.Model(image, layers.Dense(CHARACTERS)(_readers(h))), loss=keras.losses.CTC())

    random = np.random.default_rng(0)
    images = random.normal(size=[16, 32, 128, 1]).astype(np.float32)
    return Network("16 x 32x128", make, images, random.integers(1, CHARACTERS, [16, 8]))


def _recommender():
    def make():
        ids = [keras.Input([], dtype="int32") for _ in range(TABLES)]
        numbers = keras.Input([13])
        h = layers.Concatenate()([*(layers.Embedding(ROWS, WIDTH)(i) for i in ids), numbers])
        for units in (256, 128):
            h = layers.Dense(units, "relu")(h)
        return _compiled(keras.Model([*ids, numbers], layers.Dense(1)(h)), loss=keras.losses.BinaryCrossentropy(True))

    random = np.random.default_rng(0)
    x = [*random.integers(0, ROWS, [TABLES, 1024]), random.normal(size=[1024, 13]).astype(np.float32)]
    return Network("1024", make, x, random.integers(0, 2, [1024, 1]).astype(np.float32))


def _d_fine():
    from keras_hub import models

    stages = [[16, 16, 64, 1, 3, 3], [64, 32, 256, 1, 3, 3], [256, 64, 512, 2, 3, 5], [512, 128, 1024, 1, 3, 5]]
    of_image = {"image_shape": (256, 256, 3), "out_features": ["stage3", "stage4"]}

    def make():
        backbone = models.HGNetV2Backbone(
            [1, 1, 2, 1], 16, [64, 256, 512, 1024], [3, 16, 16], "relu", True, stages,
            [False, True, True, True], [False, False, True, True], **of_image,
        )  # fmt: skip
        features = models.DFineBackbone(
            backbone, decoder_in_channels=[128, 128], encoder_hidden_dim=128, num_labels=OBJECTS, num_denoising=0,
            learn_initial_query=False, num_queries=300, anchor_image_size=(256, 256), feat_strides=[16, 32],
            num_feature_levels=2, hidden_dim=128, encoder_in_channels=[512, 1024], encode_proj_layers=[1],
            num_attention_heads=8, encoder_ffn_dim=512, num_encoder_layers=1, hidden_expansion=0.34,
            depth_multiplier=0.5, eval_idx=-1, num_decoder_layers=3, decoder_attention_heads=8, decoder_ffn_dim=512,
            decoder_n_points=[6, 6], lqe_hidden_dim=64, num_lqe_layers=2, seed=0, **of_image,
        )  # fmt: skip
        return _compiled(models.DFineObjectDetector(features, OBJECTS))

    random = np.random.default_rng(0)
    boxes = random.uniform(0.2, 0.4, [2, 10, 4]).astype(np.float32)
    y = {"boxes": boxes, "labels": random.integers(0, OBJECTS, [2, 10])}
    return Network("2 x 256x256", make, random.normal(size=[2, 256, 256, 3]).astype(np.float32), y)


MODELS = {
    "ResNet50": lambda: _of_images(keras.applications.ResNet50, 96, 8),
    "MobileNetV2": lambda: _of_images(keras.applications.MobileNetV2, 96, 8),
    "EfficientNetB0": lambda: _of_images(keras.applications.EfficientNetB0, 96, 8),
    "ConvNeXt-T": lambda: _of_images(keras.applications.ConvNeXtTiny, 64, 4),
    "GPT": _gpt,
    "BERT": _bert,
    "LSTM tagger": _tagger,
    "CRNN": _crnn,
    "recommender": _recommender,
    "D-FINE": _d_fine,
}
