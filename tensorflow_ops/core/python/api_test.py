"""Tests of the public API: names, signatures, ops, examples in docstrings."""

import doctest
import inspect
import pathlib
import sys
import types

import keras
import tensorflow as tf
from absl.testing import parameterized
from tensorflow.python.framework import kernels, op_def_registry

import tensorflow_ops as tfo

_API = pathlib.Path(__file__).with_name("api.txt")
_UPDATE = "run `python tensorflow_ops/core/python/api_test.py --update` with the wheel installed"


def _public(path):
    result = tfo
    for name in path.split("."):
        result = getattr(result, name)
    return result


def _public_modules():
    return {name: module for name in tfo.__all__ if inspect.ismodule(module := getattr(tfo, name))}


def _public_names():
    """Returns the names in __all__ of the package and of its public modules, such as "nn.softmax"."""
    modules = _public_modules()
    names = [name for name in tfo.__all__ if name not in modules]
    return names + [f"{prefix}.{name}" for prefix, module in modules.items() for name in module.__all__]


def _is_function(path):
    """Returns whether a public name is a function, a layer, a loss, a metric or an optimizer."""
    member = _public(path)
    is_keras = isinstance(member, type) and issubclass(
        member, keras.layers.Layer | keras.losses.Loss | keras.metrics.Metric | keras.optimizers.Optimizer
    )
    return isinstance(member, types.FunctionType) or is_keras


_FUNCTIONS = [path for path in _public_names() if _is_function(path)]
_PROCESSORS = [f"seq2seq.processors.{name}" for name in tfo.seq2seq.processors.__all__]


def _signature(path):
    """Returns the arguments of a function or of a Keras class, without annotations."""
    public = _public(path)
    # For a layer, some Python releases return the signature of Keras's __new__.
    signature = inspect.signature(public.__init__ if isinstance(public, type) else public)
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values() if p.name != "self"]
    return str(signature.replace(parameters=parameters, return_annotation=signature.empty))


def _argument(argument):
    """Returns an op's input or output as in REGISTER_OP: "x: T", "masks: F * bool"."""
    kind = argument.type_attr or argument.type_list_attr or tf.as_dtype(argument.type).name
    return f"{argument.name}: {argument.number_attr and argument.number_attr + ' * '}{kind}"


def _value(value):
    """Returns an AttrValue as text."""
    kind = value.WhichOneof("value")
    if kind == "list":
        entries = value.list
        types = [tf.as_dtype(entry).name for entry in entries.type]
        return f"{{{', '.join(map(tf.compat.as_str_any, [*entries.s, *entries.i, *entries.f, *entries.b, *types]))}}}"
    content = getattr(value, kind)
    return tf.as_dtype(content).name if kind == "type" else tf.compat.as_str_any(content)


def _attr(attr):
    """Returns an op's attr: "T: type in {float32, float64}", "log: bool = False"."""
    text = f"{attr.name}: {attr.type}"
    if attr.HasField("allowed_values"):
        text += f" in {_value(attr.allowed_values)}"
    if attr.has_minimum:
        text += f" >= {attr.minimum}"
    return text + (f" = {_value(attr.default_value)}" if attr.HasField("default_value") else "")


def _op(name):
    """Returns an op with its inputs, outputs and attrs."""
    definition = op_def_registry.get(name)
    inputs, outputs = (", ".join(map(_argument, them)) for them in (definition.input_arg, definition.output_arg))
    return f"{name}({inputs}) -> ({outputs}) with {', '.join(map(_attr, definition.attr)) or 'no attrs'}"


def _api():
    """Returns the lines of api.txt."""
    registered = {kernel.op for kernel in kernels.get_all_registered_kernels().kernel}
    ops = sorted(op for op in registered if op.startswith("TensorflowOps>"))
    names = [path + (_signature(path) if path in _FUNCTIONS else "") for path in _public_names()]
    return sorted(names) + list(map(_op, ops))


class PublicApiTest(parameterized.TestCase, tf.test.TestCase):
    def test_keeps_what_programs_and_saved_models_rely_on(self):
        """api.txt lists it; a release adds what is new."""
        lost = set(_API.read_text().splitlines()) - set(_api())
        self.assertEmpty(lost, f"changed or removed; {_UPDATE} if that is intended")

    @parameterized.parameters(*_public_modules())
    def test_module_lists_its_imports(self, name):
        """Names that a module imports with `from ... import` are in __all__, and every name there exists."""
        module = getattr(tfo, name)
        imported = {k for k, v in vars(module).items() if not k.startswith("_") and not inspect.ismodule(v)}
        self.assertContainsSubset(imported, module.__all__)
        self.assertContainsSubset(set(module.__all__), vars(module))

    def test_new_functions_have_a_name_argument(self):
        known = {line.partition("(")[0] for line in _API.read_text().splitlines()}
        for path in set(_FUNCTIONS) - known:
            *_, last = inspect.signature(_public(path)).parameters.values()
            self.assertEqual((last.name, last.default), ("name", None), path)

    @parameterized.parameters(*_FUNCTIONS, *_PROCESSORS)
    def test_is_annotated(self, path):
        """tools/types checks the types."""
        public = _public(path)
        signature = inspect.signature(public.__init__ if isinstance(public, type) else public)
        annotations = {"the result": signature.return_annotation}
        annotations |= {p.name: p.annotation for p in signature.parameters.values() if p.name != "self"}
        self.assertEmpty([name for name, annotation in annotations.items() if annotation is signature.empty])
        # Types of many alternatives have names, such as TensorLike: `help` begins with the signature.
        self.assertLess(len(str(signature)), 1300)

    @parameterized.parameters(*(path for path in _FUNCTIONS if "." in path))
    def test_is_in_the_folder_of_its_namespace(self, path):
        self.assertStartsWith(_public(path).__module__, f"tensorflow_ops.{path.partition('.')[0]}.")

    def test_shells_complete_public_names_only(self):
        self.assertCountEqual(dir(tfo), tfo.__all__)
        for module in _public_modules().values():
            self.assertCountEqual(dir(module), module.__all__)

    def test_zero_out_is_the_op_not_the_package(self):
        self.assertIn("tensorflow_ops.zero_out", sys.modules)
        self.assertTrue(callable(tfo.zero_out))

    @parameterized.parameters(*_FUNCTIONS, "seq2seq.processors", *_PROCESSORS)
    def test_docstring_examples_run(self, path):
        (test,) = doctest.DocTestFinder(recurse=False).find(_public(path), path, globs={})
        self.assertNotEmpty(test.examples)
        printed = []
        result = doctest.DocTestRunner().run(test, out=printed.append)
        self.assertEqual(result.failed, 0, "".join(printed))


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        _API.write_text("".join(f"{line}\n" for line in _api()))
    else:
        tf.test.main()
