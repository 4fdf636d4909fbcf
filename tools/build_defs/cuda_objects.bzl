"""Compiles .cu.cc files with nvcc to one object each."""

load("@local_config_tfo_cuda//:config.bzl", "CUDA_ARCHITECTURES", "CUDA_NVCC", "CUDA_VERSION")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

_FLAGS = [
    "-O3",
    "-std=c++17",
    "-DNDEBUG",
    "-Xcompiler=-fPIC,-fno-semantic-interposition,-Wall,-Werror",
    "-Werror=all-warnings",
]

def _architecture_flags():
    flags = ["-gencode=arch=compute_%s,code=sm_%s" % (a, a) for a in CUDA_ARCHITECTURES]
    newest = CUDA_ARCHITECTURES[-1]
    return flags + ["-gencode=arch=compute_%s,code=compute_%s" % (newest, newest)]

def _cuda_objects_impl(ctx):
    contexts = [d[CcInfo].compilation_context for d in ctx.attr.deps]
    headers = depset(transitive = [context.headers for context in contexts])

    # This repository's root and, when built from another repository, tensorflow_ops' root.
    roots = depset(["."], transitive = [context.quote_includes for context in contexts]).to_list()
    objects = []
    for src in ctx.files.srcs:
        object = ctx.actions.declare_file("%s/%s.cu.pic.o" % (ctx.label.name, src.basename.removesuffix(".cu.cc")))
        objects.append(object)
        ctx.actions.run(
            executable = CUDA_NVCC,
            arguments = _FLAGS + ctx.attr.copts + _architecture_flags() + ["-I" + root for root in roots] + ["-x", "cu", "-c", src.path, "-o", object.path],
            inputs = depset([src], transitive = [headers]),
            outputs = [object],
            mnemonic = "CudaCompile",
            progress_message = "Compiling " + src.short_path + " for sm_" + ", sm_".join(CUDA_ARCHITECTURES),
            # The version invalidates the action when the toolkit changes.
            env = {"TFO_CUDA_VERSION": CUDA_VERSION, "PATH": "/usr/local/bin:/usr/bin:/bin"},
        )
    return [DefaultInfo(files = depset(objects))]

cuda_objects = rule(
    implementation = _cuda_objects_impl,
    attrs = {
        "copts": attr.string_list(),
        "srcs": attr.label_list(allow_files = [".cu.cc"]),
        "deps": attr.label_list(providers = [CcInfo]),
    },
)
