"""The public function connected_components."""

from typing import Literal, NamedTuple, TypeAlias, get_args

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.image.python.ops import masks

tf.no_gradient("TensorflowOps>ConnectedComponents")

Connectivity: TypeAlias = Literal[4, 8]
_CONNECTIVITIES = get_args(Connectivity)


class ConnectedComponents(NamedTuple):
    """The components of images."""

    labels: tf.Tensor  # int32, of images' shape; 0 where images are zero, else 1 to the plane's count
    counts: tf.Tensor  # int32 [], [N] or [N, C]: the number of components of each plane


@autograph.op_function
def connected_components(
    images: TensorLike, *, connectivity: Connectivity = 4, name: str | None = None
) -> ConnectedComponents:
    """Labels the connected components of each plane.

    A plane is one channel of one image. A component is a maximal set of pixels of one
    non-zero value, in which each pixel is reached from each other one over neighbors of the
    set. Components are numbered from 1 in each plane, in the order of their first pixels, row
    by row.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> images = tf.constant([[7, 7, 0, 1], [0, 0, 1, 0], [2, 2, 2, 7]])
    >>> labels, count = tfo.image.connected_components(images)
    >>> labels.numpy(), count.numpy()
    (array([[1, 1, 0, 2],
           [0, 0, 3, 0],
           [4, 4, 4, 5]], dtype=int32), np.int32(5))
    >>> tfo.image.connected_components(images, connectivity=8).counts.numpy()
    np.int32(4)

    Differences from `connected_components` of TensorFlow Addons: it numbers the components of
    a batch in one sequence. For such numbers, add the previous counts:

        labels, counts = tfo.image.connected_components(images)     # [N, H, W]
        before = tf.cumsum(counts, exclusive=True)[:, tf.newaxis, tf.newaxis]
        labels = tf.where(labels > 0, labels + before, 0)

    Args:
      images: [H, W], [N, H, W] or [N, H, W, C]; bool or an integer. Fewer than 2^31 pixels
        in a plane. For floats, pass a comparison: images > 0.5.
      connectivity: 4: neighbors share an edge; 8: or a corner.
      name: name of the op.

    Returns:
      A `ConnectedComponents` of labels, of images' shape, and counts. No gradient.

    Raises:
      ValueError: images of another dtype or rank, another connectivity.
      InvalidArgumentError: the same errors, found at run time; too many pixels.
    """
    if not arguments.is_int(connectivity) or connectivity not in _CONNECTIVITIES:
        raise ValueError(f"connectivity is {connectivity!r}, expected 4 or 8")
    connectivity = int(connectivity)
    images = masks.images_tensor(
        images, masks.DISCRETE_DTYPES, "bool or an integer: compare floats first, as in images > 0.5"
    )
    return ConnectedComponents(*ops.tensorflow_ops_connected_components(images, connectivity=connectivity, name=name))
