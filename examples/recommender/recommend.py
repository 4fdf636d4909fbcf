r"""Loads a saved recommender, without the model's code, and prints the films that a user most probably clicks on.

python examples/recommender/recommend.py build/recommender/recommender.keras build/recommender/films.txt \
    user7 ghost12 dragon3 ghost5
"""

import os
import pathlib
import sys
from collections.abc import Sequence

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported

import keras
import numpy as np
import tensorflow as tf

import tensorflow_ops  # noqa: F401  (registers LazyAdam: the loaded model can be trained further)


def recommend(network: keras.Model, films: np.ndarray, user: str, words: Sequence[str], count: int = 6) -> list[str]:
    """Returns `count` of the films, the best first, with the probability of a click."""
    inputs = {"user": [[user]], "words": [words]}
    inputs = {name: tf.repeat(tf.constant(value), len(films), 0) for name, value in inputs.items()}
    chances = tf.sigmoid(network(inputs | {"film": tf.constant(films[:, np.newaxis])}))[:, 0].numpy()
    return [f"{chances[i]:.3f} {films[i]}" for i in np.argsort(-chances)[:count]]


def main():
    path, films, user, *words = sys.argv[1:]
    names = np.array(pathlib.Path(films).read_text().split(), object)
    print("\n".join(recommend(keras.saving.load_model(path), names, user, words)))


if __name__ == "__main__":
    main()
