"""A network of three tables that scores a film for a user and the words that the user typed."""

import data
import keras

ROWS, WIDTH = 300_000, 16  # of each table


def build() -> keras.Model:
    """Returns a model from strings, "user" and "film" [N, 1] and "words" [N, TYPED], to logits of a click, [N, 1]."""
    inputs, means = {}, {}
    for name, count in (("user", 1), ("film", 1), ("words", data.TYPED)):
        inputs[name] = keras.Input([count], dtype="string", name=name)
        # New names need no new rows: any string has one, which it may share.
        ids = keras.layers.Hashing(ROWS)(inputs[name])
        rows = keras.layers.Embedding(ROWS, WIDTH, name=f"{name}_table")(ids)
        means[name] = keras.layers.GlobalAveragePooling1D()(rows)
    user, film, words = means.values()
    features = keras.layers.Concatenate()([user, film, words, user * film, words * film])
    return keras.Model(inputs, keras.layers.Dense(1)(features))
