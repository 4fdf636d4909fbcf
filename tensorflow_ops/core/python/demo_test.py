"""Tests of the demo: it runs from an installed package, and refuses other results."""

import contextlib
import io
import os
import re
from unittest import mock

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


if __name__ == "__main__":
    tf.test.main()
