"""Many calls of a plan in one, as tf.vectorized_map and jacobians make them.

`stacked` has a tuple for each vectorized_map around the call, the outermost first: for
each flat array, whether it has an axis of that map's iterations. An array's axes of
iterations stand before its own, in the maps' order.
"""

import numpy as np

from tensorflow_ops.prototyping.python import results


def run(plan, arrays, stacked):
    """Calls a plan for all iterations; returns its flat results with all axes of iterations."""
    sizes = _sizes([array.shape for array in arrays], stacked)
    if plan.stage.vmap == "batched":
        return plan.run([_on_all(array, i, stacked, sizes) for i, array in enumerate(arrays)], sizes)
    calls = [
        plan.run([_at(array, i, stacked, index) for i, array in enumerate(arrays)]) for index in np.ndindex(*sizes)
    ]
    shapes = [array.shape[_axes(i, stacked) :] for i, array in enumerate(arrays)]
    stacks = []
    for place, declared in enumerate(plan.declared(tuple(shapes))):
        of_calls = [results_of_call[place] for results_of_call in calls]
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
    """(the arrays' own shapes as tuples or None, sizes of the axes of iterations or None), from tf.TensorShapes."""
    known = [None if shape.rank is None else tuple(shape.as_list()) for shape in shapes]
    own = [None if shape is None else shape[_axes(i, stacked) :] for i, shape in enumerate(known)]
    return own, list(_sizes(known, stacked))


def _axes(place, stacked):
    """How many axes of iterations an array has."""
    return sum(level[place] for level in stacked)


def _sizes(shapes, stacked):
    """The number of iterations of each map; None where no shape tells."""
    sizes = []
    for depth, level in enumerate(stacked):
        found = None
        for place, has_axis in enumerate(level):
            if has_axis and shapes[place] is not None and found is None:
                found = shapes[place][_axes(place, stacked[:depth])]
        sizes.append(found)
    return tuple(sizes)


def _on_all(array, place, stacked, sizes):
    """The array with all axes of iterations, without a copy."""
    own = array.shape[_axes(place, stacked) :]
    lead = tuple(size if level[place] else 1 for size, level in zip(sizes, stacked, strict=True))
    return np.broadcast_to(array.reshape(lead + own), sizes + own)


def _at(array, place, stacked, index):
    """The array of one iteration."""
    mine = tuple(i for i, level in zip(index, stacked, strict=True) if level[place])
    return array[(*mine, ...)]
