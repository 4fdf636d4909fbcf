"""Uses TensorFlow's source, which a workspace such as TF Serving's declares, in place of an installed TensorFlow."""

_BUILD = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    deps = [
        "{tensorflow}//tensorflow/core:framework",
        "{tensorflow}//tensorflow/core:lib",
    ],
)
"""

# The workspace's own flags choose the C++ standard and the binary interface. In source, TensorFlow's headers are no
# system headers, so their warnings would be errors. Code for the oldest release compiles with each one.
_CONFIG = '''"""Written by tensorflow_source."""
TENSORFLOW_FULL_VERSION = ""
TENSORFLOW_MINOR = "2.18"
WHEEL_RELEASES = []
TENSORFLOW_COPTS = ["-w"]
'''

def _tensorflow_source_impl(ctx):
    ctx.file("BUILD", _BUILD.format(tensorflow = ctx.attr.tensorflow))
    ctx.file("config.bzl", _CONFIG)

tensorflow_source = repository_rule(
    implementation = _tensorflow_source_impl,
    doc = "Creates @local_config_tensorflow: //:headers and //:config.bzl.",
    attrs = {"tensorflow": attr.string(mandatory = True, doc = "The repository, such as @org_tensorflow.")},
)
