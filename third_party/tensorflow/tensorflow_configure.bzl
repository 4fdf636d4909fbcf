"""The configured Python's TensorFlow: headers, framework library, flags."""

load("//third_party/python:find_python.bzl", "PYTHON_ENVIRON", "find_python", "run_python")

# The release whose binary interface the ops use. To update it, change it here, in
# tools/requirements/build.txt and in pyproject.toml.
TENSORFLOW_VERSION = "2.21"

_BUILD = """
package(default_visibility = ["//visibility:public"])

# -isystem suppresses warnings in TensorFlow's headers.
cc_library(
    name = "headers",
    # Half of the folder is external/, which none of these headers includes.
    hdrs = glob(
        ["include/**"],
        exclude = ["include/external/**"],
    ),
    includes = ["include"],
)

# For XLA's headers.
cc_library(
    name = "xla_headers",
    hdrs = glob(["include/external/farmhash_archive/**", "include/external/highwayhash/**"]),
    includes = ["include/external/farmhash_archive/src", "include/external/highwayhash"],
    deps = [":headers"],
)

filegroup(
    name = "framework",
    srcs = [{library}],
)

# With XLA's compiler.
filegroup(
    name = "cc",
    srcs = [{cc_library}],
)
"""

def _tensorflow_configure_impl(ctx):
    facts = run_python(
        ctx,
        find_python(ctx),
        Label("//third_party/tensorflow:describe_tensorflow.py"),
        [TENSORFLOW_VERSION],
    )
    ctx.symlink(facts["include"], "include")
    library = facts["library"].split("/")[-1]
    ctx.symlink(facts["library"], library)
    cc_library = facts["cc_library"].split("/")[-1]
    ctx.symlink(facts["cc_library"], cc_library)
    ctx.file("BUILD", _BUILD.format(library = repr(library), cc_library = repr(cc_library)))
    ctx.file("config.bzl", "\n".join([
        '"""Written by tensorflow_configure."""',
        "TENSORFLOW_FULL_VERSION = " + repr(facts["version"]),
        "TENSORFLOW_MINOR = " + repr(TENSORFLOW_VERSION),
        "TENSORFLOW_COPTS = " + repr(facts["compile_flags"]),
        "",
    ]))

tensorflow_configure = repository_rule(
    implementation = _tensorflow_configure_impl,
    doc = "Creates @local_config_tensorflow: //:headers, //:xla_headers, //:framework, //:cc and //:config.bzl.",
    environ = PYTHON_ENVIRON,
    configure = True,
)
