"""Functions of keras-hub's models for detection."""

import numpy as np
import tensorflow as tf

from tensorflow_ops.core.python import arguments
from tensorflow_ops.detection.python.ops import assignment
from tensorflow_ops.detection.python.ops.roi_align import roi_align as fused_roi_align
from tensorflow_ops.layers.python.switch.served import Original, served
from tensorflow_ops.nn.python.ops import deformable_attention


@served(
    "multi_scale_deformable_attention_v2",
    "keras_hub.d_fine.d_fine_attention:DFineMultiscaleDeformableAttention",
    "ms_deformable_attn_core",
)
def multi_scale_deformable_attention(
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
    if method != "default":
        return Original(f'decoder_method="{method}"')
    if not is_known or locations.shape.rank != 5:
        return Original("unknown shapes")
    if value.dtype not in arguments.FLOAT_DTYPES:
        return Original(f"{value.dtype.name} values")
    return deformable_attention.multiscale_deformable_attention(
        value, spatial_shapes, locations, weights, num_points=list(num_points)
    )


@served("roi_align", "keras_hub.sam3.sam3_geometry_encoder")
def roi_align(original, feature_maps, rois, output_size, height, width, hidden_dim, spatial_scale=1.0, aligned=False):
    del original, height, width, hidden_dim
    features, rois = map(tf.convert_to_tensor, (feature_maps, rois))
    if features.dtype not in arguments.FLOAT_DTYPES:
        return Original(f"{features.dtype.name} features")
    return fused_roi_align(
        features,
        tf.cast(rois[:, 1:], tf.float32),
        tf.cast(rois[:, 0], tf.int32),  # fits: the original casts, too
        output_size,
        spatial_scale=spatial_scale,
        aligned=aligned,
    )


@served("hungarian_assignment", "keras_hub.d_fine.d_fine_loss")
def hungarian_assignment(original, cost_matrix, num_queries):
    del original
    costs = tf.convert_to_tensor(cost_matrix)
    if costs.shape.rank != 2 or costs.shape[0] not in (None, num_queries):
        return Original("costs that are not [num_queries, ...]")
    if costs.dtype not in arguments.FLOAT_DTYPES:
        return Original(f"{costs.dtype.name} costs")
    # Columns of 1e9 are padding.
    columns = assignment.linear_sum_assignment(tf.where(costs < 1e9, costs, np.inf)).columns
    return tf.range(num_queries), tf.maximum(columns, 0), columns >= 0
