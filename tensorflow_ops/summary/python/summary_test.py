"""Tests of image summaries, read back from event files."""

import concurrent.futures
import io
import os
import subprocess
import sys
import tempfile
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from PIL import Image

import tensorflow_ops as tfo

_GREEN, _RED, _BLUE = (0, 140, 40), (210, 0, 0), (0, 70, 220)


def _read(directory):
    """Returns [(tag, step, plugin, width, height, [uint8 array])] for all summaries under a directory."""
    found = []
    for path in sorted(tf.io.gfile.glob(os.path.join(directory, "*"))):
        for event in tf.compat.v1.train.summary_iterator(path):
            for value in event.summary.value:
                width, height, *pngs = tf.make_ndarray(value.tensor).tolist()
                pictures = [np.array(Image.open(io.BytesIO(png))) for png in pngs]
                plugin = value.metadata.plugin_data.plugin_name
                found.append((value.tag, event.step, plugin, int(width), int(height), pictures))
    return found


def _count(picture, colour):
    """Returns the number of pixels of a colour."""
    return int((picture == np.array(colour, np.uint8)).all(-1).sum())


class _Case(parameterized.TestCase, tf.test.TestCase):
    def _written(self, write, step=7):
        """Returns the summaries that a function writes, in _read's form."""
        directory = tempfile.mkdtemp(dir=self.get_temp_dir())
        writer = tf.summary.create_file_writer(directory)
        with writer.as_default(step=step):
            write()
        writer.close()
        return _read(directory)

    def _pictures(self, *args, **kwargs):
        """Returns the pictures that labeled_images writes."""
        ((_, _, _, width, height, pictures),) = self._written(lambda: tfo.summary.labeled_images("a", *args, **kwargs))
        for picture in pictures:
            self.assertEqual(picture.shape, (height, width, 3))
        return pictures


class LabeledImagesTest(_Case):
    @parameterized.parameters(lambda f: f, tf.function)
    def test_written_summary(self, mode):
        images = tf.zeros([5, 20, 200, 3])
        write = mode(lambda: tfo.summary.labeled_images("some/images", images, tf.range(5)))
        ((tag, step, plugin, width, height, pictures),) = self._written(write)
        self.assertEqual((tag, step, plugin, len(pictures)), ("some/images", 7, "images", 3))
        self.assertEqual({picture.shape for picture in pictures}, {(height, width, 3)})
        self.assertGreaterEqual(width, 200)

    def test_correct_is_green_and_wrong_is_red(self):
        images = np.full([2, 64, 200, 3], 255, np.uint8)
        right, wrong = self._pictures(images, [1, 2], predictions=[1, 3])
        black, _ = self._pictures(images, ["cat", "dog"])
        self.assertEqual((_count(black, _RED), _count(black, _GREEN)), (0, 0))
        self.assertGreater((black[70:].max(-1) < 100).sum(), 10)
        self.assertEqual((_count(right, _RED), _count(wrong, _GREEN)), (0, 0))
        for picture, colour in ((right, _GREEN), (wrong, _RED)):
            coloured = (picture == np.array(colour, np.uint8)).all(-1)
            self.assertTrue(coloured[0, :206].all())  # the frame
            self.assertTrue(coloured[:70, 0].all())
            self.assertFalse(coloured[3:67, 3:203].any())  # the image
            text, label = (part.astype(int) for part in (picture[70:89], picture[92:]))
            excess = text[..., 1] - text[..., 0] if colour == _GREEN else text[..., 0] - text[..., 1]
            self.assertGreater((excess > 50).sum(), 10)  # the prediction below the image, with antialiased edges
            self.assertAllEqual(label.max(-1), label.min(-1))  # the label in black
            self.assertGreater((label.max(-1) < 100).sum(), 10)

    def _same(self, a, b):
        for one, other in zip(self._pictures(**a), self._pictures(**b), strict=True):
            self.assertAllEqual(one, other)

    def test_ids_texts_and_names(self):
        image = {"images": np.zeros([3, 32, 200, 1], np.float32)}
        names = ["dog", "cat", "é"]
        by_id = {**image, "labels": [0, 1, 2], "predictions": [0, 2, 2], "class_names": names}
        by_text = {**image, "labels": ["dog", "cat", "é"], "predictions": ["dog", "é", "é"]}
        self._same(by_id, by_text)
        self._same({**by_id, "labels": by_text["labels"]}, by_text)
        self._same({**image, "labels": [0, 7, -1], "class_names": ["0"]}, {**image, "labels": ["0", "7", "-1"]})

    @parameterized.parameters("float16", "bfloat16", "float32", "float64")
    def test_shows_the_top_probability(self, dtype):
        image = {"images": np.zeros([2, 32, 200, 1], np.float32), "labels": [1, 2]}
        probabilities = tf.cast([[0.25, 0.5, 0.25], [0.75, 0.0, 0.25]], dtype)
        first, second = self._pictures(**image, predictions=probabilities)
        self.assertAllEqual(first[0, 0], _GREEN)
        self.assertAllEqual(second[0, 0], _RED)
        other, same = self._pictures(**image, predictions=tf.cast([[0.0, 0.625, 0.25], [0.75, 0.25, 0]], dtype))
        self.assertNotAllEqual(first, other)
        self.assertAllEqual(second, same)

    @parameterized.product(dtype=["uint8", "float16", "bfloat16", "float32", "float64"], channels=[1, 3, 4])
    def test_pixels(self, dtype, channels):
        values = np.array([[0, 51], [102, 255]], np.uint8)[None, :, :, None].repeat(channels, -1)
        images = tf.constant(values) if dtype == "uint8" else tf.cast(values / 255, dtype)
        (picture,) = self._pictures(images, [0])
        inside = picture[3:163, 3:163]  # 2 x 2 pixels, enlarged 80 times
        gray = values[0, :, :, 0].astype(float)
        if channels == 4:
            gray = gray * gray / 255 + 255 - gray  # blended with white: alpha equals the value
        expected = gray[..., None].repeat(80, 0).repeat(80, 1).repeat(3, 2)
        self.assertAllClose(inside.astype(float), expected, atol={"float16": 1, "bfloat16": 2}.get(dtype, 0.51), rtol=0)

    def test_floats_are_clipped(self):
        images = np.array([[[[-1.0], [2.0], [np.nan], [np.inf], [-np.inf]]]], np.float32)
        (picture,) = self._pictures(images, [0])
        self.assertAllEqual(picture[4, 3 + 16 : 163 : 32, 0], [0, 255, 0, 255, 0])

    def test_any_size_and_count(self):
        for shape in ((0, 8, 8, 3), (2, 0, 8, 3), (2, 8, 0, 1), (1, 1, 1, 4), (1, 3, 500, 3)):
            labels = tf.range(shape[0])
            self.assertLen(self._pictures(tf.zeros(shape), labels, predictions=labels), shape[0])
        for count in (0, 1, 2, 9):
            self.assertLen(self._pictures(tf.zeros([4, 8, 8, 3]), tf.range(4), max_outputs=count), min(count, 4))

    def test_long_texts_are_cut(self):
        images = np.full([2, 8, 300, 3], 255, np.uint8)
        self.assertLen(self._pictures(images, ["many words " * 50, "\n"], predictions=["日本" * 99, ""]), 2)

    def test_boxes(self):
        images = np.full([1, 100, 200, 3], 255, np.uint8)
        padding = [[0, 0, 0, 0], [5, 5, 5, 9], [np.nan, 0, 9, 9], [9, 9, 3, 3], [0, 0, np.inf, 9]]
        boxes = np.array([[[20, 30, 120, 80], *padding]], np.float32)
        (picture,) = self._pictures(images, ["x"], boxes=boxes)
        (enlarged,) = self._pictures(np.full([1, 20, 20, 3], 255, np.uint8), ["x"], boxes=[[[5, 10, 15, 15]]])
        for of, edges in ((picture, (23, 33, 123, 83)), (enlarged, (43, 83, 123, 123))):
            rows, columns = np.nonzero((of == np.array(_BLUE, np.uint8)).all(-1))
            self.assertEqual((columns.min(), rows.min(), columns.max(), rows.max()), edges)
        self.assertAllEqual(picture[50, 70], [255, 255, 255])
        labels = np.array([["cat"] + [""] * 5])
        (named,) = self._pictures(images, ["x"], boxes=boxes, box_labels=labels)
        self.assertGreater(_count(named, _BLUE), _count(picture, _BLUE) + 50)
        (whole,) = self._pictures(images, ["x"], boxes=[[[-50, -50, 500, 500]]], box_labels=[[3]])
        self.assertAllEqual(whole[102, 3:203], [_BLUE] * 200)

    def test_bad_arguments(self):
        images, write = tf.zeros([2, 8, 8, 3]), tfo.summary.labeled_images
        for kwargs, message in (
            ({"images": tf.zeros([8, 8, 3])}, r"images is float32 of shape \(8, 8, 3\), expected uint8 or float \[N"),
            ({"images": tf.zeros([2, 8, 8, 3], tf.int32)}, "images is int32"),
            ({"labels": [1.0, 2.0]}, "labels is float32 .*expected integers or strings"),
            ({"labels": [[1], [2]]}, r"labels is int32 of shape \(2, 1\)"),
            ({"predictions": [0.5, 0.5]}, r"predictions is float32 of shape \(2,\), expected .*floats \[N, classes\]"),
            ({"predictions": [[1], [2]]}, "predictions is int32"),
            ({"boxes": [[1, 2, 3, 4]]}, r"boxes is int32 of shape \(1, 4\)"),
            ({"box_labels": [["a"], ["b"]]}, "box_labels is given and boxes is None"),
            ({"max_outputs": -1}, r"max_outputs is -1, expected an int in \[0, 2147483647\]"),
            ({"max_outputs": tf.constant([1])}, "max_outputs is <tf.Tensor.*, expected an int"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                write("a", **{"images": images, "labels": [1, 2], **kwargs})
        for kwargs, message in (
            ({"labels": [1]}, "labels has 1 rows, expected one for each of 2 images"),
            ({"predictions": [[0.5]]}, "predictions has 1 rows"),
            ({"images": tf.zeros([2, 8, 8, 2])}, "images have 2 channels"),
            ({"boxes": tf.zeros([2, 1, 5])}, r"boxes has shape \[2, 1, 5\], expected \[images, boxes, 4\]"),
            (
                {"boxes": tf.zeros([2, 3, 4]), "box_labels": [[1], [2]]},
                r"box_labels has shape \[2, 1\], expected \[2, 3\]",
            ),
        ):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
                self._written(lambda kwargs=kwargs: write("a", **{"images": images, "labels": [1, 2], **kwargs}))


class RecordingTest(_Case):
    @parameterized.product(graph=[False, True])
    def test_draws_only_what_is_recorded(self, graph):
        drawn = []

        def draw(figure, x):
            drawn.append(float(x))

        def step(i):
            tfo.summary.figure("f", draw, [tf.cast(i, tf.float32)], step=i)
            return tfo.summary.labeled_images("l", tf.zeros([1, 8, 8, 3]), [0], step=i)

        run = tf.function(step) if graph else step
        self.assertFalse(run(tf.constant(0, tf.int64)))  # no writer

        def write():
            every = tf.Variable(False)
            traced = tf.function(step) if graph else step
            with tf.summary.record_if(lambda: every.read_value()):
                for i in range(6):
                    every.assign(i % 3 == 0)
                    self.assertEqual(bool(traced(tf.constant(i, tf.int64))), i % 3 == 0)

        found = self._written(write)
        self.assertEqual([(tag, step) for tag, step, *_ in found], [("f", 0), ("l", 0), ("f", 3), ("l", 3)])
        self.assertEqual(drawn, [0.0, 3.0])

    def test_default_step_and_name_scopes(self):
        def write():
            tf.summary.experimental.set_step(41)
            with tf.name_scope("train"):
                tfo.summary.labeled_images("l", tf.zeros([1, 8, 8, 3]), [0])
                tfo.summary.figure("f", lambda figure: None, [], step=5)
            tf.summary.experimental.set_step(None)
            with self.assertRaisesRegex(ValueError, "No step set"):
                tfo.summary.figure("f", lambda figure: None, [])

        found = self._written(write, step=None)
        self.assertEqual([(tag, step) for tag, step, *_ in found], [("train/l", 41), ("train/f", 5)])

    def test_steps_are_integers_in_graphs_without_a_writer_too(self):
        for call in (tfo.summary.figure, tf.function(tfo.summary.figure)):
            with self.assertRaisesRegex(ValueError, "step are float32, expected int64"):
                call("f", lambda figure: None, [], step=tf.constant(0.5))


class FigureTest(_Case):
    @parameterized.parameters(lambda f: f, tf.function)
    def test_draws(self, mode):
        received = []

        def draw(figure, x, names):
            received.append((type(x), x.shape, x.flags.writeable, names.tolist()))
            figure.set_size_inches(3, 2)
            axes = figure.add_axes((0, 0, 1, 1))
            axes.set_axis_off()
            axes.imshow(np.array([[[0, 255, 0]]], np.uint8), aspect="auto")

        write = mode(lambda: tfo.summary.figure("f", draw, [tf.zeros([2, 3]), tf.constant(["a"])]))
        ((tag, step, plugin, width, height, (picture,)),) = self._written(write)
        self.assertEqual((tag, step, plugin, width, height), ("f", 7, "images", 300, 200))
        self.assertEqual(picture.shape, (200, 300, 4))
        self.assertAllEqual(picture[100, 150], [0, 255, 0, 255])
        self.assertEqual(received, [(np.ndarray, (2, 3), False, [b"a"])])

    def test_bad_arguments(self):
        with self.assertRaisesRegex(TypeError, "draw_fn is a int, expected a function"):
            tfo.summary.figure("f", 3, [])
        with self.assertRaisesRegex(TypeError, "args is a .*Tensor.*, expected a list or tuple of tensors"):
            tfo.summary.figure("f", print, tf.zeros([3]))


class SurroundingsTest(_Case):
    def test_threads(self):
        """Each thread draws its own colour with both functions."""

        def draw(figure, colour):
            axes = figure.add_axes((0, 0, 1, 1))
            axes.set_title(f"${int(colour[0])}^2$")
            axes.imshow(colour[None, None])

        def work(i):
            colour = np.array([5 * i, 0, 255], np.uint8)
            batch = np.broadcast_to(colour, [1, 16, 16, 3])

            def write():
                tfo.summary.figure("f", draw, [colour])
                tfo.summary.labeled_images("l", batch, [i], predictions=[i])

            figure, images = self._written(write)
            self.assertAllEqual(figure[-1][0][240, 320, :3], colour)
            self.assertAllEqual(images[-1][0][80, 80], colour)

        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            list(pool.map(work, range(24)))

    def test_needs_no_display_or_pyplot_and_imports_lazily(self):
        script = """
import sys, tempfile
import keras, tensorflow as tf
before = set(sys.modules)
import tensorflow_ops as tfo
assert not {"matplotlib", "PIL", "tensorboard"} & (set(sys.modules) - before)
with tf.summary.create_file_writer(tempfile.mkdtemp()).as_default(step=0):
    print(bool(tfo.summary.figure("f", lambda figure: figure.text(0.5, 0.5, "x"), [])))
    print(bool(tfo.summary.labeled_images("l", tf.zeros([1, 8, 8, 3]), [0])))
assert "matplotlib.pyplot" not in set(sys.modules) - before
"""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "MPLBACKEND": "tkagg"}
        environment.pop("DISPLAY", None)
        command = [sys.executable, "-c", script]
        done = subprocess.run(
            command, env=environment, cwd=self.get_temp_dir(), capture_output=True, text=True, check=False
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.split(), ["True", "True"])

    def test_missing_package_raises_import_error_with_advice(self):
        with mock.patch.dict(sys.modules, {"matplotlib": None, "PIL": None, "PIL.Image": None}):
            with self.assertRaisesRegex(
                ImportError, "tfo.summary.figure draws with matplotlib.*pip install matplotlib"
            ):
                tfo.summary.figure("f", print, [])
            with self.assertRaisesRegex(ImportError, "labeled_images draws with pillow.*pip install pillow"):
                tfo.summary.labeled_images("l", tf.zeros([1, 8, 8, 3]), [0])


if __name__ == "__main__":
    tf.test.main()
