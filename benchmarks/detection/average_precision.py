"""COCO's average precision, compared with pycocotools, if it is installed. 2 min."""

import contextlib
import importlib.util
import io

import numpy as np
from harness import Case, table

import tensorflow_ops as tfo

CLASSES, OBJECTS, DETECTIONS = 80, 8, 100


def make_images(count):
    """Returns the objects and the detections of images as arrays [count, R, ...]; boxes as x, y, width, height."""
    rng = np.random.default_rng(0)
    boxes = rng.uniform(0, 400, [count, OBJECTS, 4]) * [1, 1, 0.5, 0.5] + [0, 0, 4, 4]
    classes = rng.integers(0, CLASSES, [count, OBJECTS])
    chosen = rng.integers(0, OBJECTS, [count, DETECTIONS])
    near = np.take_along_axis(boxes, chosen[..., None], 1)
    found = {
        "boxes": near * rng.normal(1, 0.05, near.shape),
        "classes": np.where(
            rng.random(chosen.shape) < 0.7,
            np.take_along_axis(classes, chosen, 1),
            rng.integers(0, CLASSES, chosen.shape),
        ),
        "scores": rng.random(chosen.shape),
    }
    return {"boxes": boxes, "classes": classes}, found


def pycocotools(truth, found):
    """Returns a call of pycocotools, with its indices of the images ready."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    def annotations(values):
        for image, (boxes, classes) in enumerate(zip(values["boxes"], values["classes"], strict=True)):
            for i, (box, label) in enumerate(zip(boxes.tolist(), classes.tolist(), strict=True)):
                area = {"area": box[2] * box[3], "iscrowd": 0, "bbox": box}
                score = {"score": float(values["scores"][image, i])} if "scores" in values else {}
                yield {"image_id": image, "category_id": label, **area, **score}

    def coco(values):
        result = COCO()
        result.dataset = {
            "images": [{"id": i} for i in range(len(truth["boxes"]))],
            "annotations": [{"id": i, **one} for i, one in enumerate(annotations(values), 1)],
            "categories": [{"id": i} for i in range(CLASSES)],
        }
        result.createIndex()
        return result

    with contextlib.redirect_stdout(io.StringIO()):
        sets = coco(truth), coco(found)

    def call():
        with contextlib.redirect_stdout(io.StringIO()):
            evaluation = COCOeval(*sets, "bbox")
            evaluation.evaluate()
            evaluation.accumulate()
            evaluation.summarize()
        return evaluation.stats

    return call


@table()
def cases():
    """Images of 8 objects and 100 detections of 80 classes, in batches of eager calls; `result` once, at the end."""
    for count, batch in ((100, 20), (1000, 20), (1000, 100)):
        truth, found = make_images(count)

        def ours(truth=truth, found=found, count=count, batch=batch):
            metric = tfo.metrics.MeanAveragePrecision("xywh")
            for start in range(0, count, batch):
                metric.update_state(*({k: v[start : start + batch] for k, v in x.items()} for x in (truth, found)))
            return metric.result()

        has_peer = importlib.util.find_spec("pycocotools")
        yield Case(
            {"images": count, "batch": batch},
            ours,
            {"pycocotools": pycocotools(truth, found)} if has_peer else {},
            arrays={"ours": lambda result: np.array([*result.values()]), "pycocotools": np.asarray},
        )
