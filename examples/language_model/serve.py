"""Continues a text by a saved program, without the model's code: serve.py FOLDER TEXT, both texts as hex digits."""

import sys

import numpy as np
import tensorflow as tf

import tensorflow_ops  # noqa: F401  (the program's ops)


def main(folder: str, prompt: bytes) -> bytes:
    write = tf.saved_model.load(folder).signatures["serving_default"]
    written = write(prompt=tf.constant(np.frombuffer(prompt, np.uint8)))
    return prompt + written["text"].numpy().tobytes()


if __name__ == "__main__":
    print(main(sys.argv[1], bytes.fromhex(sys.argv[2])).hex())
