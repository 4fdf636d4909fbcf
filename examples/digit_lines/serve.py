"""Loads the exported reader, without the model's code, and reads images of lines.

python examples/digit_lines/serve.py build/digit_lines/reader build/digit_lines/line_0.png
"""

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported

import tensorflow as tf

import tensorflow_ops  # noqa: F401  (registers the ops that the SavedModel calls)


def main():
    """Prints the number in each image."""
    folder, *paths = sys.argv[1:]
    read = tf.saved_model.load(folder).signatures["serving_default"]
    lines = tf.stack([tf.io.decode_png(tf.io.read_file(path), channels=1) for path in paths])
    for path, digits in zip(paths, read(lines=lines)["digits"].numpy(), strict=True):
        print(f"{os.path.basename(path)}: {''.join(map(str, digits[digits >= 0]))}")


if __name__ == "__main__":
    main()
