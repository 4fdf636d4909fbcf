"""Tests of MeanAveragePrecision: pycocotools' numbers, growth, Keras, inputs, errors."""

import contextlib
import io
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

import tensorflow_ops as tfo

# Logical devices must be configured before anything runs. Another test file may have done so.
_CPU = tf.config.list_physical_devices("CPU")[0]
if not tf.config.get_logical_device_configuration(_CPU):
    tf.config.set_logical_device_configuration(_CPU, [tf.config.LogicalDeviceConfiguration()] * 2)

NAMES = "AP AP50 AP75 AP_small AP_medium AP_large AR1 AR10 AR100 AR_small AR_medium AR_large".split()


def _image(rng, objects, detections, classes=4, crowd=0.2, scores=None):
    """Returns the objects and the detections of an image as dicts of arrays [R, ...], boxes as xywh."""
    boxes = np.float32(rng.uniform(0, 300, [objects, 4]) * [1, 1, 0.6, 0.6] + [0, 0, 4, 4])
    truth = {
        "boxes": boxes,
        "classes": rng.integers(0, classes, objects),
        "is_crowd": rng.random(objects) < crowd,
        "area": (boxes[:, 2] * boxes[:, 3] * rng.uniform(0.5, 1, objects)).astype(np.float32),
    }
    near = boxes[rng.integers(0, objects, detections)] if objects else np.float32(rng.uniform(1, 200, [detections, 4]))
    found = {
        "boxes": np.float32(near * rng.normal(1, 0.02, near.shape)),
        "classes": rng.integers(0, classes, detections),
        "scores": np.float32(rng.random(detections)) if scores is None else np.float32(rng.choice(scores, detections)),
    }
    if objects:  # most have the class of their object
        same = rng.random(detections) < 0.8
        found["classes"] = np.where(same, truth["classes"][rng.integers(0, objects, detections)], found["classes"])
    return truth, found


def _padded(items, extra=1):
    """Stacks dicts of arrays [R, ...]; the padding has class -1."""
    size = max(len(item["classes"]) for item in items) + extra

    def pad(key, value):
        padding = [[0, size - len(value)]] + [[0, 0]] * (value.ndim - 1)
        return np.pad(value, padding, constant_values=-1 if key == "classes" else 1)

    return {key: np.stack([pad(key, item[key]) for item in items]) for key in items[0]}


def _packed(items):
    """Returns boxes, classes and scores as one array [N, R, 5 or 6]."""
    return np.concatenate(
        [items["boxes"], *(items[key][..., None] for key in ("classes", "scores") if key in items)], -1
    )


def _coco(images, iou_thresholds=None, max_detections=None):
    """Returns pycocotools' COCOeval of pairs of truth and detections."""
    truth, found = COCO(), COCO()

    def entries(items, **numbers):
        """Returns a dict for each box of all images; `numbers` are the names of further keys."""
        return [
            {
                "image_id": i,
                "category_id": int(item["classes"][j]) + 1,
                "bbox": item["boxes"][j].tolist(),
                **{name: item[key][j].item() for name, key in numbers.items()},
            }
            for i, item in enumerate(items)
            for j in range(len(item["classes"]))
        ]

    objects, detections = zip(*images, strict=True)
    annotations = entries(objects, area="area", iscrowd="is_crowd")
    results = entries(detections, score="scores")
    with contextlib.redirect_stdout(io.StringIO()):
        truth.dataset = {
            "images": [{"id": i} for i in range(len(images))],
            "annotations": [{"id": i + 1, **annotation} for i, annotation in enumerate(annotations)],
            "categories": [{"id": label} for label in range(1, 8)],
        }
        truth.createIndex()
        if results:
            found = truth.loadRes(results)
        else:
            found.dataset = truth.dataset | {"annotations": []}
            found.createIndex()
        evaluation = COCOeval(truth, found, "bbox")
        if iou_thresholds is not None:
            evaluation.params.iouThrs = np.array(iou_thresholds)
        if max_detections is not None:
            evaluation.params.maxDets = max_detections
        evaluation.evaluate()
        evaluation.accumulate()
        if max_detections is None:
            evaluation.summarize()
    return evaluation


def _updated(images, batch=3, **options):
    metric = tfo.metrics.MeanAveragePrecision("xywh", **options)
    for start in range(0, len(images), batch):
        truth, found = zip(*images[start : start + batch], strict=True)
        metric.update_state(_padded(truth), _padded(found))
    return metric


def _numbers(metric):
    return {name: float(value) for name, value in metric.result().items()}


def _strategy():
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def _random_images(seed=0, count=12, objects=9, detections=30, **options):
    rng = np.random.default_rng(seed)
    return [_image(rng, rng.integers(0, objects), rng.integers(0, detections), **options) for _ in range(count)]


_EMPTY = _image(np.random.default_rng(0), 0, 0)
_SETS = {
    "random": _random_images(),
    "few classes": _random_images(1, classes=2, count=20),
    "equal scores": _random_images(2, scores=[0.25, 0.5, 0.75]),
    "one score": _random_images(3, scores=[0.5]),
    "only crowds": _random_images(4, crowd=1),
    "no crowds": _random_images(5, crowd=0),
    "no detections": [(truth, _EMPTY[1]) for truth, _ in _random_images(6)],
    "no objects": [(_EMPTY[0], found) for _, found in _random_images(7)],
    "nothing": [_EMPTY] * 3,
    "empty images": [_EMPTY, *_random_images(8, count=4), _EMPTY, _EMPTY, *_random_images(9, count=2)],
    "more than 100 detections": _random_images(10, count=3, detections=900, classes=2),
    "classes without objects": [
        (truth, {**found, "classes": found["classes"] % 3 + 4 * (found["classes"] == 3)})
        for truth, found in _random_images(11, classes=4)
    ],
    "boxes without area": [
        (truth, {**found, "boxes": found["boxes"] * np.float32([1, 1, i % 2, 1])})
        for i, (truth, found) in enumerate(_random_images(12))
    ],
}


class PycocotoolsTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(*_SETS)
    def test_equals_pycocotools(self, name):
        images = _SETS[name]
        numbers = _numbers(_updated(images))
        self.assertEqual([*numbers], NAMES)
        values = np.array([*numbers.values()])
        self.assertAllClose(values, _coco(images).stats, rtol=0, atol=1e-12)
        if name == "random":
            self.assertTrue(np.all((values > 0.05) & (values < 0.95)), values)

    def test_classes_equal_pycocotools(self):
        images = _SETS["random"]
        coco = _coco(images)
        found = _updated(images).per_class()
        precision, recall = coco.eval["precision"], coco.eval["recall"]
        classes = found["classes"].numpy()
        self.assertAllEqual(classes, np.unique(np.concatenate([truth["classes"] for truth, _ in images])))
        for k, label in enumerate(classes):
            for name, expected in (
                ("AP", precision[:, :, label, 0, 2]),
                ("AP75", precision[5, :, label, 0, 2]),
                ("AP_small", precision[:, :, label, 1, 2]),
                ("AR10", recall[:, label, 0, 1]),
            ):
                self.assertAllClose(found[name][k], expected.mean(), rtol=0, atol=1e-12)

    def test_options_equal_pycocotools(self):
        images, thresholds, limits = _SETS["random"], [0.3, 0.75], [2, 5]
        numbers = _numbers(_updated(images, iou_thresholds=thresholds, max_detections=limits, area_ranges={}))
        coco = _coco(images, iou_thresholds=thresholds, max_detections=limits)
        precision, recall = coco.eval["precision"][..., 0, 1], coco.eval["recall"][:, :, 0]
        expected = {"AP": precision, "AP75": precision[1], "AR2": recall[..., 0], "AR5": recall[..., 1]}
        self.assertEqual([*numbers], [*expected])
        for name, values in expected.items():
            self.assertAllClose(numbers[name], values[values > -1].mean(), rtol=0, atol=1e-12)

    def test_area_ranges(self):
        images = _SETS["random"]
        numbers = _numbers(_updated(images, area_ranges={"tiny": (0, 1024)}))
        self.assertEqual([*numbers], ["AP", "AP50", "AP75", "AP_tiny", "AR1", "AR10", "AR100", "AR_tiny"])
        self.assertAllClose(numbers["AP_tiny"], _coco(images).stats[3], rtol=0, atol=1e-12)


class StateTest(parameterized.TestCase, tf.test.TestCase):
    def test_batches_do_not_matter(self):
        for batch in (1, 12):
            self.assertEqual(_numbers(_updated(_SETS["random"], batch)), _numbers(_updated(_SETS["random"])))

    def test_merged_metrics_equal_one(self):
        images = _SETS["equal scores"]
        merged = _updated(images[:5])
        merged.merge_state([_updated(images[5:6]), _updated(images[6:]), tfo.metrics.MeanAveragePrecision("xywh")])
        self.assertEqual(_numbers(merged), _numbers(_updated(images)))

    def test_only_equal_metrics_merge(self):
        metric = tfo.metrics.MeanAveragePrecision()
        for other in (tfo.metrics.MeanAveragePrecision("yxyx"), keras.metrics.Mean()):
            with self.assertRaisesRegex(ValueError, r"contains .*, expected tfo.metrics.MeanAveragePrecision\("):
                metric.merge_state([other])

    def test_reset(self):
        metric = _updated(_SETS["random"])
        metric.reset_state()
        self.assertEqual(set(_numbers(metric).values()), {-1.0})
        truth, found = zip(*_SETS["few classes"], strict=True)
        metric.update_state(_padded(truth), _padded(found))
        self.assertEqual(_numbers(metric), _numbers(_updated(_SETS["few classes"])))

    def test_a_graph_of_unknown_shapes_grows(self):
        images = _SETS["empty images"]
        metric = tfo.metrics.MeanAveragePrecision("xywh")
        shape = [None, None]
        specs = {"boxes": tf.TensorSpec([*shape, 4]), "classes": tf.TensorSpec(shape, tf.int64)}
        truth_specs = {**specs, "is_crowd": tf.TensorSpec(shape, tf.bool), "area": tf.TensorSpec(None)}
        signature = [truth_specs, {**specs, "scores": tf.TensorSpec(shape)}]
        update = tf.function(metric.update_state, input_signature=signature)
        result = tf.function(metric.result)
        for truth, found in images:
            update(_padded([truth]), _padded([found]))
            self.assertEqual({name: float(value) for name, value in result().items()}, _numbers(metric))
        self.assertEqual(_numbers(metric), _numbers(_updated(images)))

    def test_evaluate_freq_leaves_out_numbers_in_graphs_only(self):
        images = _SETS["random"][:5]
        metric = tfo.metrics.MeanAveragePrecision("xywh", evaluate_freq=2)
        result = tf.function(metric.result)
        seen = []
        for truth, found in images:
            metric.update_state(_padded([truth]), _padded([found]))
            seen.append(float(result()["AP"]))
        exact = [_numbers(_updated(images[: i + 1]))["AP"] for i in range(5)]
        self.assertEqual(seen, [-1.0, exact[1], exact[1], exact[3], exact[3]])
        self.assertEqual(_numbers(metric)["AP"], exact[4])

    def test_dtype(self):
        metric = _updated(_SETS["random"], dtype="float32")
        self.assertEqual({value.dtype for value in metric.result().values()}, {tf.float32})
        self.assertEqual(metric.per_class()["AP"].dtype, tf.float32)

    def test_config(self):
        metric = tfo.metrics.MeanAveragePrecision(
            "yxyx", iou_thresholds=[0.5], max_detections=[7], area_ranges={"x": (0, 9)}, evaluate_freq=3, name="map"
        )
        copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
        self.assertEqual(copy.get_config(), metric.get_config())
        self.assertEqual(copy.area_ranges, {"x": (0.0, 9.0)})
        self.assertEqual([*copy.result()], [*metric.result()])

    @parameterized.product(is_inside=[False, True], is_graph=[False, True])
    def test_replicas_equal_one_metric(self, is_inside, is_graph):
        images = _SETS["equal scores"]
        one, parts = _updated(images), [_updated(images[:5]), _updated(images[5:])]
        strategy = _strategy()
        with strategy.scope() if is_inside else contextlib.nullcontext():
            metric = tfo.metrics.MeanAveragePrecision("xywh", evaluate_freq=2)

        def update(truth, found):
            metric.update_state(truth, found)
            return metric.result()

        def merge():
            metric.reset_state()
            metric.merge_state(iter(parts))
            numbers = metric.result(), metric.per_class()
            metric.reset_state()
            return numbers

        run_update, run_merge = (lambda *args, f=f: strategy.run(f, args) for f in (update, merge))
        if is_graph:
            run_update, run_merge = tf.function(run_update), tf.function(run_merge)
        data = tf.data.Dataset.from_tensor_slices(tuple(_padded(items) for items in zip(*images, strict=True)))
        # The last batch, of one image, leaves the second replica without any.
        batches = strategy.experimental_distribute_dataset(data.take(11).batch(5).concatenate(data.skip(11).batch(1)))

        def check(found, expected):
            for name, value in expected.items():
                for local in strategy.experimental_local_results(found[name]):
                    self.assertAllEqual(local, value)

        results = [run_update(*batch) for batch in batches]
        check(results[0], {"AP": -1} if is_graph else {})  # not due: a step is one update
        check(results[3], one.result())
        with strategy.scope():
            self.assertEqual(_numbers(metric), _numbers(one))
        numbers, classes = run_merge()
        check(numbers, one.result())
        check(classes, one.per_class())
        with strategy.scope():
            self.assertEqual(set(_numbers(metric).values()), {-1.0})
            metric.merge_state(parts)
            self.assertEqual(_numbers(metric), _numbers(one))

    def test_replicas_compute_a_result_once(self):
        metric, strategy = tfo.metrics.MeanAveragePrecision(), _strategy()
        graph = tf.function(lambda: strategy.run(metric.result)).get_concrete_function().graph
        self.assertEqual([op.type for op in graph.get_operations()].count("TensorflowOps>AveragePrecision"), 1)

    def test_one_replica_updates_in_an_inner_function(self):
        metric, strategy = tfo.metrics.MeanAveragePrecision(), tf.distribute.MirroredStrategy(["CPU:0"])
        update = tf.function(metric.update_state)
        step = tf.function(lambda: strategy.run(lambda: update(tf.zeros([1, 1, 5]), tf.zeros([1, 1, 6]))))
        step()
        self.assertAllEqual(metric.per_class()["classes"], [0])

    @parameterized.parameters(
        (tf.distribute.ParameterServerStrategy, 1), (tf.distribute.MultiWorkerMirroredStrategy, 2)
    )
    def test_other_strategies_are_refused(self, kind, replicas):
        strategy = mock.Mock(spec=kind, num_replicas_in_sync=replicas)
        text = rf"Precision does not collect updates under {kind.__name__}: .* merge them with merge_state\(\)"
        with mock.patch.object(tf.distribute, "get_strategy", return_value=strategy):
            with self.assertRaisesRegex(NotImplementedError, text):
                tfo.metrics.MeanAveragePrecision().update_state(tf.zeros([1, 1, 5]), tf.zeros([1, 1, 6]))

    def test_xla_is_refused(self):
        metric = tfo.metrics.MeanAveragePrecision()
        update = tf.function(metric.update_state, jit_compile=True)
        text = "XLA cannot compile tfo.metrics.MeanAverage.*jit_comp"
        with self.assertRaisesRegex(tf.errors.UnimplementedError, text):
            update(tf.zeros([1, 1, 5]), tf.zeros([1, 1, 6]))


class InputsTest(parameterized.TestCase, tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self._truth, self._found = (_padded(items) for items in zip(*_SETS["random"], strict=True))

    def _of(self, truth, found, box_format="xywh"):
        metric = tfo.metrics.MeanAveragePrecision(box_format)
        metric.update_state(truth, found)
        return _numbers(metric)

    def _expected(self):
        return self._of(self._truth, self._found)

    @parameterized.parameters("xyxy", "yxyx", "xywh", "center_xywh")
    def test_box_formats(self, box_format):
        def convert(boxes):
            x, y, w, h = np.moveaxis(np.float64(boxes), -1, 0)
            corners = {"xyxy": (x, y, x + w, y + h), "yxyx": (y, x, y + h, x + w)}
            return np.stack(
                {**corners, "xywh": (x, y, w, h), "center_xywh": (x + w / 2, y + h / 2, w, h)}[box_format], -1
            )

        converted = ({**item, "boxes": convert(item["boxes"])} for item in (self._truth, self._found))
        self.assertAllClose([*self._of(*converted, box_format).values()], [*self._expected().values()], atol=1e-12)

    def test_areas_are_those_of_boxes_and_no_object_is_a_crowd(self):
        truth = {key: self._truth[key] for key in ("boxes", "classes")}
        area = truth["boxes"][..., 2] * np.float64(truth["boxes"][..., 3])
        explicit = {**truth, "area": area, "is_crowd": np.zeros_like(self._truth["is_crowd"])}
        numbers = self._of(explicit, self._found)
        self.assertEqual(numbers, self._of(truth, self._found))
        self.assertNotEqual(numbers, self._expected())

    def test_ragged(self):
        def ragged(items):
            return {key: tf.ragged.stack([tf.constant(item[key]) for item in items]) for key in items[0]}

        truth, found = map(ragged, zip(*_SETS["random"], strict=True))
        for function in (lambda f: f, tf.function):
            metric = tfo.metrics.MeanAveragePrecision("xywh")
            function(metric.update_state)(truth, found)
            self.assertEqual(_numbers(metric), self._expected())

    def test_rows_of_ragged_fields(self):
        def ragged(items):
            return {key: tf.ragged.stack([tf.constant(item[key]) for item in items]) for key in items[0]}

        def eager(function):
            return function

        arguments = [*map(ragged, zip(*_SETS["random"][:3], strict=True))]
        for i, name in enumerate(("y_true", "y_pred")):
            for key in arguments[i].keys() - {"boxes"}:
                fields = arguments[i]
                value = fields[key]
                lengths = value.row_lengths().numpy()
                j = lengths.argmin()
                lengths[j] += 1 - 2 * (lengths[j] > 0)  # as wide as before
                flat = tf.concat([value.values, value.values], 0)[: lengths.sum()]
                other = tf.RaggedTensor.from_row_lengths(flat, lengths)
                for bad, error, text, function in (
                    (
                        other,
                        tf.errors.InvalidArgumentError,
                        f"number of {name}.*{key}.* is {lengths[j]}, .* that",
                        eager,
                    ),
                    (other, tf.errors.InvalidArgumentError, f"number of {name}.*{key}.* that of", tf.function),
                    (value[:2], ValueError, rf"{name}\['{key}'\]'s row lengths has shape \[2\], expected \[3\]", eager),
                    (value.to_tensor(), ValueError, f"{name}.*{key}.* is a dense tensor, expected a Ragged", eager),
                ):
                    both = [*arguments]
                    both[i] = fields | {key: bad}
                    metric = tfo.metrics.MeanAveragePrecision("xywh")
                    with self.subTest(text), self.assertRaisesRegex(error, text):
                        function(metric.update_state)(*both)
        truth, found = arguments
        dense = truth | {"boxes": truth["boxes"].to_tensor()}
        with self.assertRaisesRegex(
            ValueError, r"y_true.*is a RaggedTensor, expected a dense tensor, as y_true\['boxes"
        ):
            tfo.metrics.MeanAveragePrecision().update_state(dense, found)

    def test_unsigned_ragged_classes(self):
        boxes = tf.RaggedTensor.from_row_lengths(np.float32([[0, 0, 9, 9], [20, 0, 29, 9], [0, 0, 9, 9]]), [2, 1])
        truth = {"boxes": boxes, "classes": tf.RaggedTensor.from_row_lengths(np.uint8([1, 2, 1]), [2, 1])}
        metric = tfo.metrics.MeanAveragePrecision()
        metric.update_state(truth, truth | {"scores": tf.RaggedTensor.from_row_lengths([0.9, 0.8, 0.7], [2, 1])})
        self.assertAllEqual(metric.per_class()["classes"], [1, 2])
        self.assertEqual(metric.result()["AP"], 1)

    def test_other_libraries_names(self):
        names = {"classes": "labels", "is_crowd": "iscrowd"}
        truth = {names.get(key, key): value for key, value in self._truth.items()}
        found = {
            "boxes": self._found["boxes"],
            "class_ids": np.float32(self._found["classes"]),
            "confidence": self._found["scores"],
        }
        self.assertEqual(self._of(truth, found), self._expected())

    def test_packed(self):
        truth = {key: self._truth[key] for key in ("boxes", "classes")}
        self.assertEqual(self._of(_packed(truth), _packed(self._found)), self._of(truth, self._found))

    def test_result_of_multiclass_nms(self):
        rng = np.random.default_rng(0)
        boxes = np.float32(rng.uniform(0, 50, [2, 20, 4]))
        boxes[..., 2:] += boxes[..., :2]
        found = tfo.detection.multiclass_nms(boxes, np.float32(rng.random([2, 20, 3])), score_threshold=0.5)
        self.assertLess(int(tf.reduce_max(found.counts)), 100)  # there is padding
        truth = {"boxes": boxes[:, :9], "classes": np.tile(np.arange(9) % 3, [2, 1])}
        classes = np.where(found.indices < 0, -1, found.class_ids)
        numbers = self._of(truth, found, "xyxy")
        padded = {"boxes": found.boxes, "scores": found.scores, "classes": classes}
        self.assertEqual(numbers, self._of(truth, padded, "xyxy"))
        self.assertGreater(numbers["AP"], 0.1)

    def test_detections_of_a_class_without_objects_count_for_none(self):
        boxes = np.float32([[[0, 0, 9, 9], [20, 0, 29, 9]]])
        found = {"boxes": boxes, "classes": np.int32([[5, 3]]), "scores": np.float32([[0.5, 0.9]])}
        numbers = self._of({"boxes": boxes[:, :1], "classes": np.int32([[5]])}, found, "xyxy")
        self.assertEqual(numbers["AP"], 1)

    def test_values_that_are_not_finite(self):
        boxes = np.float32([[[0, 0, 9, 9], [np.nan, 0, 9, 9], [0, 0, np.inf, 9], [0, 0, 9, 9]]])
        classes = np.zeros([1, 4], np.int32)
        found = {"boxes": boxes, "classes": classes, "scores": np.float32([[np.nan, np.inf, 0.9, np.nan]])}
        numbers = self._of({"boxes": boxes[:, :1], "classes": classes[:, :1]}, found, "xyxy")
        # Right is the first detection of score NaN; before it, one is wrong, and one is larger than any range.
        self.assertAllClose(numbers["AP"], 1 / 2)

    def test_bad_options(self):
        for option, value, text in (
            ("box_format", "xxyy", "box_format is 'xxyy', expected one of 'xyxy'"),
            ("iou_thresholds", [], r"iou_thresholds is \[\], expected a sequence of numbers in \[0, 1\]"),
            ("iou_thresholds", [0.5, 2], r"iou_thresholds\[1\] is 2, expected numbers in \[0, 1\]"),
            ("max_detections", [10, 1], r"max_detections is \[10, 1\], expected rising ints"),
            ("max_detections", [1.5], r"max_detections is \[1.5\], expected rising ints"),
            ("max_detections", [0], r"max_detections\[0\] is 0, expected rising ints"),
            ("area_ranges", [1], r"area_ranges is \[1\], expected a dict"),
            ("area_ranges", {"a": (2, 1)}, r"area_ranges\['a'\] is \(2, 1\), expected \(least, greatest\)"),
            ("evaluate_freq", 0, "evaluate_freq is 0, expected an int"),
        ):
            with self.subTest(option, value=value), self.assertRaisesRegex(ValueError, text):
                tfo.metrics.MeanAveragePrecision(**{option: value})

    def test_bad_inputs(self):
        boxes, classes, scores = np.zeros([2, 3, 4]), np.zeros([2, 3]), np.zeros([2, 3])
        truth, found = {"boxes": boxes, "classes": classes}, {"boxes": boxes, "classes": classes, "scores": scores}
        for y_true, y_pred, text in (
            (None, found, "y_true is None, expected a tensor"),
            ({"boxes": boxes}, found, "y_true has 'boxes', expected also 'classes' or 'class_ids' or 'labels'"),
            (truth, truth, "y_pred has 'boxes', 'classes', expected also 'scores' or 'confidence'"),
            (truth | {"labels": classes}, found, "y_true has both 'classes' and 'labels'"),
            (truth | {"boxes": boxes[..., :3]}, found, r"y_true\['boxes'\] has shape \[2,3,3\], expected \[\?,\?,4\]"),
            (
                truth,
                found | {"scores": scores[:, :1]},
                r"y_pred\['scores'\] has shape \[2,1\], expected \[2,3\]: .*boxes",
            ),
            (truth, found | {"counts": [1]}, r"y_pred\['counts'\] has shape \[1\], expected \[2\]"),
            (
                truth,
                {key: value[:1] for key, value in found.items()},
                r"y_pred has shape \[1,3,4\], expected \[2,\?,4\]: as many images",
            ),
            (
                np.zeros([2, 3, 4]),
                found,
                r"y_true has shape \[2,3,4\], expected \[\?,\?,5\]: \[N, R, 5\]: box, classes",
            ),
            (truth, np.zeros([2, 3]), r"y_pred has shape \[2,3\], expected \[\?,\?,6\]"),
            ([truth], found, "y_true is a list of dicts, expected a dict"),
        ):
            with self.subTest(text), self.assertRaisesRegex(ValueError, text):
                tfo.metrics.MeanAveragePrecision().update_state(y_true, y_pred)
        with self.assertRaisesRegex(ValueError, "sample_weight is given"):
            tfo.metrics.MeanAveragePrecision().update_state(truth, found, np.ones(2))
        for y_true, y_pred, text in (
            (truth | {"classes": classes + 0.5}, found, r"y_true\['classes'\]\[0,0\] is 0.5, expected a whole number"),
            (np.full([2, 3, 5], 1.5), found, r"y_true\[0,0\] is 1.5, expected a whole number"),
            (truth, found | {"counts": [1.5, 1]}, r"y_pred\['counts'\]\[0\] is 1.5, expected a whole number"),
        ):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, text):
                tfo.metrics.MeanAveragePrecision().update_state(y_true, y_pred)


@keras.saving.register_keras_serializable(package="mean_average_precision_test")
def no_loss(y_true, y_pred):
    del y_true
    return tf.reduce_mean(y_pred, [1, 2]) * 0.0


class KerasTest(parameterized.TestCase, tf.test.TestCase):
    def setUp(self):
        super().setUp()
        truth, found = (_padded(items) for items in zip(*_SETS["no crowds"], strict=True))
        self._x = np.float32(_packed(found))
        self._y = np.float32(_packed({key: truth[key] for key in ("boxes", "classes")}))

    def _metric(self):
        return tfo.metrics.MeanAveragePrecision("xywh", evaluate_freq=2)

    def _expected(self, count=12):
        direct = self._metric()
        direct.update_state(self._y[:count], self._x[:count])
        return {"loss": 0.0} | _numbers(direct)

    def _compiled(self, metric, **options):
        inputs = keras.Input(self._x.shape[1:])
        model = keras.Model(inputs, keras.layers.Identity()(inputs))
        model.compile("sgd", no_loss, metrics=[metric], jit_compile=False, **options)
        return model

    def test_compiled_metric_and_saved(self):
        x, y, expected, model = self._x, self._y, self._expected(), self._compiled(self._metric())
        for _ in range(2):  # the second starts anew
            self.assertAllClose(model.evaluate(x, y, batch_size=5, verbose=0, return_dict=True), expected)
        history = model.fit(x, y, batch_size=5, epochs=2, verbose=0, shuffle=False, validation_data=(x, y)).history
        self.assertAllClose(history["AP"], [expected["AP"]] * 2)
        self.assertAllClose(history["val_AR_small"], [expected["AR_small"]] * 2)
        path = f"{self.get_temp_dir()}/compiled.keras"
        model.save(path)
        loaded = keras.saving.load_model(path)
        self.assertAllClose(loaded.evaluate(x, y, verbose=0, return_dict=True)["AP"], expected["AP"])

    @parameterized.parameters((True, 1), (False, 1), (True, 3))
    def test_replicas(self, is_inside, steps):
        x, y, expected = self._x[:11], self._y[:11], self._expected(11)
        metric = self._metric()
        with _strategy().scope():
            model = self._compiled(self._metric() if is_inside else metric, steps_per_execution=steps)
        for _ in range(2):
            self.assertEqual(model.evaluate(x, y, batch_size=2, verbose=0, return_dict=True), expected)
        history = model.fit(x, y, batch_size=10, epochs=2, verbose=0, shuffle=False, validation_data=(x, y)).history
        self.assertEqual(history, {p + name: [value] * 2 for p in ("", "val_") for name, value in expected.items()})

    def test_dicts_in_a_model_of_ones_own(self):
        class Detector(keras.Model):
            def __init__(self):
                super().__init__()
                self.metric = tfo.metrics.MeanAveragePrecision("xywh")

            def call(self, inputs):
                return {"boxes": inputs[..., :4], "classes": inputs[..., 4], "scores": inputs[..., 5]}

            def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
                return tf.reduce_mean(y_pred["boxes"]) * 0.0

            def compute_metrics(self, x, y, y_pred, sample_weight=None):
                self.metric.update_state(y, y_pred)
                return self.get_metrics_result()

        model = Detector()
        model.compile("sgd", jit_compile=False)
        truth = _padded([truth for truth, _ in _SETS["no crowds"]])
        del truth["area"]  # of the boxes, as for packed labels
        data = tf.data.Dataset.from_tensor_slices((self._x, truth)).batch(4)
        self.assertAllClose(model.evaluate(data, verbose=0, return_dict=True)["AP75"], self._expected()["AP75"])


if __name__ == "__main__":
    tf.test.main()
