"""The region pooling ops' peers as calls to time, and their results to compare.

Each function returns an `ours.Candidate`, or None if the peer has no such op.
"""

import numpy as np
import ours
import tensorflow as tf


def torchvision(torch, ops, op, attrs, inputs):
    """Returns torchvision's op: float32, NCHW. It has no max mode."""
    if attrs.get("mode") == "max":
        return None
    case, first = inputs.case, inputs.case.levels[0]
    maps = [torch.from_numpy(ours.nchw(array)).requires_grad_() for array in inputs.maps]
    boxes = torch.from_numpy(inputs.boxes)
    rois = torch.cat([torch.zeros(case.boxes, 1), boxes], 1)
    upstream = torch.from_numpy(ours.nchw(inputs.d_output))
    if op == "multiscale_roi_align":
        names = [str(level.stride) for level in case.levels]
        pooler = ops.MultiScaleRoIAlign(names, case.bins, attrs["sampling_ratio"])
        image = (first.height * first.stride, first.width * first.stride)
        by_name = dict(zip(names, maps, strict=True))

        def pool():
            return pooler(by_name, [boxes], [image])
    else:
        # torchvision uses the same names. It has no channel_order; its order is channel_major.
        own_attrs = {key: value for key, value in attrs.items() if key != "channel_order"}

        def pool():
            return getattr(ops, op)(maps[0], rois, case.bins, 1 / first.stride, **own_attrs)

    pooled = pool()

    def forward():
        with torch.no_grad():
            return pool()

    def backward(of=pooled):
        return torch.autograd.grad(of, maps, upstream, retain_graph=of is pooled)

    return ours.Candidate(
        {"forward": forward, "backward": backward, "forward+backward": lambda: backward(of=pool())},
        output=lambda: ours.nhwc(pooled.detach().numpy()),
        d_features=lambda: [ours.nhwc(gradient.numpy()) for gradient in backward()],
    )


def crop_and_resize(op, attrs, inputs):
    """Returns tf.image.crop_and_resize at the samples of a RoIAlign, without the pooling: float32, NHWC.

    Returns None for samples that it does not support.
    """
    if op != "roi_align" or attrs["sampling_ratio"] == 0:
        return None
    case, ratio, [level] = inputs.case, attrs["sampling_ratio"], inputs.case.levels
    samples = ratio * case.bins
    image = tf.constant(inputs.maps[0])
    corners = inputs.boxes.astype(np.float64).reshape(-1, 2, 2)[:, :, ::-1] / level.stride - 0.5
    half_step = (corners[:, 1] - corners[:, 0]) / samples / 2
    ends = np.concatenate([corners[:, 0] + half_step, corners[:, 1] - half_step], 1)
    boxes = tf.constant(ends / (2 * [level.height - 1, level.width - 1]), tf.float32)
    indices, crop_size = tf.zeros([case.boxes], tf.int32), tf.constant([samples, samples])
    upstream = tf.constant(inputs.d_output.repeat(ratio, 1).repeat(ratio, 2) / ratio**2)
    shape = tf.shape(image)
    is_max = attrs.get("mode") == "max"

    def forward():
        return tf.raw_ops.CropAndResize(image=image, boxes=boxes, box_ind=indices, crop_size=crop_size)

    def backward():
        return tf.raw_ops.CropAndResizeGradImage(
            grads=upstream, boxes=boxes, box_ind=indices, image_size=shape, T=tf.float32
        )

    def box_gradient():
        return tf.raw_ops.CropAndResizeGradBoxes(grads=upstream, image=image, boxes=boxes, box_ind=indices)

    def output():
        pool = tf.nn.max_pool2d if is_max else tf.nn.avg_pool2d
        return pool(forward(), ratio, ratio, "VALID").numpy()

    if is_max:  # its gradient goes to one sample per bin, which is a different problem
        return ours.Candidate({"forward": forward}, output, d_features=None)
    passes = ours.both_passes(forward, backward) | {"box gradient": box_gradient}
    # An eager tape computes both gradients even if it watches one input.
    passes["tape gradient"] = lambda: (backward(), box_gradient())
    return ours.Candidate(passes, output, lambda: [backward().numpy()])


def composed(raw, op, attrs, inputs):
    """Returns multiscale_roi_align composed of roi_align on each level's boxes: float32, NHWC."""
    if op != "multiscale_roi_align":
        return None
    given = ours.Arguments(op, attrs, inputs, tf.float32, "NHWC")
    common = {key: value for key, value in given.attrs.items() if key != "strides"}
    scales = [1 / level.stride for level in inputs.case.levels]
    finest = np.log2(16 / inputs.case.levels[0].stride)  # number of levels below that of boxes of 224 pixels

    def split(boxes):
        sides = tf.sqrt((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]))
        level = tf.floor(finest + tf.math.log(sides / 224) / np.log(2) + 1e-6)
        level = tf.clip_by_value(tf.cast(level, tf.int32), 0, len(scales) - 1)
        return [tf.cast(tf.where(level == i)[:, 0], tf.int32) for i in range(len(scales))]

    @tf.function
    def forward(maps, boxes, box_indices):
        places = split(boxes)
        pooled = [
            raw.tensorflow_ops_roi_align(
                features=features,
                boxes=tf.gather(boxes, at),
                box_indices=tf.gather(box_indices, at),
                spatial_scale=scale,
                **given.output_size,
                **common,
            )
            for features, scale, at in zip(maps, scales, places, strict=True)
        ]
        return tf.dynamic_stitch(places, pooled)

    @tf.function
    def backward(d_output, shapes, boxes, box_indices):
        return [
            raw.tensorflow_ops_roi_align_grad(
                d_output=tf.gather(d_output, at),
                boxes=tf.gather(boxes, at),
                box_indices=tf.gather(box_indices, at),
                features_shape=shape,
                spatial_scale=scale,
                **common,
            )
            for shape, scale, at in zip(shapes, scales, split(boxes), strict=True)
        ]

    shapes = given.features_shape["features_shapes"]
    passes = ours.both_passes(
        lambda: forward(given.maps, **given.boxes), lambda: backward(given.d_output, shapes, **given.boxes)
    )
    return ours.Candidate(
        passes,
        output=lambda: passes["forward"]().numpy(),
        d_features=lambda: [gradient.numpy() for gradient in passes["backward"]()],
    )
