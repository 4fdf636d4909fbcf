"""The wheel before auditwheel repairs it: see tools/build_wheel.sh."""

def _wheel_impl(ctx):
    folder = ctx.actions.declare_directory(ctx.label.name)
    files = depset(ctx.files.release_objects, transitive = [d[DefaultInfo].default_runfiles.files for d in ctx.attr.deps])
    arguments = ctx.actions.args()
    arguments.add("--output", folder.path)
    arguments.add("--pyproject", ctx.file.pyproject)
    arguments.add("--version", ctx.attr.version)
    arguments.add("--platform", ctx.attr.platform)
    arguments.add_all("--metadata_files", ctx.files.metadata_files)
    arguments.add_all("--files", files)
    arguments.add("--bin_dir", ctx.bin_dir.path)
    ctx.actions.run(
        executable = ctx.executable._make_wheel,
        arguments = [arguments],
        inputs = depset(ctx.files.metadata_files + [ctx.file.pyproject], transitive = [files]),
        outputs = [folder],
        mnemonic = "Wheel",
        progress_message = "Packing the wheel",
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([folder]))]

wheel = rule(
    implementation = _wheel_impl,
    doc = "Packs the runtime files of `deps` into bazel-bin/<name>/*.whl.",
    attrs = {
        "deps": attr.label_list(doc = "Python libraries."),
        "pyproject": attr.label(allow_single_file = True, doc = "pyproject.toml, for setuptools."),
        "metadata_files": attr.label_list(allow_files = True, doc = "README.md and LICENSE."),
        "release_objects": attr.label_list(allow_files = [".so"], doc = "Shared objects for further releases of TensorFlow."),
        "version": attr.string(doc = "The version, with a part after + such as +cu12.", mandatory = True),
        "platform": attr.string(doc = "The wheel's platform tag, if not this machine's."),
        "_make_wheel": attr.label(default = "//tools/build_defs:make_wheel", executable = True, cfg = "exec"),
    },
)
