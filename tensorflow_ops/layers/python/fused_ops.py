"""Replaces slow functions of Keras and keras-hub; lists the versions whose private functions are known."""

import collections
import contextlib
import functools
import sys
import threading
import warnings
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import NamedTuple, get_args

import keras
import numpy as np
import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph, library
from tensorflow_ops.detection.python.ops import assignment, roi_align
from tensorflow_ops.image.python.ops import warps
from tensorflow_ops.layers.python import quantized_layers
from tensorflow_ops.nn.python.ops import (
    attention,
    ctc_loss,
    deformable_attention,
    gru,
    lstm,
    recurrent,
    sequence_arguments,
    update_cache,
)

# The minors whose private functions are known. To add one, `pip install --no-deps --target FOLDER keras==3.MINOR.*`,
# and run attention_layers_test.py and fused_ops_test.py with FOLDER first in PYTHONPATH. From 3.16, Keras's backend has
# its functions in `ops`: _backend() knows both places.
_KERAS_MINORS = range(7, 16)
_HUB_MINORS = range(25, 33)


def check_keras():
    """Raises ImportError unless the private functions of the installed Keras are known."""
    major, minor = keras.__version__.split(".")[:2]
    first, last = _KERAS_MINORS[0], _KERAS_MINORS[-1]
    if major != "3" or int(minor) not in _KERAS_MINORS:
        raise ImportError(
            f"tfo.layers.use_fused_ops and attention in tfo.layers override private functions of Keras 3.{first} to "
            f'3.{last}, and Keras {keras.__version__} is installed. Either install one of these: pip install "keras>='
            f'3.{first},<3.{last + 1}", or a tensorflow-extra-ops that knows Keras {major}.{minor}.'
        )


def _hub_is_known():
    """Returns whether the imported keras-hub is a known minor; warns where it is not."""
    version = getattr(sys.modules.get("keras_hub"), "__version__", None)
    if version is None:
        return True
    major, minor = version.split(".")[:2]
    if major == "0" and int(minor) in _HUB_MINORS:
        return True
    warnings.warn(
        f"tfo.layers.use_fused_ops knows the private functions of keras-hub 0.{_HUB_MINORS[0]} to 0.{_HUB_MINORS[-1]}, "
        f"and {version} is imported: it replaces functions of Keras only.",
        RuntimeWarning,
        stacklevel=3,
    )
    return False


# Ours take the original and its arguments, and return NotImplemented where they do not fit.


def _dot_product_attention(
    original, query, key, value, bias=None, mask=None, scale=None, is_causal=False, flash_attention=None, **others
):
    del original, flash_attention, others
    query, key, value = map(tf.convert_to_tensor, (query, key, value))
    is_fused = (
        all(tensor.shape.rank == 4 and tensor.dtype == query.dtype for tensor in (query, key, value))
        and query.dtype in arguments.FLOAT_DTYPES
        and (scale is None or isinstance(scale, Real))
    )
    if not is_fused:
        return NotImplemented
    # Keras takes arrays of other dtypes.
    mask = None if mask is None else tf.cast(mask, tf.bool)
    bias = None if bias is None else tf.cast(bias, query.dtype)
    # It aligns the first query with the first key.
    return attention.attention(
        query, key, value, mask=mask, bias=bias, causal=bool(is_causal), query_offset=0, scale=scale
    )


# What tf.nn.ctc_loss takes for the logarithm of 0.
_CTC_INFINITY = -np.log(1e-307)


def _ctc_loss(original, target, output, target_length, output_length, mask_index=0):
    labels, logits = map(keras.ops.convert_to_tensor, (target, output))
    is_dense = isinstance(labels, tf.Tensor) and isinstance(logits, tf.Tensor)
    ranks = labels.shape.rank, logits.shape.rank
    if not is_dense or ranks != (2, 3) or not isinstance(mask_index, Integral) or mask_index < -1:
        return NotImplemented
    if logits.dtype not in arguments.FLOAT_DTYPES:
        logits = tf.cast(logits, keras.backend.result_type(logits.dtype, "float32"))
    labels, label_lengths, logit_lengths = (tf.cast(x, tf.int32) for x in (labels, target_length, output_length))
    width, (_, frames, classes) = tf.shape(labels)[1], tf.unstack(tf.shape(logits))
    is_label = (labels >= 0) & (labels < classes)
    is_label &= tf.not_equal(labels, sequence_arguments.blank_class(mask_index, logits))
    are_labels = tf.reduce_all(is_label | ~tf.sequence_mask(label_lengths, width))
    for lengths, end in ((label_lengths, width), (logit_lengths, frames)):
        are_labels &= tf.reduce_all((lengths >= 0) & (lengths <= end))

    def fused():
        loss = ctc_loss.ctc_loss(labels, logits, label_lengths, logit_lengths, blank_index=mask_index)
        # One example without a path must not end a training that Keras continues. Its gradient is 0.
        return tf.where(tf.math.is_inf(loss), tf.constant(_CTC_INFINITY, loss.dtype), loss)

    # Keras takes blanks, and numbers that are no class, for labels; ours refuses them.
    return tf.cond(are_labels, fused, lambda: original(target, output, target_length, output_length, mask_index))


def _slice_update(original, inputs, start_indices, updates):
    del original
    cache, rows = map(tf.convert_to_tensor, (inputs, updates))
    is_list = isinstance(start_indices, list | tuple)
    rank = cache.shape.rank
    if not is_list or rank is None or rows.shape.rank != rank or rows.dtype != cache.dtype:
        return NotImplemented

    def is_whole(axis):
        sizes = cache.shape[axis], rows.shape[axis]
        # A batch of unknown size is that of the updates.
        has_size = sizes[0] == sizes[1] and (axis == 0 or sizes[0] is not None)
        return has_size and arguments.static_value(start_indices[axis]) == 0

    axes = [axis for axis in range(rank) if not is_whole(axis)]
    if len(axes) != 1 or not (cache.dtype.is_bool or cache.dtype.is_floating or cache.dtype.is_integer):
        return NotImplemented
    (axis,) = axes
    static = cache.shape
    shape, count = tf.shape(cache), tf.shape(rows)[axis]
    start = tf.convert_to_tensor(start_indices[axis])
    # As Keras, it clamps.
    start = tf.clip_by_value(start, 0, tf.cast(shape[axis] - count, start.dtype))
    if axis != 1:
        outer, inner = (tf.reduce_prod(sizes) for sizes in (shape[:axis], shape[axis + 1 :]))
        cache, rows = (tf.reshape(x, [outer, size, inner]) for x, size in ((cache, shape[axis]), (rows, count)))
    result = update_cache.update_cache(cache, rows, start)
    return tf.ensure_shape(result if axis == 1 else tf.reshape(result, shape), static)


def _recurrent_layer(function, original, layer, sequences, initial_state, mask, training=False, **options):
    """Serves `inner_loop` of LSTM and GRU; function(inputs, *weights, ...) returns outputs and states."""
    del original
    names = {getattr(keras.activations, name): name for name in get_args(recurrent.Activation)}
    activations = [names.get(of) for of in (layer.activation, layer.recurrent_activation)]
    mask = mask[0] if isinstance(mask, list | tuple) else mask
    fits = None not in activations and sequences.shape.rank == 3 and (mask is None or mask.shape.rank == 2)
    # Unrolled, Keras masks the outputs of a layer that goes backward by other steps. cuDNN is faster than ours.
    if layer.unroll or layer.use_cudnn is True or tf.config.list_logical_devices("GPU"):
        return NotImplemented
    inputs = tf.convert_to_tensor(sequences)
    if not fits or layer.recurrent_dropout or inputs.dtype not in arguments.FLOAT_DTYPES:
        return NotImplemented
    if training and layer.dropout:
        kept = layer.cell.get_dropout_mask(inputs[:, 0])
        if isinstance(kept, list):  # of each gate: implementation=1
            return NotImplemented
        inputs *= kept[:, tf.newaxis]
    mask = None if mask is None else tf.cast(mask, tf.bool)
    cell = layer.cell
    weights = (x if x is None else tf.convert_to_tensor(x) for x in (cell.kernel, cell.recurrent_kernel, cell.bias))
    outputs, *states = function(
        inputs,
        *weights,
        initial_state=initial_state,
        mask=mask,
        activation=activations[0],
        recurrent_activation=activations[1],
        reverse=layer.go_backwards,
        **options,
    )
    if layer.zero_output_for_mask and mask is not None:
        is_step = tf.reverse(mask, [1]) if layer.go_backwards else mask
        outputs = tf.where(is_step[..., tf.newaxis], outputs, tf.zeros([], outputs.dtype))
    last = outputs[:, -1]
    outputs = outputs if layer.return_sequences else last[:, tf.newaxis]
    return last, outputs, [tf.cast(x, outputs.dtype) for x in states]


_lstm = functools.partial(_recurrent_layer, lstm.lstm)


def _gru(original, layer, sequences, initial_state, *args, **kwargs):
    (state,) = tf.nest.flatten(initial_state)
    options = kwargs | {"reset_after": layer.reset_after}
    return _recurrent_layer(gru.gru, original, layer, sequences, state, *args, **options)


_SCIPY_MODES = {"constant": "grid-constant", "wrap": "grid-wrap"}


def _warp_options(order, fill_mode, fill_value):
    """Returns options of map_coordinates, or None where it has none for Keras's."""
    options = {"order": order, "fill_mode": _SCIPY_MODES.get(fill_mode, fill_mode), "fill_value": fill_value}
    is_keras = fill_mode in ("constant", "nearest", "wrap", "mirror", "reflect")
    try:
        return options if is_keras and warps.attributes(**options) else None
    except ValueError:
        return None


def _map_coordinates(original, inputs, coordinates, order, fill_mode="constant", fill_value=0.0):
    del original
    image, places = map(tf.convert_to_tensor, (inputs, coordinates))
    options = _warp_options(order, fill_mode, fill_value)
    is_of_planes = image.shape.rank == 2 and (places.shape.rank or 0) >= 2 and places.shape[0] == 2
    is_integer = image.dtype.is_integer
    has_kernel = places.dtype in arguments.FLOAT_DTYPES and (is_integer or image.dtype in arguments.FLOAT_DTYPES)
    if options is None or not is_of_planes or not has_kernel or (is_integer and fill_value % 1):
        return NotImplemented
    # Keras computes in the places' dtype.
    is_cast = is_integer or places.dtype == tf.float64
    images = tf.cast(image, arguments.at_least_float32(places.dtype) if is_cast else image.dtype)
    samples = warps.map_coordinates(
        images[tf.newaxis, ..., tf.newaxis], tf.stack(tf.unstack(places), -1)[tf.newaxis], **options
    )[0, ..., 0]
    return tf.cast(tf.round(samples) if is_integer else samples, image.dtype)


def _elastic_transform(
    original,
    images,
    alpha=20.0,
    sigma=5.0,
    interpolation="bilinear",
    fill_mode="reflect",
    fill_value=0.0,
    seed=None,
    data_format=None,
):
    del original
    from keras.src.random.seed_generator import draw_seed  # private: after check_keras

    images = tf.convert_to_tensor(images)
    dtype, rank = images.dtype, images.shape.rank
    options = _warp_options({"nearest": 0, "bilinear": 1}.get(interpolation), fill_mode, fill_value)
    if options is None or rank not in (3, 4) or dtype not in arguments.FLOAT_DTYPES:
        return NotImplemented
    has_channels_first = (data_format or keras.config.image_data_format()) == "channels_first"
    images = images if rank == 4 else images[tf.newaxis]
    images = tf.transpose(images, [0, 2, 3, 1]) if has_channels_first else images
    wide = arguments.at_least_float32(dtype)
    alpha, sigma = (keras.ops.convert_to_tensor(number, wide) for number in (alpha, sigma))
    # Keras draws both axes from one seed.
    noise = tf.random.stateless_normal(tf.shape(images)[:3], draw_seed(seed), dtype=dtype)
    moved = warps.displaced(images, tf.cast(noise, wide)[tf.newaxis], alpha, sigma, warps.attributes(**options))
    moved = tf.transpose(moved, [0, 3, 1, 2]) if has_channels_first else moved
    return moved if rank == 4 else moved[0]


def _multi_scale_deformable_attention(
    original,
    value,
    dynamic_spatial_shapes,
    sampling_locations,
    attention_weights,
    num_points,
    slice_sizes,
    spatial_shapes,
    num_levels,
    num_queries,
    method="default",
):
    del original, dynamic_spatial_shapes, slice_sizes, num_queries
    is_known = spatial_shapes is not None and len(spatial_shapes) == num_levels
    value, locations, weights = map(tf.convert_to_tensor, (value, sampling_locations, attention_weights))
    if method != "default" or not is_known or locations.shape.rank != 5 or value.dtype not in arguments.FLOAT_DTYPES:
        return NotImplemented
    return deformable_attention.multiscale_deformable_attention(
        value, spatial_shapes, locations, weights, num_points=list(num_points)
    )


def _roi_align(original, feature_maps, rois, output_size, height, width, hidden_dim, spatial_scale=1.0, aligned=False):
    del original, height, width, hidden_dim
    features, rois = map(tf.convert_to_tensor, (feature_maps, rois))
    if features.dtype not in arguments.FLOAT_DTYPES:
        return NotImplemented
    return roi_align.roi_align(
        features,
        tf.cast(rois[:, 1:], tf.float32),
        tf.cast(rois[:, 0], tf.int32),
        output_size,
        spatial_scale=spatial_scale,
        aligned=aligned,
    )


def _hungarian_assignment(original, cost_matrix, num_queries):
    del original
    costs = tf.convert_to_tensor(cost_matrix)
    fits = costs.shape.rank == 2 and costs.shape[0] in (None, num_queries)
    if not fits or costs.dtype not in arguments.FLOAT_DTYPES:
        return NotImplemented
    # Columns of 1e9 are padding.
    columns = assignment.linear_sum_assignment(tf.where(costs < 1e9, costs, np.inf)).columns
    return tf.range(num_queries), tf.maximum(columns, 0), columns >= 0


def _is_available():
    """Replaces the conditions of keras-hub."""
    return True


class _Row(NamedTuple):
    """A function to replace. `op` is its public name; `owner`, a module or class, holds it or its instances do."""

    op: str
    owner: str
    name: str
    function: Callable


# Modules of keras-hub whose fused branch computes what the composed one does. Qwen's ignores the sliding window.
_HUB_ATTENTION = (
    "gemma.gemma_attention",
    "gemma3.gemma3_attention",
    "gemma4.gemma4_attention",
    "gpt_neo_x.gpt_neo_x_attention",
    "llama.llama_attention",
    "mistral.mistral_attention",
    "mixtral.mixtral_attention",
    "phi3.phi3_attention",
    "smollm3.smollm3_layers",
    "stable_diffusion_3.mmdit",
)
# The conditions of the fused branch, which these modules import by name. Gemma's and Mixtral's refuse CPUs.
_HUB_CONDITIONS = ("fused_attention_op_available", "running_on_gpu", "gpu_supports_fused_attention_op")

# Owners are in keras.src.backend, or in keras_hub.src.models. The page `keras` has this table, with conditions.
_KERAS_ROWS = (
    _Row("ctc_loss", "nn", "ctc_loss", _ctc_loss),
    _Row("dot_product_attention", "nn", "dot_product_attention", _dot_product_attention),
    _Row("slice_update", "core", "slice_update", _slice_update),
    _Row("map_coordinates", "image", "map_coordinates", _map_coordinates),
    _Row("elastic_transform", "image", "elastic_transform", _elastic_transform),
)
_HUB_ROWS = (
    _Row(
        "multi_scale_deformable_attention_v2",
        "d_fine.d_fine_attention:DFineMultiscaleDeformableAttention",
        "ms_deformable_attn_core",
        _multi_scale_deformable_attention,
    ),
    _Row("hungarian_assignment", "d_fine.d_fine_loss", "hungarian_assignment", _hungarian_assignment),
    _Row("roi_align", "sam3.sam3_geometry_encoder", "roi_align", _roi_align),
    *(
        _Row("dot_product_attention", module, name, _is_available)
        for module in _HUB_ATTENTION
        for name in _HUB_CONDITIONS
    ),
)
# Owners are in keras.layers.
_LAYER_ROWS = (
    _Row("lstm", "LSTM", "inner_loop", _lstm),
    _Row("gru", "GRU", "inner_loop", _gru),
    *(
        _Row("quantized_matmul", layer, f"_{mode}_call", method(mode))
        for layer, method, modes in (
            ("Dense", quantized_layers.dense, ("int8", "int4", "gptq", "awq")),
            ("EinsumDense", quantized_layers.einsum_dense, ("int8", "int4", "gptq", "awq")),
            ("ReversibleEmbedding", quantized_layers.reversible_embedding, ("int8", "int4")),
        )
        for mode in modes
    ),
)
_OPS = tuple(dict.fromkeys(row.op for row in _KERAS_ROWS + _LAYER_ROWS + _HUB_ROWS))


class _OfInstances:
    """Shows a function in place of the one that instances hold. It is on as long as the class has it."""

    def __init__(self, row):
        self._row = row

    def __get__(self, instance, owner):
        name = self._row.name
        if name not in vars(instance):  # Keras asks before it sets one
            raise AttributeError(name)
        return _replacement(self._row, vars(instance)[name])

    def __set__(self, instance, value):
        vars(instance)[self._row.name] = value


_lock = threading.RLock()
_switches = {}  # the number of open switches and the function that undoes the replacement, by row
_calls = collections.defaultdict(lambda: {"fused": 0, "original": 0})


def _replacement(row, original):
    """Returns the function that calls ours, and the original where ours does not fit."""
    if row.function is _is_available:
        return _is_available

    @autograph.marked
    @functools.wraps(original)
    def call(*args, **kwargs):
        can_compile = library.supports_xla() or not library.is_compiled_by_xla()
        result = row.function(original, *args, **kwargs) if can_compile else NotImplemented
        is_fused = result is not NotImplemented
        with _lock:
            _calls[row.op]["fused" if is_fused else "original"] += 1
        return result if is_fused else original(*args, **kwargs)

    return call


def _backend():
    from keras.src import backend  # private: after check_keras

    return getattr(backend, "ops", backend)


def _owner(row):
    """Returns the module or class that holds a function, or None where it is not imported or has none."""
    module, _, kind = row.owner.partition(":")
    if row in _LAYER_ROWS:
        owner = getattr(keras.layers, module, None)
    elif row in _KERAS_ROWS:
        owner = getattr(_backend(), module, None)
    else:
        owner = sys.modules.get(f"keras_hub.src.models.{module}")
    if kind:
        return getattr(owner, kind, None)
    return owner if hasattr(owner, row.name) else None


def _replace(row, owner):
    """Replaces a function. Returns the function that undoes it."""
    if ":" in row.owner:
        setattr(owner, row.name, _OfInstances(row))
        return functools.partial(delattr, owner, row.name)
    original = getattr(owner, row.name)
    setattr(owner, row.name, _replacement(row, original))
    return functools.partial(setattr, owner, row.name, original)


def _turn_on(row, owner):
    with _lock:
        if not _switches:
            _calls.clear()
        _calls[row.op]  # 0 calls
        count, undo = _switches.get(row) or (0, _replace(row, owner))
        _switches[row] = count + 1, undo


def _turn_off(row):
    with _lock:
        count, undo = _switches.pop(row)
        if count > 1:
            _switches[row] = count - 1, undo
        else:
            undo()


@autograph.marked
def use_fused_ops(only: Iterable[str] | None = None) -> contextlib.ExitStack:
    """Makes unmodified models of Keras and keras-hub call the ops of this package: a switch and a context manager.

    Replaces private functions of the libraries, such as the one behind `keras.losses.CTC`, by
    ones that call ours, or the original where ours does not fit. Models, what they compute,
    and what they save stay the same, and files load without this package.

    >>> import keras, numpy as np, tensorflow_ops as tfo
    >>> labels = np.array([[1, 2, 2, 0], [3, 0, 0, 0]])
    >>> logits = np.random.default_rng(0).normal(size=[2, 50, 4]).astype(np.float32)
    >>> expected = keras.losses.CTC()(labels, logits)
    >>> with tfo.layers.use_fused_ops():
    ...     fused = keras.losses.CTC()(labels, logits)
    >>> np.allclose(fused, expected, rtol=1e-4)
    True
    >>> tfo.layers.fused_ops()["ctc_loss"]
    {'fused': 1, 'original': 0}

    The page `keras` has the table of functions, and where results differ. Without `with`, the
    switch stays on until `close()` of the result is called. It is on in all threads: a function
    is replaced as long as any switch that names it is open. A traced function keeps what it was
    traced with: turn the switch on before `fit` and `predict`, or compile the model again.
    Import `keras_hub` first: functions of modules that are not imported stay as they are.

    Args:
      only: names of functions: "ctc_loss", "dot_product_attention", "slice_update",
        "map_coordinates", "elastic_transform", "lstm", "gru", "quantized_matmul",
        "multi_scale_deformable_attention_v2", "hungarian_assignment", "roi_align". None: all.

    Returns:
      The context manager.

    Raises:
      ImportError: the installed Keras is a minor release whose private functions are unknown.
      ValueError: a name that is not in the table, whose module is not imported, or that the
        installed Keras does not have; Keras's backend is not TensorFlow.
    """
    names = _OPS if only is None else (only,) if isinstance(only, str) else tuple(only)
    unknown = [name for name in names if name not in _OPS]
    if unknown or isinstance(only, str):
        raise ValueError(f"only is {only!r}, expected None or a list of names among {', '.join(_OPS)}")
    check_keras()
    if keras.backend.backend() != "tensorflow":
        raise ValueError(f"Keras's backend is {keras.backend.backend()!r}, expected 'tensorflow'")
    known = _KERAS_ROWS + _LAYER_ROWS + (_HUB_ROWS if _hub_is_known() else ())
    rows = [row for row in known if row.op in names]
    owners = {row: owner for row in rows if (owner := _owner(row)) is not None}
    absent = set(names) - {row.op for row in owners}
    if only is not None and absent:
        name = min(absent)
        if name in {row.op for row in _KERAS_ROWS + _LAYER_ROWS}:
            raise ValueError(f"only names {name!r}, which Keras {keras.__version__} does not have")
        raise ValueError(f"only names {name!r} of keras_hub, which is not imported: import keras_hub first")
    with contextlib.ExitStack() as switch:
        for row, owner in owners.items():
            _turn_on(row, owner)
            switch.callback(_turn_off, row)
        return switch.pop_all()


@autograph.marked
def fused_ops() -> dict[str, dict[str, int]]:
    """Returns how many calls `use_fused_ops` served: by our op ("fused"), and by the original.

    >>> import keras, numpy as np, tensorflow_ops as tfo
    >>> x = np.ones([1, 5, 2, 4], np.float32)
    >>> with tfo.layers.use_fused_ops(["dot_product_attention"]):
    ...     y = keras.ops.dot_product_attention(x, x, x)
    ...     y = keras.ops.dot_product_attention(x, x, x, scale=keras.ops.array(0.5))
    >>> tfo.layers.fused_ops()
    {'dot_product_attention': {'fused': 1, 'original': 1}}

    Returns:
      Calls by the name of each function that is replaced, since the first of the switches that
      are open, or last were. A call in a graph counts once, when it is traced: 0 calls during
      `fit` mean that the model calls another function, or was traced before.
    """
    with _lock:
        return {name: dict(calls) for name, calls in _calls.items()}
