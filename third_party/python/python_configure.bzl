"""A Python toolchain with the interpreter that has TensorFlow.

py_test and py_binary use it; `--python_path` alone is not sufficient.
"""

load(":find_python.bzl", "PYTHON_ENVIRON", "find_python", "run_python")

_BUILD = """
load("@rules_python//python:py_runtime.bzl", "py_runtime")
load("@rules_python//python:py_runtime_pair.bzl", "py_runtime_pair")

package(default_visibility = ["//visibility:public"])

py_runtime(
    name = "runtime",
    interpreter_path = {python},
    python_version = "PY3",
)

py_runtime_pair(
    name = "runtime_pair",
    py2_runtime = None,
    py3_runtime = ":runtime",
)

toolchain(
    name = "toolchain",
    toolchain = ":runtime_pair",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
"""

def _python_configure_impl(ctx):
    python = find_python(ctx)
    run_python(ctx, python, Label("//third_party/python:describe_python.py"))

    # Bazel writes the interpreter's path into quoted Python strings. This wrapper has a
    # safe path; the configured one may contain quotes, or characters that Bazel garbles.
    program = "#!/bin/sh\nexec '%s' \"$@\"\n" % python.replace("'", "'\\''")
    ctx.file("python", program, executable = True, legacy_utf8 = False)
    ctx.file("BUILD", _BUILD.format(python = repr(str(ctx.path("python")))))

python_configure = repository_rule(
    implementation = _python_configure_impl,
    doc = "Creates @local_config_python//:toolchain with the configured Python.",
    environ = PYTHON_ENVIRON,
    configure = True,
)
