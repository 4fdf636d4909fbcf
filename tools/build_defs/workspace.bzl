"""What a WORKSPACE needs to build ops with this project's macros."""

load("//third_party/cpu:cpu_configure.bzl", "cpu_configure")
load("//third_party/cuda:cuda_configure.bzl", "cuda_configure")
load("//third_party/python:python_configure.bzl", "python_configure")
load("//third_party/tensorflow:tensorflow_configure.bzl", "tensorflow_configure")

# Its repositories have fixed names, so it needs none.
# buildifier: disable=unnamed-macro
def tensorflow_ops_workspace():
    """Declares what the macros of op_family.bzl build against, and the Python toolchain.

    Repositories: @local_config_python, @local_config_tensorflow, @local_config_cuda,
    @local_config_cpu.
    They are found on the machine when Bazel first asks for them, and again when
    what they found has changed. Nothing is downloaded, except CUDA's compiler where
    --config=cuda is given and the machine has none.
    """
    python_configure(name = "local_config_python")
    native.register_toolchains("@local_config_python//:toolchain")
    tensorflow_configure(name = "local_config_tensorflow")
    cuda_configure(name = "local_config_cuda")
    cpu_configure(name = "local_config_cpu")
