"""One object of the code of an instruction set, which shares nothing with that of others."""

load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cc_toolchain", "use_cc_toolchain")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

# The compiler emits a copy of an inline function into each object, and the linker keeps one of them for all. If that were
# the AVX-512 copy, older processors would crash. Therefore linking dissolves the groups, by which the linker finds copies,
# and all symbols outside of the namespace become local. `nm` fails the build if one is left, such as a unique symbol of
# GCC, which objcopy cannot make local: -fno-gnu-unique.
_COMMAND = """set -e
cc=$1 objcopy=$2 nm=$3 prefix=$4 object=$5
shift 5
$cc -r -nostdlib -fuse-ld=bfd -Wl,--force-group-allocation -o $object.all "$@"
$objcopy --wildcard --keep-global-symbol="$prefix*" $object.all $object
rm $object.all
! $nm --defined-only --extern-only $object | grep -v " $prefix"
"""

def _level_object_impl(ctx):
    toolchain = find_cc_toolchain(ctx)
    inputs = []
    for linker_input in ctx.attr.library[CcInfo].linking_context.linker_inputs.to_list():
        if linker_input.owner == ctx.attr.library.label:
            for library in linker_input.libraries:
                inputs.extend(library.pic_objects)
    if not ctx.attr.namespace:
        return [DefaultInfo(files = depset(inputs))]
    object = ctx.actions.declare_file(ctx.label.name + ".pic.o")
    ctx.actions.run_shell(
        command = _COMMAND,
        arguments = [
            toolchain.compiler_executable,
            toolchain.objcopy_executable,
            toolchain.nm_executable,
            "_ZN3tfo%d%s" % (len(ctx.attr.namespace), ctx.attr.namespace),
            object.path,
        ] + [file.path for file in inputs],
        inputs = depset(inputs, transitive = [toolchain.all_files]),
        outputs = [object],
        mnemonic = "LevelObject",
        use_default_shell_env = True,  # the compiler finds the linker by PATH
    )
    return [DefaultInfo(files = depset([object]))]

level_object = rule(
    implementation = _level_object_impl,
    attrs = {
        "library": attr.label(providers = [CcInfo], doc = "A cc_library; its deps' objects are left out."),
        "namespace": attr.string(doc = "In namespace tfo: only its symbols are left. If empty, all objects are left as they are."),
    },
    fragments = ["cpp"],
    toolchains = use_cc_toolchain(),
)
