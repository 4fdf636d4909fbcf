"""Tests of the detector: `python -m pytest examples/detection`, with tensorflow_ops installed."""

import pathlib
import subprocess
import sys

import data
import keras
import model
import numpy as np
import onnxruntime
import pytest
import serve
import set_prediction
import tensorflow as tf
import tf2onnx

import tensorflow_ops as tfo

FOLDER = pathlib.Path(__file__).resolve().parent
LOAD = """
import sys, numpy as np, tensorflow as tf, tensorflow_ops
images, folder, result = np.load(sys.argv[1]), *sys.argv[2:]
found = tf.saved_model.load(folder).signatures["serving_default"](images=tf.constant(images))
np.savez(result, **{name: value.numpy() for name, value in found.items()})
"""


def scene(*objects):
    """Returns a scene without a picture, from pairs of box and class."""
    boxes, classes = zip(*objects, strict=True) if objects else ((), ())
    return data.Scene(None, np.float32(boxes).reshape(-1, 4), np.int32(classes))


def detections(*found):
    """Returns detections from triples of box, class and score, by decreasing score."""
    boxes, classes, scores = zip(*found, strict=True) if found else ((), (), ())
    return model.Detections(np.float32(boxes).reshape(-1, 4), np.int32(classes), np.float32(scores))


def test_average_precision_over_scenes_and_classes():
    box, elsewhere = [0, 0, 10, 10], [20, 20, 30, 30]
    scenes = [scene((box, 0), (elsewhere, 1)), scene((box, 0)), scene()]
    found = [
        detections((box, 0, 0.9), (elsewhere, 0, 0.8), (box, 1, 0.7)),
        detections((box, 0, 0.6)),
        detections((box, 2, 0.5)),  # no scene has an object of class 2, so it does not count
    ]
    # Class 0: right, wrong (class 1 is there), right. Class 1: wrong only.
    of_class_0 = (51 + 50 * 2 / 3) / 101
    np.testing.assert_allclose(model.average_precision(scenes, found)["AP"], of_class_0 / 2)


def test_decode_moves_and_scales():
    proposals = tf.constant([[10.0, 20.0, 30.0, 60.0]])
    np.testing.assert_array_equal(model.decode(proposals, tf.zeros([1, 4])), proposals)
    # By half a width to the right, and to twice the height.
    deltas = tf.constant([[5.0, 0.0, 0.0, 5 * np.log(2)]])
    np.testing.assert_allclose(model.decode(proposals, deltas), [[20.0, 0.0, 40.0, 80.0]], atol=1e-4)
    assert np.isfinite(model.decode(proposals, tf.fill([1, 4], 1e4))).all()


@pytest.fixture(scope="module")
def detector():
    """An untrained detector that is sure of some boxes and moves them."""
    keras.utils.set_random_seed(0)
    network = model.build()
    rng = np.random.default_rng(0)
    for name, scale in (("classes", 0.3), ("deltas", 0.1)):
        layer = network.get_layer(name)
        layer.set_weights([rng.normal(scale=scale, size=w.shape) for w in layer.get_weights()])
    detector = model.Detector(network)
    # Each square twice, the second time a fifth of its size to the right: an IoU of 2/3.
    squares = data.grid()
    shift = 0.2 * (squares[:, 2:3] - squares[:, :1]) * [1, 0, 1, 0]
    detector.proposals = np.concatenate([squares, squares + shift]).astype(np.float32)
    return detector


@pytest.fixture(scope="module")
def images():
    return np.stack([scene.image for scene in data.draw_scenes(2, training=True, seed=0)])


def test_candidates_are_refined_twice_and_have_no_background(detector, images):
    images = tf.constant(images)
    once, _ = model.refine(detector.network, images, tf.stack([detector.proposals] * 2))
    twice, probabilities = model.refine(detector.network, images, once)
    boxes, scores = detector.candidates(images)
    np.testing.assert_allclose(boxes, twice, atol=1e-2)
    np.testing.assert_allclose(scores, probabilities[..., 1:], atol=1e-4)


def test_detections_are_the_suppressed_candidates(detector, images):
    boxes, scores = detector.candidates(tf.constant(images))
    expected = tfo.detection.multiclass_nms(boxes, scores, score_threshold=0.05, max_outputs=20)
    assert (expected.counts.numpy() > 1).all()
    for i, found in enumerate(model.detect(detector, images)):
        count = expected.counts[i]
        np.testing.assert_allclose(found.boxes, expected.boxes[i, :count], atol=1e-2)
        np.testing.assert_array_equal(found.classes, expected.class_ids[i, :count])
        for label in range(len(data.CLASSES)):
            same = found.boxes[found.classes == label]
            assert np.triu(tfo.detection.box_iou(same, same), 1).max(initial=0) <= 0.5


def test_photographs_of_other_sizes(detector, images):
    twice = images.repeat(2, axis=1).repeat(2, axis=2)
    expected = detector.find(tf.image.resize(twice, [data.SIZE, data.SIZE], antialias=True))
    found = detector.detect(twice)
    np.testing.assert_array_equal(found["counts"], expected["counts"])
    np.testing.assert_allclose(found["boxes"], 2 * expected["boxes"], atol=1e-2)
    # The upper half of a photograph is padded with zeros.
    lower_half_is_black = images * (np.arange(data.SIZE) < 128).astype(np.uint8)[:, np.newaxis, np.newaxis]
    expected, found = detector.detect(lower_half_is_black), detector.detect(images[:, :128])
    np.testing.assert_allclose(found["boxes"], expected["boxes"], atol=1e-2)


def test_exported_detector_in_a_new_process(detector, images, tmp_path):
    expected = detector.detect(images)
    tf.saved_model.save(detector, tmp_path / "detector", signatures=detector.detect)
    np.save(tmp_path / "images.npy", images)
    arguments = [tmp_path / name for name in ("images.npy", "detector", "result.npz")]
    subprocess.run([sys.executable, "-c", LOAD, *map(str, arguments)], check=True, cwd=tmp_path)
    with np.load(tmp_path / "result.npz") as result:
        assert set(result) == {"boxes", "scores", "classes", "counts"}
        for name, value in expected.items():
            np.testing.assert_allclose(result[name], value, rtol=1e-4, atol=1e-2)


def test_serve_prints_names_and_boxes(detector, images, tmp_path, capsys, monkeypatch):
    tf.saved_model.save(detector, tmp_path / "detector", signatures=detector.detect)
    tf.io.write_file(str(tmp_path / "a.png"), tf.io.encode_png(images[0]))
    monkeypatch.setattr(sys, "argv", ["serve.py", str(tmp_path / "detector"), str(tmp_path / "a.png")])
    monkeypatch.setattr(serve, "MIN_SCORE", 0)
    serve.main()
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.endswith("a.png")
    assert len(lines) == detector.detect(images[:1])["counts"][0]
    assert all(line.split("  ")[1].strip() in data.CLASSES for line in lines)


def test_xla_compiles_detection(detector, images):
    expected = detector.find(tf.constant(images))
    compiled = tf.function(detector.find, jit_compile=True)(tf.constant(images))
    np.testing.assert_array_equal(compiled["counts"], expected["counts"])
    np.testing.assert_allclose(compiled["scores"], expected["scores"], rtol=1e-3)


def test_onnx_runtime_finds_the_same(detector, images, tmp_path):
    """In images of the network's size: ONNX has no antialiasing for those of any size."""
    images = images.astype(np.float32)
    expected = detector.find(tf.constant(images))
    path = str(tmp_path / "detector.onnx")
    tfo.onnx.register()
    spec = tf.TensorSpec([None, *images.shape[1:]], tf.float32, "images")
    tf2onnx.convert.from_function(tf.function(detector.find), [spec], opset=18, output_path=path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(None, {"images": images}), strict=True))
    assert (found["counts"] > 1).all()
    for name in ("counts", "classes"):
        np.testing.assert_array_equal(found[name], expected[name])
    np.testing.assert_allclose(found["boxes"], expected["boxes"], atol=1e-3)
    np.testing.assert_allclose(found["scores"], expected["scores"], atol=1e-5)


@pytest.fixture
def signs():
    """The truth of an image with two signs, and four queries that find them, one each, in all layers."""
    boxes = np.float32([[[0.1, 0.1, 0.3, 0.4], [0.5, 0.5, 0.9, 0.8], [0, 0, 0, 0]]])
    found = boxes[0, [2, 1, 2, 0]] + np.float32([0, 0, 0.01, 0.01])
    logits = np.full([4, len(data.CLASSES)], -20.0, np.float32)
    logits[1, 0], logits[3, 2] = 20, 20
    repeats = [1, set_prediction.LAYERS, 1, 1]
    outputs = {"boxes": np.tile(found, repeats), "classes": np.tile(logits, repeats)}
    return {"boxes": boxes, "classes": np.int32([[2, 0, -1]])}, outputs


def test_a_set_has_no_order_and_each_sign_one_query(signs):
    truth, outputs = signs

    def loss(boxes, classes):
        boxes, classes = tf.constant(boxes), tf.constant(classes)
        return float(set_prediction.SetPredictor().compute_loss(None, truth, {"boxes": boxes, "classes": classes}))

    right = loss(**outputs)
    assert 0 < right < 2  # the boxes are a hundredth too large
    np.testing.assert_allclose(loss(**{name: x[:, :, ::-1] for name, x in outputs.items()}), right, rtol=1e-5)
    twice = {name: np.copy(x) for name, x in outputs.items()}
    twice["boxes"][:, :, 0], twice["classes"][:, :, 0] = twice["boxes"][:, :, 1], twice["classes"][:, :, 1]
    # The second query of a sign is wrong, by the focal loss of a logit of 20, in each layer, of two signs.
    layers, weight = set_prediction.LAYERS, set_prediction.COSTS["classes"]
    np.testing.assert_allclose(loss(**twice) - right, weight * layers * 0.75 * 20 / 2, rtol=1e-3)
    confused = {**outputs, "classes": np.roll(outputs["classes"], 1, axis=-1)}
    assert loss(**confused) > right + 10


def test_detections_of_a_set_are_not_suppressed(signs, monkeypatch):
    monkeypatch.setattr(model, "MAX_DETECTIONS", 3)
    outputs = {name: tf.constant(x) for name, x in signs[1].items()}
    outputs["classes"] /= tf.reshape(tf.constant([8.0, 8, 8, 4]), [4, 1])
    detector = set_prediction.Detector(lambda images, training: outputs)
    found = detector.find(np.zeros([1, data.SIZE, data.SIZE, 3], np.uint8))
    assert found["counts"].numpy() == [3]
    np.testing.assert_array_equal(found["classes"][0, :2], [2, 0])
    np.testing.assert_allclose(found["scores"][0, :2], 1 / (1 + np.exp([-5, -2.5])), rtol=1e-5)
    np.testing.assert_allclose(found["boxes"][0, :2], data.SIZE * outputs["boxes"].numpy()[0, -1, [3, 1]], rtol=1e-6)
