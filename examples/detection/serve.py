"""Loads the exported detector, without the model's code, and detects signs in images.

python examples/detection/serve.py build/detection/detector build/detection/scene_0.png
"""

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported

import tensorflow as tf

import tensorflow_ops  # noqa: F401  (registers the ops that the SavedModel calls)

MIN_SCORE = 0.5


def main():
    """Prints the signs in each image: name, score, and box in its pixels."""
    folder, *paths = sys.argv[1:]
    detector = tf.saved_model.load(folder)
    names = [name.decode() for name in detector.class_names.numpy()]
    for path in paths:
        image = tf.io.decode_image(tf.io.read_file(path), channels=3, expand_animations=False)
        found = detector.signatures["serving_default"](images=image[tf.newaxis])
        print(path)
        for i in range(found["counts"][0]):
            box, score, label = (found[key][0, i].numpy() for key in ("boxes", "scores", "classes"))
            if score >= MIN_SCORE:
                print(f"  {names[label]:9}{score:6.3f}", *(f"{edge:6.1f}" for edge in box))


if __name__ == "__main__":
    main()
