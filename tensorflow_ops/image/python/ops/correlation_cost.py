"""The public function correlation_cost, its gradients and its vectorization."""

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph, axes, pfor
from tensorflow_ops.core.python.axes import DataFormat
from tensorflow_ops.core.python.gradients import call, is_needed
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike

_MAX_OPTION = 2**20  # kMaxCorrelationOption of the kernels
_LEAST = {"max_displacement": 0, "kernel_size": 1, "stride_1": 1, "stride_2": 1, "padding": 0}


def check_options(data_format, **options):
    """Returns the options but data_format, by name, as Python values of attrs and layer configs. Raises ValueError."""
    arguments.one_of("data_format", data_format, axes.DATA_FORMATS)
    checked = {}
    for name, value in options.items():
        odd = " and odd" if name == "kernel_size" else ""
        if not (arguments.is_int(value) and _LEAST[name] <= value <= _MAX_OPTION and (not odd or value % 2)):
            raise ValueError(f"{name} is {value!r}, expected an int in [{_LEAST[name]}, {_MAX_OPTION}]{odd}")
        checked[name] = int(value)
    return checked


@autograph.op_function
def correlation_cost(
    features_a: TensorLike,
    features_b: TensorLike,
    *,
    max_displacement: int,
    kernel_size: int = 1,
    stride_1: int = 1,
    stride_2: int = 1,
    padding: int = 0,
    data_format: DataFormat = "NHWC",
    name: str | None = None,
) -> tf.Tensor:
    """Correlates each pixel of one feature map with the pixels around it in another: FlowNet's cost volume.

    Equation 1 of FlowNet (arXiv:1504.06852), as a mean. With r = max_displacement // stride_2,
    b = max_displacement + (kernel_size - 1) / 2, dy and dx from -r to r:

        costs[y, x, (dy + r) (2 r + 1) + dx + r] = mean over c and j, i in the window of
            a[y1 + j, x1 + i, c] * b[y1 + dy stride_2 + j, x1 + dx stride_2 + i, c]
        y1 = y stride_1 - padding + b,  x1 = x stride_1 - padding + b

    Pixels outside the map count as 0. With padding = b and stride_1 = 1 the
    costs have the height and width of the maps.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> a = tf.constant([1.0, 2.0, 3.0])[tf.newaxis, tf.newaxis, :, tf.newaxis]
    >>> b = tf.constant([0.0, 1.0, 2.0])[tf.newaxis, tf.newaxis, :, tf.newaxis]
    >>> costs = tfo.image.correlation_cost(a, b, max_displacement=1, padding=1)
    >>> costs.shape
    TensorShape([1, 1, 3, 9])
    >>> costs[0, 0, :, 3:6].numpy()    # dy = 0; dx = -1, 0, 1
    array([[0., 0., 1.],
           [0., 2., 4.],
           [3., 6., 0.]], dtype=float32)

    Args:
      features_a: [N, H, W, C], or [N, C, H, W] with data_format="NCHW"; float16, bfloat16,
        float32 or float64.
      features_b: of features_a's shape and dtype.
      max_displacement: in pixels, at least 0.
      kernel_size: the side of the window that is compared; odd.
      stride_1: the step between windows in features_a.
      stride_2: the step between displacements.
      padding: pixels of zeros around both maps.
      data_format: "NHWC" or "NCHW". NCHW is transposed to NHWC and back, and errors name the
        transposed shapes.
      name: name of the op.

    Returns:
      [N, H', W', (2 r + 1)^2], or [N, (2 r + 1)^2, H', W'], with
      H' = ceil((H + 2 padding - 2 b) / stride_1), likewise W'; features' dtype. Sums are float32
      (float64 for float64). Differentiable in both maps, to any order; gradients have the
      same bits for any number of threads.

    Raises:
      ValueError: a bad option, shapes that differ, maps too small for max_displacement.
      InvalidArgumentError: the same of shapes, found at run time.
    """
    features_a = arguments.float_tensor("features_a", features_a)
    features_b = arguments.float_tensor("features_b", features_b)
    if features_a.dtype != features_b.dtype:
        raise ValueError(f"features_b are {features_b.dtype.name}, expected features_a's {features_a.dtype.name}")
    options = check_options(
        data_format,
        max_displacement=max_displacement,
        kernel_size=kernel_size,
        stride_1=stride_1,
        stride_2=stride_2,
        padding=padding,
    )
    features_a = axes.to_channels_last("features_a", features_a, data_format)
    features_b = axes.to_channels_last("features_b", features_b, data_format)
    costs = ops.tensorflow_ops_correlation_cost(features_a, features_b, **options, name=name)
    return axes.from_channels_last(costs, data_format)


@tf.RegisterGradient("TensorflowOps>CorrelationCost")
def _correlation_cost_grad(op, d_costs):
    features_a, features_b = op.inputs
    return [
        call(ops.tensorflow_ops_correlation_cost_grad, op, d_costs, other, to_b=to_b)
        if is_needed(op, int(to_b))
        else None
        for to_b, other in ((False, features_b), (True, features_a))
    ]


@tf.RegisterGradient("TensorflowOps>CorrelationCostGrad")
def _correlation_cost_grad_grad(op, dd_gradient):
    """The gradient is linear in d_costs and in the other map."""
    d_costs, other = op.inputs
    to_b = op.get_attr("to_b")
    dd_costs = d_other = None
    if is_needed(op, 0):
        maps = (other, dd_gradient) if to_b else (dd_gradient, other)
        dd_costs = call(ops.tensorflow_ops_correlation_cost, op, *maps)
    if is_needed(op, 1):
        d_other = call(ops.tensorflow_ops_correlation_cost_grad, op, d_costs, dd_gradient, to_b=not to_b)
    return dd_costs, d_other


for _name in ("CorrelationCost", "CorrelationCostGrad"):
    pfor.register(f"TensorflowOps>{_name}")(pfor.convert_folded)
