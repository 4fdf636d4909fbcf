"""Rules that separate C++ that includes TensorFlow from the algorithms that it calls."""

load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

def _cc_headers_impl(ctx):
    merged = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps])
    return [CcInfo(compilation_context = merged.compilation_context)]

cc_headers = rule(
    implementation = _cc_headers_impl,
    doc = "The headers of `deps`, without the libraries.",
    attrs = {"deps": attr.label_list(providers = [CcInfo])},
)

def _kernel_objects_impl(ctx):
    objects = []
    for dep in ctx.attr.deps:
        for linker_input in dep[CcInfo].linking_context.linker_inputs.to_list():
            for library in linker_input.libraries:
                objects.extend(library.pic_objects or [])
    return [DefaultInfo(files = depset(objects))]

kernel_objects = rule(
    implementation = _kernel_objects_impl,
    doc = "All objects of `deps` and of the libraries that they use.",
    attrs = {"deps": attr.label_list(providers = [CcInfo])},
)
