"""Runs a plan for all iterations of tf.vectorized_map and jacobians in one call.

`stacked` has a tuple for each vectorized_map around the call, the outermost first: for
each flat array, whether it has an axis of that map's iterations. An array's axes of
iterations come before its own axes, in the maps' order.
"""

import numpy as np

from tensorflow_ops.prototyping.python import results


def run(plan, arrays, stacked):
    """Calls a plan for all iterations; returns its flat results with all axes of iterations."""
    sizes = _sizes([array.shape for array in arrays], stacked)
    if plan.stage.vmap == "batched":
        return plan.run([_broadcast(array, i, stacked, sizes) for i, array in enumerate(arrays)], sizes)
    calls = [
        plan.run([_at(array, i, stacked, index) for i, array in enumerate(arrays)]) for index in np.ndindex(*sizes)
    ]
    shapes = [array.shape[_num_axes(i, stacked) :] for i, array in enumerate(arrays)]
    stacks = []
    for k, declared in enumerate(plan.declared(tuple(shapes))):
        of_calls = [results_of_call[k] for results_of_call in calls]
        if not of_calls:
            shape = tuple(size or 0 for size in declared.shape or ())
            stacks.append(np.zeros(sizes + shape, declared.numpy_dtype))
            continue
        if len({array.shape for array in of_calls}) > 1:
            found = sorted({array.shape for array in of_calls})
            results.fail(f"{plan.stage.name}: {declared.name} differs in shape between calls: {found}, expected one")
        stacks.append(np.stack(of_calls).reshape(sizes + of_calls[0].shape))
    return stacks


def static_shapes(shapes, stacked):
    """Splits tf.TensorShapes into (own shapes as tuples or None, sizes of the axes of iterations or None)."""
    known = [None if shape.rank is None else tuple(shape.as_list()) for shape in shapes]
    own = [None if shape is None else shape[_num_axes(i, stacked) :] for i, shape in enumerate(known)]
    return own, list(_sizes(known, stacked))


def _num_axes(i, stacked):
    """Returns the number of axes of iterations of array i."""
    return sum(level[i] for level in stacked)


def _sizes(shapes, stacked):
    """Returns the number of iterations of each map; None if no shape has it."""
    sizes = []
    for depth, level in enumerate(stacked):
        found = None
        for i, has_axis in enumerate(level):
            if has_axis and shapes[i] is not None and found is None:
                found = shapes[i][_num_axes(i, stacked[:depth])]
        sizes.append(found)
    return tuple(sizes)


def _broadcast(array, i, stacked, sizes):
    """Returns array i with all axes of iterations, without a copy."""
    own = array.shape[_num_axes(i, stacked) :]
    lead = tuple(size if level[i] else 1 for size, level in zip(sizes, stacked, strict=True))
    return np.broadcast_to(array.reshape(lead + own), sizes + own)


def _at(array, i, stacked, index):
    """Returns array i of one iteration."""
    own_index = tuple(k for k, level in zip(index, stacked, strict=True) if level[i])
    return array[(*own_index, ...)]
