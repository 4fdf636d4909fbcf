"""CUDA for the GPU kernels, with --config=cuda.

nvcc comes from CUDA_HOME, else from the machine's toolkit of the right major version, else
from packages (describe_cuda.py). Without --config=cuda, the rule searches for nothing, and no
GPU kernel is built or registered.
"""

load("//third_party/python:find_python.bzl", "PYTHON_ENVIRON", "find_python", "run_python")

# Kernels of CUDA 12 need the driver that TensorFlow needs, 525, those of CUDA 13 need 580.
# Override: --repo_env=TFO_CUDA_MAJOR=13.
DEFAULT_MAJOR = "12"

_BUILD = """
package(default_visibility = ["//visibility:public"])

# Static, because a dynamic CUDA run time would bind to TensorFlow's CUDA 12 stubs.
cc_library(
    name = "cudart",
    srcs = [{srcs}],
    linkopts = [{linkopts}],
    deps = {stubs},
)
"""

_STUB = """
cc_import(
    name = "{name}",
    interface_library = "{name}.so",
    system_provided = True,
)
"""

_CONFIG = """\"\"\"Written by cuda_configure.\"\"\"

CUDA_ENABLED = {enabled}
CUDA_VERSION = {version}
CUDA_ARCHITECTURES = {architectures}
CUDA_NVCC = {nvcc}
"""

def _cuda_configure_impl(ctx):
    if ctx.os.environ.get("TFO_CUDA") != "1":
        ctx.file("BUILD", _BUILD.format(srcs = "", linkopts = "", stubs = []))
        ctx.file("config.bzl", _CONFIG.format(enabled = False, version = repr(""), architectures = [], nvcc = repr("")))
        return
    facts = run_python(
        ctx,
        find_python(ctx),
        Label("//third_party/cuda:describe_cuda.py"),
        [
            ctx.os.environ.get("TFO_CUDA_MAJOR", DEFAULT_MAJOR),
            ctx.os.environ.get("CUDA_HOME", ""),
            # Compute capabilities such as "80 90"; by default all that the compiler has.
            ctx.os.environ.get("TFO_CUDA_ARCHITECTURES", ""),
        ],
    )
    ctx.symlink(facts["cudart_static"], "libcudart_static.a")
    stubs = run_python(ctx, find_python(ctx), Label("//third_party/cuda:glibc_stubs.py"), ["libcudart_static.a"])["stubs"]
    ctx.file("BUILD", _BUILD.format(
        srcs = repr("libcudart_static.a"),
        linkopts = '"-ldl", "-lrt", "-lpthread"',
        stubs = [":" + stub for stub in stubs],
    ) + "".join([_STUB.format(name = stub) for stub in stubs]))
    ctx.file("config.bzl", _CONFIG.format(
        enabled = True,
        version = repr(facts["version"]),
        architectures = facts["architectures"],
        nvcc = repr(facts["nvcc"]),
    ))

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    doc = "Creates @local_config_tfo_cuda: //:cudart and //:config.bzl.",
    environ = PYTHON_ENVIRON + ["TFO_CUDA", "TFO_CUDA_MAJOR", "CUDA_HOME", "TFO_CUDA_ARCHITECTURES", "TENSORFLOW_OPS_CACHE", "XDG_CACHE_HOME", "HOME"],
    configure = True,
)
