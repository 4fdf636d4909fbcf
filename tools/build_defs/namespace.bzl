"""Macros that make a namespace's targets from the names of its files.

A namespace is a folder under tensorflow_ops/, and an op is a folder in its cc/kernels/:
    cc/kernels/OP/*.h, *.cc         plain C++, no TensorFlow
    cc/kernels/OP/*_simd.cc         the same, compiled once per instruction set
    cc/kernels/OP/*_gpu.cu.cc       CUDA kernels and launchers, also emulated on the CPU
    cc/kernels/OP/*_op.cc, *_op.h   OpKernels and what they share: includes TensorFlow
    cc/kernels/OP/*_test.cc         a test each, with *_testing.h
    cc/ops/OP_ops.cc                REGISTER_OP, shape functions
    python/ops/*.py                 wrappers, gradients
    python/ops/*_test.py            tests, with *_testing.py
A namespace without kernels has python/*.py in place of python/ops/*.py.
"""

load("@rules_cc//cc:cc_library.bzl", "cc_library")
load("//tools/build_defs:op_family.bzl", "tfo_algorithm_library", "tfo_algorithm_test", "tfo_cuda_library", "tfo_op_family", "tfo_op_library", "tfo_py_library", "tfo_py_test_library", "tfo_py_tests")

_KERNELS = "cc/kernels/"
_TESTED_WITH = [Label("//tensorflow_ops"), Label("//tensorflow_ops/testing:python_testing")]
_CORE_FOR_KERNELS = Label("//tensorflow_ops/core:kernels")
_SAMPLE_TESTING = Label("//tensorflow_ops/core:python_testing")

def _suffixed(labels, suffix):
    """Returns labels of the same packages: ":rows" -> ":rows_cuda"."""
    return [label + suffix for label in labels]

# `deps` are the folders that it uses, as labels: ":boxes", "//tensorflow_ops/nn:rows"; `simd_optimization` is that of
# tfo_algorithm_library.
def tfo_op(name, deps = [], simd_optimization = "-O3"):
    """The folder cc/kernels/NAME: `name`, `name_cuda`; for other folders `name_op_headers`, `name_testing`; its tests."""
    folder = _KERNELS + name + "/"
    tfo_algorithm_library(
        name = name,
        srcs = native.glob(
            [folder + "*.cc"],
            allow_empty = True,
            exclude = [folder + suffix for suffix in ["*_gpu.cu.cc", "*_op.cc", "*_simd.cc", "*_test.cc"]],
        ),
        hdrs = native.glob(
            [folder + "*.h"],
            allow_empty = True,
            exclude = [folder + "*_op.h", folder + "*_testing.h"],
        ),
        simd_optimization = simd_optimization,
        simd_srcs = native.glob([folder + "*_simd.cc"], allow_empty = True),
        deps = deps + [_CORE_FOR_KERNELS],
    )
    tfo_cuda_library(
        name = name + "_cuda",
        srcs = native.glob([folder + "*_gpu.cu.cc"], allow_empty = True),
        cuda_deps = _suffixed(deps, "_cuda"),
        deps = [":" + name],
    )
    cc_library(
        name = name + "_op_headers",
        hdrs = native.glob([folder + "*_op.h"], allow_empty = True),
        deps = _suffixed(deps, "_op_headers"),
    )
    cc_library(
        name = name + "_testing",
        testonly = True,
        hdrs = native.glob([folder + "*_testing.h"], allow_empty = True),
        deps = [":" + name] + _suffixed(deps, "_testing"),
    )
    for test in native.glob([folder + "*_test.cc"], allow_empty = True):
        tfo_algorithm_test(
            name = test.removeprefix(folder).removesuffix(".cc"),
            srcs = [test],
            cuda_deps = [":%s_cuda" % name],
            deps = [":%s_testing" % name],
        )

# `ops_test` has all tests in python/ops but the gradients' (*_grad_test.py, `gradients_test`): a process each.
# Each folder in cc/kernels/ is a tfo_op, which `ops` gives options: {"attention": {"deps": [":rows"]}}. `deps` are other
# Python libraries.
def tfo_namespace(name, ops = {}, deps = []):
    """A namespace's tfo_op_family, `ops_test`, `gradients_test`; OP_FAMILIES of tensorflow_ops/BUILD are in the wheel."""
    kernels = native.glob([_KERNELS + "*/*_op.*"], allow_empty = True)
    folders = {file.split("/")[2]: True for file in kernels}
    for folder in folders:
        tfo_op(name = folder, **ops.get(folder, {}))
    tfo_op_library(
        name = name + "_ops",
        cuda_deps = [":%s_cuda" % folder for folder in folders],
        kernels = kernels,
        ops = native.glob(["cc/ops/*.cc"], allow_empty = True),
        deps = [":" + folder + suffix for folder in folders for suffix in ["", "_op_headers"]],
    )
    tfo_op_family(
        name = name,
        srcs = native.glob(
            ["__init__.py", "python/**/*.py"],
            exclude = ["**/*_test.py", "**/*_testing.py"],
        ),
        op_libraries = [":%s_ops" % name],
        deps = deps,
    )
    tfo_py_test_library(
        name = "ops_testing",
        srcs = native.glob(["python/ops/*_testing.py"], allow_empty = True),
        deps = [_SAMPLE_TESTING],
    )
    gradients = native.glob(["python/ops/*_grad_test.py"], allow_empty = True)
    others = native.glob(["python/ops/*_test.py"], allow_empty = True, exclude = gradients)
    for test, files in {"ops_test": others, "gradients_test": gradients}.items():
        if files:
            tfo_py_tests(
                name = test,
                srcs = files,
                shard_count = 2 if len(files) > 4 else None,
                deps = _TESTED_WITH + [":ops_testing"],
            )

# `python_test` has all tests in python/ in one process, with `test_deps` and `attributes`. `apart` = {"a_test": {"size":
# "small"}} makes a target of python/a_test.py, with these attributes, which may name other srcs; the same for *_testing.
# `srcs` are files that a rule writes.
def tfo_python_namespace(name, deps = [], srcs = [], test_deps = [], apart = {}, **attributes):
    """A namespace without kernels: the library `name`, `python_testing` of its *_testing.py, `python_test`."""
    tfo_py_library(
        name = name,
        srcs = srcs + native.glob(
            ["**/*.py"],
            exclude = ["**/*_test.py", "**/*_testing.py"],
        ),
        deps = deps,
    )
    targets = {target: {"srcs": ["python/%s.py" % target]} | own for target, own in apart.items()}
    taken = [file for own in targets.values() for file in own["srcs"]]
    testing = native.glob(["python/*_testing.py"], allow_empty = True, exclude = taken)
    tests = native.glob(["python/*_test.py"], allow_empty = True, exclude = taken)
    tested_with = list(_TESTED_WITH)
    if testing:
        targets["python_testing"] = {"srcs": testing}
        helpers = native.package_relative_label(":python_testing")
        if helpers not in tested_with:
            tested_with.append(helpers)
    if tests:
        targets["python_test"] = {"srcs": tests, "deps": test_deps} | attributes
    for target, own in targets.items():
        if target.endswith("_testing"):
            tfo_py_test_library(name = target, **own)
        else:
            tfo_py_tests(name = target, **(own | {"deps": tested_with + own.get("deps", [])}))
