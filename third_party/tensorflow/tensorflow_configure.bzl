"""The configured Python's TensorFlow: headers, framework library, flags."""

load("//third_party/python:find_python.bzl", "PYTHON_ENVIRON", "find_python", "run_python")
load("//third_party/tensorflow:tensorflow_releases.bzl", "FETCH_ENVIRON", "RELEASES", "fetch_tensorflow")

# The release whose binary interface the ops use. To update it, change it here, in
# tools/requirements/build.txt and in pyproject.toml. The wheel also serves older ones:
# tensorflow_releases.bzl.
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

def _wheel_releases(ctx):
    """The suffixes of the releases in TFO_TENSORFLOW_RELEASES, or of all. The configured one has none."""
    wanted = [minor for minor in ctx.os.environ.get("TFO_TENSORFLOW_RELEASES", "").split(" ") if minor]
    known = {release.minor: suffix for suffix, release in RELEASES.items()}
    for minor in wanted:
        if minor not in known and minor not in [TENSORFLOW_VERSION, "configured"]:
            fail("\nTFO_TENSORFLOW_RELEASES is '%s'; expected some of %s." % (" ".join(wanted), ", ".join(known.keys() + [TENSORFLOW_VERSION])))
    return [suffix for minor, suffix in known.items() if minor in wanted or not wanted]

def _tensorflow_configure_impl(ctx):
    facts = run_python(
        ctx,
        find_python(ctx),
        Label("//third_party/tensorflow:describe_tensorflow.py"),
        [TENSORFLOW_VERSION],
    )
    if ctx.os.environ.get("TFO_TENSORFLOW_CPU"):
        facts.update(fetch_tensorflow(ctx, facts["version"]))
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
        "WHEEL_RELEASES = " + repr(_wheel_releases(ctx)),
        "TENSORFLOW_COPTS = " + repr(facts["compile_flags"]),
        "",
    ]))

tensorflow_configure = repository_rule(
    implementation = _tensorflow_configure_impl,
    doc = "Creates @local_config_tensorflow: //:headers, //:xla_headers, //:framework, //:cc and //:config.bzl.",
    environ = PYTHON_ENVIRON + FETCH_ENVIRON + ["TFO_TENSORFLOW_RELEASES"],
    configure = True,
)
