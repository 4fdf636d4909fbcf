"""roi_pool against torchvision's CPU op, on the sizes of real detectors.

python -m benchmarks.detection.roi_pool      # from the repository's root
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from benchmarks import harness, peers

# name: images' features (H, W, C), boxes, bins, stride
SIZES = {
    "FPN stride 4": (200, 304, 256, 1000, 7, 4),
    "FPN stride 8": (100, 152, 256, 1000, 7, 8),
    "FPN stride 16": (50, 76, 256, 1000, 7, 16),
    "FPN stride 32": (25, 38, 256, 1000, 7, 32),
    "mask head": (200, 304, 256, 100, 14, 4),
    "R-FCN": (38, 63, 1029, 300, 7, 16),
}


def random_boxes(count, height, width, seed=0):
    """Boxes with sides of 32 to 512 pixels, log-uniform, inside of the image."""
    random = np.random.default_rng(seed)
    sides = np.exp(random.uniform(np.log(32), np.log(512), [count, 2]))
    sides = np.minimum(sides, [width - 1, height - 1])
    corner = random.uniform(0, 1, [count, 2]) * ([width - 1, height - 1] - sides)
    return np.concatenate([corner, corner + sides], 1).astype(np.float32)


def main():
    """Prints one table."""
    tf.config.threading.set_intra_op_parallelism_threads(harness.THREADS)
    import tensorflow_ops as tfo

    torch, ops = peers.torchvision_ops()
    if torch is None:
        print(ops)
    else:
        torch.set_num_threads(harness.THREADS)
    rates = harness.memory_rates()
    print(f"{harness.THREADS} threads; memory reads {rates.read / 1e9:.1f} GB/s, writes {rates.write / 1e9:.1f} GB/s\n")

    rows = []
    wanted = os.environ.get("CASE")
    for name, (height, width, channels, count, bins, stride) in SIZES.items():
        if wanted and name != wanted:
            continue
        values = np.random.default_rng(1).standard_normal([1, height, width, channels], np.float32)
        boxes = random_boxes(count, height * stride, width * stride)
        indices = np.zeros(count, np.int32)
        for dtype, data_format in (("float32", "NHWC"), ("float32", "NCHW"), ("bfloat16", "NHWC"), ("float16", "NHWC")):
            features = tf.cast(values if data_format == "NHWC" else np.moveaxis(values, 3, 1).copy(), dtype)

            @tf.function
            def infer(x, b, i, bins=bins, stride=stride, data_format=data_format):
                return tfo.detection.roi_pool(x, b, i, bins, spatial_scale=1 / stride, data_format=data_format)

            box_tensor, index_tensor = tf.constant(boxes), tf.constant(indices)
            with tf.GradientTape() as tape:
                tape.watch(features)
                pooled = tfo.detection.roi_pool(
                    features, box_tensor, index_tensor, bins, spatial_scale=1 / stride, data_format=data_format
                )
            upstream = tf.ones_like(pooled)
            attrs = {"spatial_scale": 1 / stride, "data_format": data_format, "box_format": "xyxy"}
            from tensorflow_ops.core.python.library import ops as raw

            forward = raw.tensorflow_ops_roi_pool(
                features=features, boxes=box_tensor, box_indices=index_tensor, output_size=[bins, bins], **attrs
            )
            size = tf.constant([bins, bins])
            shape = tf.shape(features, out_type=tf.int64)

            def forward_call(x=features, b=box_tensor, i=index_tensor, size=size, attrs=attrs):
                raw.tensorflow_ops_roi_pool(features=x, boxes=b, box_indices=i, output_size=size, **attrs)

            def backward_call(d=upstream, a=forward[1], b=box_tensor, i=index_tensor, shape=shape, attrs=attrs):
                raw.tensorflow_ops_roi_pool_grad(
                    d_output=d, argmax=a, boxes=b, box_indices=i, features_shape=shape, **attrs
                )

            candidates = {
                "infer": lambda x=features, b=box_tensor, i=index_tensor, f=infer: f(x, b, i),
                "forward": forward_call,
                "backward": backward_call,
            }
            if torch is not None and dtype == "float32" and data_format == "NCHW":
                x = torch.from_numpy(features.numpy()).requires_grad_()
                rois = torch.from_numpy(np.concatenate([indices[:, None], boxes], 1).astype(np.float32))
                y = ops.roi_pool(x, rois, bins, 1 / stride)
                ones = torch.ones_like(y)
                ours = pooled.numpy()
                same = (ours == y.detach().numpy()).mean()
                print(f"{name}: {100 * same:.3f}% of the values equal torchvision's")

                def peer_forward(x=x, rois=rois, bins=bins, stride=stride):
                    with torch.no_grad():
                        ops.roi_pool(x, rois, bins, 1 / stride)

                candidates["peer forward"] = peer_forward
                candidates["peer backward"] = lambda y=y, x=x, ones=ones: torch.autograd.grad(
                    y, x, ones, retain_graph=True
                )
            seconds = harness.interleave(candidates)
            if "peer forward" in seconds:
                peer = seconds
            elif data_format == "NHWC" and dtype == "float32":
                peer = None
            bytes_features, bytes_pooled = features.numpy().nbytes, pooled.numpy().nbytes
            bytes_argmax = 4 * int(np.prod(pooled.shape))
            floors = {
                "infer": rates.floor(bytes_features, bytes_pooled),
                "forward": rates.floor(bytes_features, bytes_pooled + bytes_argmax),
                "backward": rates.floor(bytes_pooled + bytes_argmax, bytes_features),
            }
            for what, floor in floors.items():
                rows.append(
                    {
                        "case": name,
                        "dtype": dtype,
                        "layout": data_format,
                        "pass": what,
                        "ms": f"{1e3 * seconds[what]:.1f}",
                        "x floor": f"{seconds[what] / floor:.2f}",
                        "seconds": seconds[what],
                    }
                )
        if torch is not None:
            for row in rows:
                if row["case"] == name:
                    peer_pass = "peer backward" if row["pass"] == "backward" else "peer forward"
                    row["torchvision ms"] = f"{1e3 * peer[peer_pass]:.0f}"
                    row["x torchvision"] = f"{peer[peer_pass] / row['seconds']:.1f}"
    print()
    harness.table(rows, ["case", "dtype", "layout", "pass", "ms", "x floor", "torchvision ms", "x torchvision"])


if __name__ == "__main__":
    main()
