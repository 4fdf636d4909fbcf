"""COCO's average precision as a Keras metric."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph, keras3
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.metrics.python.ops import box_sets, growing_rows, metric_arguments

for _name in ("MatchDetections", "AveragePrecision"):
    tf.no_gradient(f"TensorflowOps>{_name}")

# COCO's, by its own formulas: other roundings would be other thresholds.
_IOU_THRESHOLDS = tuple(np.linspace(0.5, 0.95, 10).tolist())
_RECALL_THRESHOLDS = np.linspace(0.0, 1.0, 101)
_MAX_AREA = 1e5**2
_AREA_RANGES = {"small": (0, 32**2), "medium": (32**2, 96**2), "large": (96**2, _MAX_AREA)}


def _numbers(name, values, expected, fits):
    """Returns a tuple of floats, at least one. Raises ValueError."""
    if not isinstance(values, Sequence | np.ndarray) or isinstance(values, str) or not len(values):
        raise ValueError(f"{name} is {values!r}, expected a sequence of {expected}")
    return tuple(arguments.static_number(f"{name}[{i}]", v, expected, fits) for i, v in enumerate(values))


def _ranges(values):
    """Returns {name: (least, greatest)} of floats. Raises ValueError."""
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise ValueError(f"area_ranges is {values!r}, expected a dict of names and (least, greatest) areas")
    ranges = {}
    for name, ends in values.items():
        ranges[name] = _numbers(f"area_ranges[{name!r}]", ends, "a finite number", lambda v: True)
        if len(ranges[name]) != 2 or ranges[name][0] > ranges[name][1]:
            raise ValueError(f"area_ranges[{name!r}] is {ends!r}, expected (least, greatest) areas")
    return ranges


def _mean_of_classes(values):
    """Returns the means [M] of values [M, K] over the classes that have objects, -1 without one."""
    has_objects = values > -1
    classes = tf.reduce_sum(tf.cast(has_objects, values.dtype), 1)
    total = tf.reduce_sum(tf.where(has_objects, values, 0), 1)
    return tf.where(classes > 0, total / tf.maximum(classes, 1), -1)


def _call_once(function, *args):
    """Calls a function on the CPU. Replicas make one call, whose args are `PerReplica`."""

    @autograph.marked
    def call(strategy, *args):
        del strategy
        with tf.device("CPU:0"):
            return function(*args)

    context = tf.distribute.get_replica_context()
    # One replica needs no merge_call, which fails in a tf.cond or an inner tf.function.
    is_single = context is None or context.num_replicas_in_sync == 1
    return call(None, *args) if is_single else context.merge_call(call, args)


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class MeanAveragePrecision(keras3.Metric):
    """COCO's average precision and recall of detections.

    The 12 numbers of `pycocotools.cocoeval.COCOeval.summarize`, as a dict: "AP", "AP50",
    "AP75", "AP_small", "AP_medium", "AP_large", "AR1", "AR10", "AR100", "AR_small",
    "AR_medium", "AR_large". A number is -1 if no object counts for it.

    >>> import numpy as np, tensorflow_ops as tfo
    >>> metric = tfo.metrics.MeanAveragePrecision()
    >>> truth = {"boxes": np.array([[[0, 0, 10, 10], [20, 20, 60, 60]]]), "classes": np.array([[3, 5]])}
    >>> found = {
    ...     "boxes": np.array([[[0.0, 0, 10, 8], [20, 20, 60, 60], [0, 0, 0, 0]]]),
    ...     "classes": np.array([[3, 5, -1]]),
    ...     "scores": np.array([[0.9, 0.8, 0]]),
    ... }
    >>> metric.update_state(truth, found)
    >>> {name: round(float(value), 3) for name, value in metric.result().items()}    # doctest: +ELLIPSIS
    {'AP': 0.85, 'AP50': 1.0, 'AP75': 1.0, 'AP_small': 0.7, 'AP_medium': 1.0, 'AP_large': -1.0, 'AR1': 0.85, ...
    >>> metric.per_class()["classes"].numpy(), metric.per_class()["AP"].numpy().round(3)
    (array([3, 5]), array([0.7, 1. ]))

    `update_state(y_true, y_pred)` takes dicts of N images:

    - y_true: "boxes" [N, G, 4]; "classes" (or "labels", "class_ids") [N, G]; optionally
      "is_crowd", and "area", by default width times height, [N, G].
    - y_pred: "boxes" [N, D, 4]; "classes" [N, D]; "scores" (or "confidence") [N, D];
      optionally "counts" (or "num_detections") [N]: how many of D are detections. The
      result of `tfo.detection.multiclass_nms` is such a y_pred.

    Negative classes are padding. All but counts may be RaggedTensors, if all of a dict are,
    with rows of the same lengths. Where Keras passes only
    tensors, as for `compile(metrics=[...])`, y_true may be [N, G, 5], box and class, and
    y_pred [N, D, 6]: box, class, score.

    Images count in the order in which they come: of equal scores the first, as in
    pycocotools with rising image ids. Boxes that are not finite overlap nothing; NaN
    scores come last.

    Keras calls `result` after each batch, which sorts all detections so far. In a
    tf.function, `evaluate_freq` makes all but each n-th call return the last numbers; the
    final numbers of `fit` and `evaluate` do not depend on it. XLA cannot compile
    the metric: pass jit_compile=False to `compile`.

    Under MirroredStrategy, the replicas share one state: the images of the first replica
    come first in each update, and `result` is that of all replicas.

    Args:
      box_format: "xyxy", "yxyx", "xywh" (x, y of the top left corner) or "center_xywh", in
        pixels.
      iou_thresholds: numbers in [0, 1]. None: 0.5, 0.55, ..., 0.95. "AP50" and "AP75"
        exist if 0.5 and 0.75 are among them.
      max_detections: rising ints: the limits of detections of a class in an image for
        AR; the greatest holds for all other numbers.
      area_ranges: {name: (least, greatest area)} of objects for "AP_NAME" and "AR_NAME".
        None: COCO's small, medium and large. {}: none.
      evaluate_freq: an int, at least 1.
      name: name of the metric.
      dtype: dtype of the results.

    Raises:
      ValueError: an option, a shape or a dict that is not as above; weights.
      tf.errors.InvalidArgumentError: rows of other lengths than those of boxes; classes that
        are not whole numbers.
      NotImplementedError: under ParameterServerStrategy, or several replicas of another
        strategy than MirroredStrategy: update a metric on each part of the data, and
        merge them with `merge_state`.
      tf.errors.UnimplementedError: compiled by XLA.
    """

    def __init__(
        self,
        box_format: Literal["xyxy", "yxyx", "xywh", "center_xywh"] = "xyxy",
        *,
        iou_thresholds: Sequence[float] | None = None,
        max_detections: Sequence[int] = (1, 10, 100),
        area_ranges: Mapping[str, tuple[float, float]] | None = None,
        evaluate_freq: int = 1,
        name: str = "mean_average_precision",
        dtype: Any = "float64",
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self.box_format = arguments.one_of("box_format", box_format, box_sets.BOX_FORMATS)
        thresholds = _IOU_THRESHOLDS if iou_thresholds is None else iou_thresholds
        self.iou_thresholds = _numbers("iou_thresholds", thresholds, "numbers in [0, 1]", lambda v: 0 <= v <= 1)
        limits = _numbers("max_detections", max_detections, "rising ints, at least 1", lambda v: 1 <= v <= 2**31 - 1)
        if any(limit % 1 for limit in limits) or sorted({*limits}) != [*limits]:
            raise ValueError(f"max_detections is {max_detections!r}, expected rising ints, at least 1")
        self.max_detections = tuple(map(int, limits))
        # A tuple: Keras would wrap a dict.
        self._ranges = tuple(_ranges(_AREA_RANGES if area_ranges is None else area_ranges).items())
        self.evaluate_freq = arguments.static_int("evaluate_freq", evaluate_freq, 1)
        settings = [1 + len(self._ranges), len(self.iou_thresholds)]
        self._detections = growing_rows.GrowingRows(
            scores=(tf.float64, []), classes=(tf.int64, []), ranks=(tf.int32, []), outcomes=(tf.uint8, settings)
        )
        self._objects = growing_rows.GrowingRows(classes=(tf.int64, []), counts=(tf.bool, settings[:1]))
        nothing = -np.ones(len(self._slices()))
        self._updates, self._last = growing_rows.cpu_variables(
            lambda: (tf.Variable(0, dtype=tf.int64, trainable=False), tf.Variable(nothing, trainable=False))
        )

    @property
    def area_ranges(self) -> dict[str, tuple[float, float]]:
        """The ranges of areas by name."""
        return dict(self._ranges)

    @autograph.ordered
    def update_state(self, y_true: Any, y_pred: Any, sample_weight: None = None) -> None:
        """Adds images; the class describes the arguments."""
        metric_arguments.check_update(self, sample_weight, tf.distribute.MirroredStrategy)
        with tf.device("CPU:0"):
            truth = box_sets.read("y_true", y_true, self.box_format, ("boxes", "classes"), ("classes",))
            found = box_sets.read(
                "y_pred", y_pred, self.box_format, ("boxes", "classes", "scores"), ("classes", "scores")
            )
            images = [truth.boxes.shape[0], None, 4]
            boxes = arguments.with_shape("y_pred", found.boxes, images, "as many images as y_true has")
            scores, area, is_crowd = found.values["scores"], truth.values["area"], truth.values["is_crowd"]
            outcomes, ranks, counts = ops.tensorflow_ops_match_detections(
                boxes=boxes,
                scores=scores,
                classes=found.classes,
                true_boxes=truth.boxes,
                true_classes=truth.classes,
                true_areas=truth.boxes[..., 2] * truth.boxes[..., 3] if area is None else area,
                is_crowd=tf.zeros_like(truth.classes, tf.bool) if is_crowd is None else is_crowd,
                iou_thresholds=tf.constant(self.iou_thresholds, tf.float64),
                area_ranges=tf.constant([(0, _MAX_AREA), *self.area_ranges.values()], tf.float64),
                max_detections=self.max_detections[-1],
            )
            ranked, objects = tf.where(ranks >= 0), tf.where(truth.classes >= 0)
            columns = {"scores": scores, "classes": found.classes, "ranks": ranks, "outcomes": outcomes}
            rows = (
                {name: tf.gather_nd(column, ranked) for name, column in columns.items()},
                {"classes": tf.gather_nd(truth.classes, objects), "counts": tf.gather_nd(counts, objects)},
            )
        _call_once(self._append, *rows)

    @autograph.marked
    def merge_state(self, metrics: Iterable["MeanAveragePrecision"]) -> None:
        """Adds the images of other metrics of the same options, behind its own."""
        options = self._options()

        def merge():
            for other in metrics:
                if not isinstance(other, MeanAveragePrecision) or other._options() != options:
                    text = f"tfo.metrics.MeanAveragePrecision({options})"
                    raise ValueError(f"metrics contains {other!r}, expected {text}")
                self._append(other._detections.rows(), other._objects.rows())

        _call_once(merge)

    @autograph.marked
    def reset_state(self) -> None:
        """Removes all images."""

        def reset():
            self._detections.clear()
            self._objects.clear()
            self._updates.assign(0)
            self._last.assign(-tf.ones_like(self._last))

        _call_once(reset)

    @autograph.marked
    def result(self) -> dict[str, tf.Tensor]:
        """Returns the numbers by name: scalars of the metric's dtype."""

        def values():
            classes = self._per_class()
            means = _mean_of_classes(tf.stack([classes[name] for name in self._slices()]))
            return self._last.assign(means).read_value()

        def numbers():
            if tf.executing_eagerly() or self.evaluate_freq == 1:
                last = values()
            else:
                is_due = tf.equal(self._updates % self.evaluate_freq, 0)
                last = tf.cond(is_due, values, self._last.read_value)
            return tf.unstack(tf.cast(last, self.dtype))

        return dict(zip(self._slices(), _call_once(numbers), strict=True))

    @autograph.marked
    def per_class(self) -> dict[str, tf.Tensor]:
        """Returns the numbers of each of K classes, [K], and "classes", int64 [K]: those with objects, rising."""
        numbers = _call_once(self._per_class)
        return {name: value if name == "classes" else tf.cast(value, self.dtype) for name, value in numbers.items()}

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), **self._options(), "evaluate_freq": self.evaluate_freq}

    def _append(self, detections, objects):
        """Appends rows, those of replicas in the order of the replicas."""
        local_results = tf.distribute.get_strategy().experimental_local_results
        for table, rows in (self._detections, detections), (self._objects, objects):
            table.append(**{name: tf.concat(local_results(column), 0) for name, column in rows.items()})
        self._updates.assign_add(1)

    def _options(self):
        names = ("box_format", "iou_thresholds", "max_detections", "area_ranges")
        return {name: getattr(self, name) for name in names}

    def _slices(self):
        """Returns {name of a number: (whether it is a recall, index of its range, of its threshold or limit)}."""
        precisions = {"AP": (False, 0, slice(None))}
        for threshold in (0.5, 0.75):
            for t, given in enumerate(self.iou_thresholds):
                if math.isclose(threshold, given):
                    precisions[f"AP{threshold * 100:.0f}"] = (False, 0, slice(t, t + 1))
        recalls = {f"AR{limit}": (True, 0, m) for m, limit in enumerate(self.max_detections)}
        for a, name in enumerate(self.area_ranges, 1):
            precisions[f"AP_{name}"] = (False, a, slice(None))
            recalls[f"AR_{name}"] = (True, a, -1)
        return precisions | recalls

    def _per_class(self):
        """Returns what `per_class` does, as float64."""
        detections, objects = self._detections.rows(), self._objects.rows()
        classes = tf.sort(tf.unique(objects["classes"]).y)
        object_counts = tf.math.unsorted_segment_sum(
            # fits: counts of an op
            tf.cast(objects["counts"], tf.int64),
            tf.searchsorted(classes, objects["classes"]),
            tf.size(classes),
        )
        indices = tf.searchsorted(classes, detections["classes"])
        found = tf.gather(tf.pad(classes, [[0, 1]], constant_values=-1), indices)
        is_known = tf.equal(found, detections["classes"])
        precision, recall = ops.tensorflow_ops_average_precision(
            scores=detections["scores"],
            class_indices=tf.where(is_known, indices, -1),
            ranks=detections["ranks"],
            outcomes=detections["outcomes"],
            object_counts=object_counts,
            max_detections=tf.constant(self.max_detections),
            recall_thresholds=tf.constant(_RECALL_THRESHOLDS, tf.float64),
        )
        numbers = {"classes": classes}
        for name, (is_recall, a, index) in self._slices().items():
            numbers[name] = tf.reduce_mean(recall[:, a, index] if is_recall else precision[:, a, index], -1)
        return numbers
