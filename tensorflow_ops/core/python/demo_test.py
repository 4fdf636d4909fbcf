"""Tests of the demo: it runs from an installed package, and refuses other results."""

import contextlib
import io
import os
import re
from unittest import mock

import keras
import process_testing
import tensorflow as tf

from tensorflow_ops import demo


class DemoTest(tf.test.TestCase):
    def test_compares_and_times_five_ops(self):
        path = os.path.join(self.get_temp_dir(), "demo.png")
        with contextlib.redirect_stdout(io.StringIO()) as printed, mock.patch.object(demo, "SECONDS", 0):
            demo.main(["demo", path])
        self.assertLen(re.findall(r": \d+ times as fast\n  █+ +[\d.]+ ms\n", printed.getvalue()), 5, printed.getvalue())
        self.assertEqual("pip install matplotlib" in printed.getvalue(), not os.path.exists(path))

    def test_refuses_other_results(self):
        case = demo.Case("a", lambda: [tf.constant(1.0)], lambda: [tf.constant(1.1)], "f", "g")
        with self.assertRaisesRegex(AssertionError, "Not equal to tolerance.*\na"):
            demo.measure(case)

    def test_explains_itself(self):
        for arguments in (["demo", "--help"], ["demo", "a", "b"]):
            with self.assertRaisesRegex(SystemExit, r"python -m tensorflow_ops.demo \[PICTURE\]"):
                demo.main(arguments)
        for arguments in (["demo", "a.keras", "b"], ["demo", "a.keras", "1", "2"]):
            with self.assertRaisesRegex(SystemExit, r"MODEL.keras \[BATCH\]"):
                demo.main(arguments)

    def test_compares_models_in_files(self):
        tokens, mask = keras.Input([None], dtype="int32", name="tokens"), keras.Input([5], dtype="bool", name="mask")
        words = keras.layers.Embedding(7, 4)(tokens)[:, :5]
        tags = keras.layers.Dense(3, activation="softmax")(keras.layers.GRU(4)(words, mask=mask))
        tagger = keras.Model({"tokens": tokens, "mask": mask}, tags)
        tagger.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
        tagger.save(os.path.join(self.get_temp_dir(), "tagger.keras"))
        script = "import sys; from tensorflow_ops import demo; demo.SECONDS = 0; demo.main(sys.argv)"
        printed = process_testing.output(self.get_temp_dir(), script, "tagger.keras", "2")
        self.assertRegex(printed, r"input tokens: int32 \[2, 128\], random numbers from 0 to 6\n")
        self.assertRegex(printed, r"input mask: bool \[2, 5\], random numbers from 0 to 1\n")
        self.assertRegex(
            printed, r"\nrandom targets\n\n.*\npredict +[\d.]+ ms.*\ntrain +[\d.]+ ms.*\(gradients, .*\)\n"
        )
        self.assertRegex(printed, r"\ngru +predict +1 +0\ngru +train +1 +0\n")

        pixels = keras.Sequential([keras.Input([None, None, 1]), keras.layers.GlobalAveragePooling2D()])
        path = os.path.join(self.get_temp_dir(), "pixels.keras")
        pixels.save(path)
        with contextlib.redirect_stdout(io.StringIO()) as out, mock.patch.object(demo, "SECONDS", 0):
            demo.main(["demo", path])
        self.assertRegex(
            out.getvalue(), r"float32 \[8, 224, 224, 1\], random numbers between 0 and 1\nno training step"
        )
        keras.Sequential([keras.Input([], dtype="string"), keras.layers.Identity()]).save(path)
        for file, message in ((path, "strings, for which"), ("none.keras", "cannot load none.keras. In the program")):
            with self.assertRaisesRegex(SystemExit, message):
                demo.main(["demo", file])


if __name__ == "__main__":
    tf.test.main()
