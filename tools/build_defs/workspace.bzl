"""Dependencies of the macros in op_family.bzl, for WORKSPACE files and for modules."""

load("//third_party/aarch64:aarch64_configure.bzl", "aarch64_configure")
load("//third_party/cpu:cpu_configure.bzl", "cpu_configure")
load("//third_party/cuda:cuda_configure.bzl", "cuda_configure")
load("//third_party/python:python_configure.bzl", "python_configure")
load("//third_party/tensorflow:tensorflow_configure.bzl", "tensorflow_configure")
load("//third_party/tensorflow:tensorflow_releases.bzl", "tensorflow_releases")
load("//third_party/tensorflow:tensorflow_source.bzl", "tensorflow_source")

def _find_processors():
    # TensorFlow's own workspace has a @local_config_cuda.
    cuda_configure(name = "local_config_tfo_cuda")
    cpu_configure(name = "local_config_cpu")

def _find_on_machine():
    python_configure(name = "local_config_python")
    tensorflow_configure(name = "local_config_tensorflow")
    tensorflow_releases()
    _find_processors()
    aarch64_configure(name = "local_config_aarch64")

# Has no name parameter, because its repositories have fixed names.
# buildifier: disable=unnamed-macro
def tensorflow_ops_workspace(tensorflow = None):
    """Declares the dependencies of the macros in op_family.bzl, and the Python toolchain.

    Repositories: @local_config_python, @local_config_tensorflow, @local_config_tfo_cuda,
    @local_config_cpu, @local_config_aarch64. They search the machine when a build first needs them, and again
    after the results have changed. They download nothing, except CUDA's compiler with
    --config=cuda if the machine has none, and TensorFlow for aarch64 with
    --config=aarch64_wheel. @tensorflow_2_18, ... are releases of TensorFlow that only
    tensorflow_ops' own wheel needs.

    Args:
      tensorflow: a repository with TensorFlow's source, such as "@org_tensorflow", for programs that link TensorFlow
        and @tensorflow_ops//tensorflow_ops:kernels_and_ops statically, such as TF Serving. This declares nothing of
        Python, which that source configures.
    """
    if tensorflow:
        tensorflow_source(name = "local_config_tensorflow", tensorflow = tensorflow)
        _find_processors()
        return
    _find_on_machine()
    native.register_toolchains("@local_config_python//:toolchain")

machine = module_extension(
    implementation = lambda _ctx: _find_on_machine(),
    doc = "For MODULE.bazel: the repositories of tensorflow_ops_workspace().",
)
