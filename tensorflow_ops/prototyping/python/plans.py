"""Plans: a python_op, or its gradient, for given dtypes and attributes."""

import itertools

import numpy as np
import tensorflow as tf

from tensorflow_ops.prototyping.python import nests, results, stages

_MAX_CACHED_SHAPES = 256  # per plan, with their declared results


def _has_gradient(dtype):
    return dtype.is_floating or dtype.is_complex


def _spread(values, present):
    """Inserts None for values that are not present."""
    if all(present):
        return tuple(values)
    values = iter(values)
    return tuple(next(values) if here else None for here in present)


class Plan:
    """A stage for inputs of given dtypes and for given attributes.

    A plan takes a flat list of arrays or tensors: the inputs; then, for a gradient, the
    context of the call that it differentiates, which has no gradient. A slot is an argument
    or a result of the NumPy function; a slot for a gradient that does not exist is not
    present: the function sees None.

    Attributes:
      stage: the Stage.
      key: hashable, equal for equal plans; None if attributes have no key.
      attributes: dict.
      array_dtypes: tf.DType of each flat array.
      inputs_present, outputs_present: for each slot, whether it is present.
      differentiable: for each input slot.
      input_names: of each input slot.
      num_inputs, num_outputs: numbers of flat ones; outputs without saved values.
      outputs_differentiable: for each flat output.
      result_dtypes: of each flat result: outputs, then saved values.
    """

    def __init__(self, stage, key, attributes, array_dtypes):
        self.stage = stage
        self.key = key
        self.attributes = attributes
        self.array_dtypes = array_dtypes
        self._gradient_plan = None
        self._known = {}

    def declared(self, shapes):
        """Returns a Declared for each flat result, for the shapes of the flat arrays."""
        found = self._known.get(shapes)
        if found is None:
            found = self._declare(shapes)
            if len(self._known) >= _MAX_CACHED_SHAPES:
                self._known.clear()
            self._known[shapes] = found
        return found

    def run(self, arrays, batch=()):
        """Calls the NumPy function.

        Args:
          arrays: the flat arrays.
          batch: sizes of the axes before each array's own.

        Returns:
          The flat results, checked, as arrays.
        """
        skip = len(batch)
        declared = self.declared(tuple([array.shape[skip:] for array in arrays]))
        leaves = self._call(arrays)
        return results.check_all(leaves, declared, batch, self.stage.name)

    def is_differentiable(self):
        """Returns whether an input and an output are differentiable."""
        return any(self.differentiable) and any(self.outputs_differentiable)

    def gradient_plan(self):
        """Returns the plan of this plan's gradient. Raises LookupError if none is registered."""
        if self._gradient_plan is None:
            if self.stage.gradient is None:
                if self.stage.order < 2 or tf.executing_eagerly():
                    raise self.stage.missing_gradient()
                return GradientPlan(self.stage.refusing_gradient(), self)
            self._gradient_plan = GradientPlan(self.stage.gradient, self)
        return self._gradient_plan

    def input_gradients(self, gradients):
        """Returns the gradient to each flat input, or None, from the gradient plan's flat outputs."""
        gradients = iter(gradients)
        return [
            next(gradients) if differentiable else None
            for differentiable, present in zip(self.differentiable, self.inputs_present, strict=True)
            if present
        ]

    def context(self, inputs, outputs, rest):
        """Returns the Context of this plan's gradient, from flat arrays."""
        raise NotImplementedError

    def _declare(self, shapes):
        raise NotImplementedError

    def _call(self, arrays):
        """Calls the function. Returns its flat results."""
        raise NotImplementedError


class ForwardPlan(Plan):
    """The op itself.

    Args:
      stage, key, attributes: see Plan.
      declare_out, declare_saved: functions of the inputs' tf.TensorSpecs and the attributes
        that return the declared nests; the second is None if nothing is saved.
      dtypes, shapes, input_names: of each input; shapes as tuples, or None.
      non_differentiable: names of inputs declared to have no gradient.
    """

    def __init__(
        self, stage, key, attributes, declare_out, declare_saved, dtypes, shapes, input_names, non_differentiable
    ):
        super().__init__(stage, key, attributes, tuple(dtypes))
        self._declare_out, self._declare_saved = declare_out, declare_saved
        self.input_names = input_names
        self.num_inputs = len(dtypes)
        self.inputs_present = (True,) * self.num_inputs
        self.differentiable = tuple(
            _has_gradient(dtype) and name.partition("[")[0] not in non_differentiable
            for dtype, name in zip(dtypes, input_names, strict=True)
        )
        self.out, self._saved = self._nests(shapes)
        if not self.out.specs:
            raise ValueError(f"{stage.name}: out declares no output, expected at least one")
        self.num_outputs = len(self.out.specs)
        self.outputs_present = (True,) * self.num_outputs
        self.outputs_differentiable = tuple(_has_gradient(spec.dtype) for spec in self.out.specs)
        self.result_dtypes = _dtypes(self.out, self._saved)

    def _nests(self, shapes):
        specs = [tf.TensorSpec(shape, dtype) for shape, dtype in zip(shapes, self.array_dtypes, strict=True)]
        made = []
        for declare, what in ((self._declare_out, "out"), (self._declare_saved, "saved")):
            try:
                made.append(nests.Nest(declare(specs, self.attributes), what) if declare else None)
            except Exception as error:
                known = all(spec.shape.is_fully_defined() for spec in specs)
                hint = "" if known else "; in a graph sizes may be None"
                raise TypeError(
                    f"{self.stage.name}: {what} raised {type(error).__name__}: {error} (for {specs}{hint})"
                ) from error
        return made

    def _declare(self, shapes):
        out, saved = self._nests(shapes)
        if _dtypes(out, saved) != self.result_dtypes:
            was = [dtype.name for dtype in self.result_dtypes]
            now = [dtype.name for dtype in _dtypes(out, saved)]
            raise TypeError(f"{self.stage.name}: out and saved declare {now} for shapes {shapes} and {was} for others")
        declared = [
            results.Declared(_tuple(spec.shape), spec.dtype, "its result" if path == "out" else path, finite)
            for nest, finite in ((out, self.stage.check_finite), (saved, False))
            if nest
            for path, spec in zip(nest.paths, nest.specs, strict=True)
        ]
        return declared

    def _call(self, arrays):
        value = self.stage.call(*arrays, **self.attributes)
        name = self.stage.name
        if self._saved is None:
            return self.out.flatten(value, name)
        if not isinstance(value, tuple) or len(value) != 2:
            results.fail(f"{name}: its function returned a {type(value).__name__}, expected a tuple (outputs, saved)")
        return [*self.out.flatten(value[0], name), *self._saved.flatten(value[1], name)]

    def context(self, inputs, outputs, rest):
        saved = self._saved.pack(rest) if self._saved else None
        return stages.Context(tuple(inputs), tuple(outputs), saved, self.attributes)


class GradientPlan(Plan):
    """The gradient of another plan.

    Its inputs are that plan's and the gradients to its outputs; the rest is that plan's
    results and rest. Its outputs are the gradients to that plan's inputs.
    """

    def __init__(self, stage, of):
        gradient_dtypes = tuple(itertools.compress(of.result_dtypes, of.outputs_differentiable))
        own, rest = of.array_dtypes[: of.num_inputs], of.array_dtypes[of.num_inputs :]
        super().__init__(
            stage,
            None if of.key is None else (*of.key, stage),
            of.attributes,
            (*own, *gradient_dtypes, *of.result_dtypes, *rest),
        )
        self._of = of
        gradients_present = tuple(bool(has) for has in _spread(of.outputs_differentiable, of.outputs_present))
        self.input_names = (*of.input_names, *(f"gradient {i}" for i in range(len(gradients_present))))
        self.inputs_present = of.inputs_present + gradients_present
        self.differentiable = of.differentiable + gradients_present
        self.outputs_present = of.differentiable
        self.num_inputs = sum(self.inputs_present)
        self.num_outputs = sum(self.outputs_present)
        self.outputs_differentiable = (True,) * self.num_outputs
        flat = iter(range(of.num_inputs))
        places = [next(flat) if present else None for present in of.inputs_present]
        # For each output, the flat input that it is the gradient to, and its name.
        self._outputs = [
            (place, f"the gradient to {name}")
            for place, name, has in zip(places, of.input_names, of.differentiable, strict=True)
            if has
        ]
        self.result_dtypes = tuple(own[place] for place, _ in self._outputs)

    def _declare(self, shapes):
        return [
            results.Declared(shapes[place], self.array_dtypes[place], name, self.stage.check_finite)
            for place, name in self._outputs
        ]

    def _split(self, arrays):
        """Splits arrays into (inputs, output gradients, outputs, rest) of the differentiated plan."""
        at = (self._of.num_inputs, self.num_inputs, self.num_inputs + self._of.num_outputs)
        return arrays[: at[0]], arrays[at[0] : at[1]], arrays[at[1] : at[2]], arrays[at[2] :]

    def _call(self, arrays):
        inputs, gradients, outputs, rest = self._split(arrays)
        slots = self.inputs_present[len(self._of.inputs_present) :]
        context = self._of.context(inputs, outputs, rest)
        value = self.stage.call(context, *_spread(gradients, slots))
        name, is_present = self.stage.name, self.outputs_present
        if len(is_present) == 1 and not isinstance(value, (tuple, list)):
            value = (value,)
        if not isinstance(value, (tuple, list)) or len(value) != len(is_present):
            got = f"{len(value)} gradients" if isinstance(value, (tuple, list)) else f"one {type(value).__name__}"
            inputs = ", ".join(self._of.input_names)
            results.fail(f"{name}: its function returned {got}, expected {len(is_present)}, to {inputs}")
        for item, present, input_name in zip(value, is_present, self._of.input_names, strict=True):
            if present and item is None:
                results.fail(
                    f"{name}: it returned None for {input_name}, expected an array. To declare an input without "
                    f"gradient: python_op(..., non_differentiable=[{input_name!r}])"
                )
            if not present and item is not None:
                results.fail(f"{name}: it returned a gradient to {input_name}, which has none: expected None")
        return [item for item, present in zip(value, is_present, strict=True) if present]

    def context(self, inputs, outputs, rest):
        of = self._of
        forward = of.context(inputs[: of.num_inputs], rest[: of.num_outputs], rest[of.num_outputs :])
        return stages.Context(
            _spread(inputs, self.inputs_present),
            _spread(outputs, self.outputs_present),
            forward.saved,
            self.attributes,
            forward,
        )


def _dtypes(*made):
    return tuple(spec.dtype for nest in made if nest for spec in nest.specs)


def _tuple(shape):
    return None if shape.rank is None else tuple(shape.as_list())


def shape_of(tensor):
    """Returns a tensor's static shape as a tuple, or None."""
    return _tuple(tensor.shape)


def as_array(value):
    """Returns the value of a tensor as a read-only array."""
    if type(value) is not np.ndarray:
        value = np.array(value, object) if isinstance(value, (bytes, str)) else np.asarray(value)
    value.setflags(write=False)
    return value
