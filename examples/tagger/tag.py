"""Loads a saved tagger, without the model's code, and tags weather given as digits from 1 (snow) to 6 (heat).

python examples/tagger/tag.py build/tagger/tagger.keras 112113321433255565656
"""

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported

import keras
import numpy as np

import tensorflow_ops  # noqa: F401  (registers the layer and its loss)

LETTERS = "WPSA"  # winter, spring, summer, autumn


def main():
    """Prints the weather, its seasons, and the first decimal of each season's probability."""
    path, *texts = sys.argv[1:]
    tagger = keras.saving.load_model(path)
    crf = tagger.layers[-1]
    for text in texts:
        scores = tagger(np.array([list(text)], np.int32))
        seasons = crf.decode(scores).labels.numpy()[0]
        chances = crf.marginals(scores).numpy()[0, range(len(text)), seasons]
        print(text)
        print("".join(LETTERS[season] for season in seasons))
        print("".join(str(min(int(10 * chance), 9)) for chance in chances))


if __name__ == "__main__":
    main()
