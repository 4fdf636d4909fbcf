"""The releases of TensorFlow that the wheel serves, besides the configured one."""

load("//third_party/python:find_python.bzl", "PYTHON_ENVIRON", "find_python", "run_python")

# Suffix of the shared object -> the oldest minor release that it serves, and what it is
# built against. An object also serves later minors up to the next line.
RELEASES = {
    "_2_18": struct(minor = "2.18", version = "2.18.1"),
    "_2_19": struct(minor = "2.19", version = "2.19.1"),  # other mutexes than in 2.18
    "_2_20": struct(minor = "2.20", version = "2.20.0"),
}

# As tf.sysconfig.get_compile_flags() in each of them.
RELEASE_COPTS = ["-D_GLIBCXX_USE_CXX11_ABI=1", "-DEIGEN_MAX_ALIGN_BYTES=64"]

# TFO_TENSORFLOW_CPU is aarch64, or unset for x86-64.
FETCH_ENVIRON = ["HOME", "TENSORFLOW_OPS_CACHE", "TFO_TENSORFLOW_CPU"]

_BUILD = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    hdrs = glob(
        ["include/**"],
        exclude = ["include/external/**"],
    ),
    includes = ["include"],
)

filegroup(
    name = "framework",
    srcs = ["libtensorflow_framework.so.2"],
)
"""

def fetch_tensorflow(ctx, version):
    """Downloads a release, unless it is in the cache.

    Args:
      ctx: the repository_ctx. Its rule lists FETCH_ENVIRON in `environ`.
      version: the release, such as "2.18.1".

    Returns:
      A dict with the paths "include", "library" and, for aarch64, "cc_library".
    """
    cache = ctx.os.environ.get("TENSORFLOW_OPS_CACHE") or ctx.os.environ["HOME"] + "/.cache/tensorflow_ops"
    cpu = ctx.os.environ.get("TFO_TENSORFLOW_CPU") or "x86_64"
    script = Label("//third_party/tensorflow:fetch_tensorflow.py")
    return run_python(ctx, find_python(ctx), script, [version, cache, cpu])

def _tensorflow_release_impl(ctx):
    facts = fetch_tensorflow(ctx, ctx.attr.version)
    ctx.symlink(facts["include"], "include")
    ctx.symlink(facts["library"], "libtensorflow_framework.so.2")
    ctx.file("BUILD", _BUILD)

tensorflow_release = repository_rule(
    implementation = _tensorflow_release_impl,
    doc = "Downloads a release's headers and framework library when a build first needs them.",
    attrs = {"version": attr.string(mandatory = True)},
    environ = PYTHON_ENVIRON + FETCH_ENVIRON,
)

def tensorflow_releases():
    """Declares @tensorflow_2_18, ..."""
    for suffix, release in RELEASES.items():
        tensorflow_release(name = "tensorflow" + suffix, version = release.version)
