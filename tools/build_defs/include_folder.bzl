"""The folder of C++ headers that the wheel ships: tfo.sysconfig.get_include()."""

load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

def _include_folder_impl(ctx):
    folder = ctx.actions.declare_directory(ctx.label.name)
    headers = depset(transitive = [dep[CcInfo].compilation_context.headers for dep in ctx.attr.deps])

    # The others are TensorFlow's.
    files = [file for file in headers.to_list() if file.short_path.startswith("tensorflow_ops/")]
    ctx.actions.run(
        executable = ctx.executable._make_include,
        arguments = ["--output", folder.path] + [file.path for file in files],
        inputs = files,
        outputs = [folder],
        mnemonic = "IncludeFolder",
    )
    return [DefaultInfo(files = depset([folder]))]

include_folder = rule(
    implementation = _include_folder_impl,
    doc = "A folder with the headers of the algorithms that the OpKernels of `deps` call, and what these include.",
    attrs = {
        "deps": attr.label_list(providers = [CcInfo], doc = "Kernels of tfo_op_family."),
        "_make_include": attr.label(default = "//tools/build_defs:make_include", executable = True, cfg = "exec"),
    },
)
