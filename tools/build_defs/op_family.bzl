"""Macros for the targets of an op family, a folder under tensorflow_ops/ or in another repository.

    *.h, *_cpu.cc          tfo_algorithm_library  plain C++, no TensorFlow
    *_simd.cc              the same, compiled once per instruction set
    *_gpu.cu.cc            tfo_cuda_library       CUDA kernels and launchers, also emulated on the CPU
    *_ops.cc, *_op.cc      tfo_op_library         REGISTER_OP, OpKernels
    *.py                   tfo_py_library         wrappers, gradients
    *_test.cc, *_test.py   tfo_algorithm_test, tfo_py_test

and one tfo_op_family. Tests that tools/test.sh leaves out without arguments have the tag "slow", those that .ci/run leaves
to --release the tag "release". namespace.bzl makes all of these from the names of files; zero_out/BUILD and
examples/external_repo call them one by one. Throughout, `deps` are algorithm libraries, and `cuda_deps` the CUDA
libraries whose functions are called.
"""

load("@local_config_cpu//:config.bzl", "BUILT_CPU_LEVELS")
load("@local_config_tensorflow//:config.bzl", "TENSORFLOW_COPTS", "TENSORFLOW_MINOR")
load("@local_config_tfo_cuda//:config.bzl", "CUDA_ENABLED")
load("@rules_cc//cc:cc_binary.bzl", "cc_binary")
load("@rules_cc//cc:cc_library.bzl", "cc_library")
load("@rules_cc//cc:cc_test.bzl", "cc_test")
load("@rules_python//python:py_library.bzl", "py_library")
load("@rules_python//python:py_test.bzl", "py_test")
load("//third_party/tensorflow:tensorflow_releases.bzl", "RELEASES", "RELEASE_COPTS")
load("//tools/build_defs:cuda_objects.bzl", "cuda_objects")
load("//tools/build_defs:kernel_objects.bzl", "cc_headers", "kernel_objects")
load("//tools/build_defs:level_object.bzl", "level_object")

# Labels, because in a macro that another repository loads, a plain string would
# refer to a target of that repository.
_OPT = Label("//tools/build_defs:opt")
_WITHOUT_EMULATION = Label("//tools/build_defs:without_emulation")
_EMULATED_AS = {variant: Label("//tools/build_defs:emulated_as_" + variant) for variant in ["700", "750", "800", "contracted", "races", "truncated"]}
_EMULATED_DEFINES = {"contracted": "TFO_EMULATED_CONTRACTION", "races": "TFO_EMULATED_RACES", "truncated": "TFO_EMULATED_TRUNCATION"}
_GCC = Label("@rules_cc//cc/compiler:gcc")
_AARCH64 = Label("@platforms//cpu:aarch64")
_CORE = {name: Label("//tensorflow_ops/core:" + name) for name in ["op_util", "testing", "testing_cuda_emulated", "testing_cuda_mirrored"]}
_CUDART = Label("@local_config_tfo_cuda//:cudart")
_EXPORT_KERNELS = Label("//tools/build_defs:export_kernels.lds")
_HIDE_ALL_SYMBOLS = Label("//tools/build_defs:hide_all_symbols.lds")
_RUN_TESTS = Label("//tools/build_defs:run_tests.py")
_TENSORFLOW_CC = Label("@local_config_tensorflow//:cc")
_TENSORFLOW_OPS = Label("//tensorflow_ops")

def _tensorflow_build(suffix, repository, minor, copts, tags):
    return struct(
        suffix = suffix,
        headers = Label("@%s//:headers" % repository),
        framework = Label("@%s//:framework" % repository),
        copts = copts + ["-DTFO_TENSORFLOW_MINOR=" + minor.split(".")[1]],
        tags = tags,
    )

# C++ that includes TensorFlow is built for the configured release and for the other releases of the wheel. The
# algorithms are built once.
_CONFIGURED = _tensorflow_build("", "local_config_tensorflow", TENSORFLOW_MINOR, TENSORFLOW_COPTS, [])
_OTHER_RELEASES = [
    _tensorflow_build(suffix, "tensorflow" + suffix, release.minor, RELEASE_COPTS, ["manual"])
    for suffix, release in RELEASES.items()
]

_WARNINGS = ["-Wall", "-Wextra", "-Werror"] + [
    # clang only. Masks of vectors: a & b ? c : d.
    "-Wno-bitwise-conditional-parentheses",
    "-Wno-unknown-warning-option",
]
_COPTS = ["-fvisibility=hidden"] + _WARNINGS

# For files whose functions OpKernels call from another shared object. Only these
# functions are exported; within the files, calls are direct.
_EXPORTED_COPTS = ["-fvisibility-inlines-hidden", "-fno-semantic-interposition"] + _WARNINGS

def _optimized(flag):
    """Returns `flag`, such as -O3, in optimised builds; -c dbg and sanitizers set their own."""
    return select({
        _OPT: [flag],
        "//conditions:default": [],
    })

# Warnings that TensorFlow's macros and templates cause when they expand in our files.
_TENSORFLOW_WARNINGS = ["-Wno-missing-field-initializers", "-Wno-sign-compare", "-Wno-unused-parameter"]

# With null checks, GCC rejects constant expressions in TensorFlow's headers.
_TENSORFLOW_SANITIZERS = ["-fno-sanitize=undefined"]

# Instruction set -> compiler flags, narrowest first. TensorFlow's own wheels need
# the baseline. core/cc/simd/cpu_dispatch.h chooses at run time. -ffp-contract=off disables
# implicit fused multiply-adds, so that algorithms return the same bits at every level
# unless they use explicit ones.
CPU_LEVELS = {
    "baseline": ["-mavx"],
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
    "avx512": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx2", "-mfma", "-mf16c", "-mprefer-vector-width=512"],
}

def _level_flags(level):
    """Returns the compiler's flags for an instruction set. aarch64 has one level, NEON, and needs no flags."""
    return select({
        _AARCH64: [],
        "//conditions:default": CPU_LEVELS[level],
    })

# For files that dispatch: those of the narrowest level and others without a level. OpKernels and files of wider levels
# do not use these defines, so that builds with different levels share their objects.
_LEVEL_DEFINES = ["TFO_WITHOUT_CPU_" + level.upper() for level in CPU_LEVELS if level not in BUILT_CPU_LEVELS]

# simd_srcs are compiled once per CPU level, in a namespace of that level (core/cc/simd/simd.h). The narrowest level's objects
# also dispatch (core/cc/simd/cpu_dispatch.h), and those of others share no inline code with it (level_object.bzl). Loops written
# with vector types are often as fast with simd_optimization = "-O2", and compile in half the time; the baseline always uses
# it.
def tfo_algorithm_library(name, hdrs, srcs = [], simd_srcs = [], simd_optimization = "-O3", deps = []):
    """An algorithm without TensorFlow headers: `name`, `name_headers`; with simd_srcs `name_<level>` for each level."""
    cc_library(
        name = name + "_headers",
        hdrs = hdrs,
        deps = deps,
    )
    levels = []
    for level in BUILT_CPU_LEVELS if simd_srcs else []:
        is_narrowest = level == BUILT_CPU_LEVELS[0]
        levels.append(":%s_%s_object" % (name, level))
        cc_library(
            name = name + "_" + level,
            srcs = simd_srcs,
            # GCC 12 warns about its own AVX-512 intrinsics (GCC bug 105593).
            copts = _COPTS + _level_flags(level) + ["-ffp-contract=off", "-Wno-maybe-uninitialized", "-Wno-uninitialized"] +
                    select({
                        _GCC: ["-fno-gnu-unique"],
                        "//conditions:default": [],
                    }) + _optimized("-O2" if level == "baseline" else simd_optimization),
            linkstatic = True,
            local_defines = ["TFO_CPU_NAMESPACE=cpu_" + level] +
                            (["TFO_NARROWEST_CPU_LEVEL"] + _LEVEL_DEFINES if is_narrowest else []),
            deps = [":%s_headers" % name],
        )
        level_object(
            name = "%s_%s_object" % (name, level),
            library = ":%s_%s" % (name, level),
            namespace = "" if is_narrowest else "cpu_" + level,
        )
    cc_library(
        name = name,
        srcs = srcs + levels,
        hdrs = hdrs,
        copts = _EXPORTED_COPTS + _level_flags("baseline") + ["-ffp-contract=off"] + _optimized("-O3"),
        local_defines = _LEVEL_DEFINES,
        deps = deps,
    )

# `name_emulated` runs the kernels on the CPU with a fiber per CUDA thread (core/cc/cuda/cuda_emulation.h), so that tests can
# check results, but not behavior specific to GPUs. `name_mirrored` runs them in programs for a GPU, where tests give
# memory of the host to kernels (core/cc/cuda/gpu_mirror.h). Both are compiled only if a test links them.
def tfo_cuda_library(name, srcs, deps = [], cuda_deps = []):
    """CUDA kernels: `name`, by nvcc, empty without --config=cuda; for tests `name_mirrored`, and `name_emulated` by g++."""
    for suffix, copts in {"": [], "_mirrored": ["-DTFO_GPU_MIRROR", "-lineinfo"]}.items():
        tags = ["manual"] if suffix else []
        objects = []
        if CUDA_ENABLED and srcs:
            objects = [":%s%s_objects" % (name, suffix)]
            cuda_objects(
                name = name + suffix + "_objects",
                testonly = bool(suffix),
                srcs = srcs,
                copts = copts,
                tags = tags,
                deps = deps,
            )
        cc_library(
            name = name + suffix,
            testonly = bool(suffix),
            srcs = objects,
            tags = tags,
            deps = deps + _with_suffix(cuda_deps, suffix) + ([_CUDART] if objects else []),
        )
    emulated = []
    if srcs:
        emulated.append(":" + name + "_emulated_srcs")
        native.genrule(
            name = name + "_emulated_srcs",
            srcs = srcs,
            outs = [name + "/" + src.split("/")[-1].removesuffix(".cu.cc") + "_emulated.cc" for src in srcs],
            # Copies to *.cc, because Bazel's cc rules treat .cu.cc differently.
            cmd = "for src in $(SRCS); do cp $$src $(RULEDIR)/%s/$$(basename $$src .cu.cc)_emulated.cc; done" % name,
            tags = ["manual"],
            testonly = True,
        )
    cc_library(
        name = name + "_emulated",
        srcs = emulated,
        # GCC does not recognise that values are loaded and used under the same condition; clang does not unroll at -O1.
        copts = _COPTS + ["-Wno-clobbered", "-Wno-maybe-uninitialized", "-Wno-unknown-pragmas", "-Wno-pass-failed"] +
                select({
                    _EMULATED_AS["contracted"]: ["-mfma", "-ffp-contract=fast"],
                    _EMULATED_AS["races"]: ["-ffp-contract=off", "-fsanitize=thread", "--param=tsan-distinguish-volatile=1", "-g1"],
                    "//conditions:default": ["-ffp-contract=off"],
                }) + _optimized("-O1"),
        local_defines = ["TFO_CUDA_EMULATION=1"] + _LEVEL_DEFINES + select({
            label: [_EMULATED_DEFINES.get(variant, "TFO_EMULATED_ARCH=" + variant)]
            for variant, label in _EMULATED_AS.items()
        } | {"//conditions:default": []}),
        tags = ["manual"],
        testonly = True,
        deps = deps + [dep + "_emulated" for dep in cuda_deps],
    )

def _with_suffix(labels, suffix):
    return [Label(str(label) + suffix) if type(label) == "Label" else label + suffix for label in labels]

def tfo_op_support_library(name, srcs, hdrs, deps = [], support_deps = [], cuda_deps = []):
    """C++ with TensorFlow headers that several OpKernel files share. The targets are those of tfo_op_library."""
    _includes(name, srcs)
    _op_library(name, srcs + hdrs, deps, support_deps, cuda_deps, srcs = [":" + name + "_src"], hdrs = hdrs, textual_hdrs = srcs)

def _glue_library(name, build, deps, **attributes):
    """C++ that includes the headers of a release of TensorFlow."""
    cc_library(
        name = name,
        copts = _COPTS + build.copts + _TENSORFLOW_WARNINGS + _TENSORFLOW_SANITIZERS + _optimized("-O2"),
        local_defines = ["TFO_CUDA=1"] if CUDA_ENABLED else [],
        tags = build.tags,
        deps = deps + [build.headers],
        **attributes
    )

# NAME_glue includes TensorFlow, of the configured release; NAME_algorithms is what it calls. tfo_split_shared_objects
# compiles NAME_glue_sources for the other releases.
def _op_library(name, files, deps, support_deps, cuda_deps, **attributes):
    algorithms = deps + (cuda_deps if CUDA_ENABLED else [])
    cc_headers(
        name = name + "_algorithm_headers",
        deps = algorithms + _with_suffix(support_deps, "_algorithm_headers"),
    )
    native.filegroup(
        name = name + "_glue_sources",
        srcs = files + _with_suffix(support_deps, "_glue_sources"),
    )
    _glue_library(
        name = name + "_glue",
        build = _CONFIGURED,
        deps = _with_suffix(support_deps, "_glue") + [":%s_algorithm_headers" % name],
        **attributes
    )
    cc_library(
        name = name + "_algorithms",
        deps = algorithms + _with_suffix(support_deps, "_algorithms"),
    )
    cc_library(
        name = name,
        deps = [":%s_glue" % name, ":%s_algorithms" % name],
    )

def _includes(name, files):
    """NAME.cc, which includes the .cc files among `files`: TensorFlow's headers take most of the time of a compilation."""
    native.genrule(
        name = name + "_src",
        srcs = files,
        outs = [name + ".cc"],
        # Without the folder of an external repository, which is on the include path.
        cmd = "printf '#include \"%s\"\\n' $(SRCS) | grep '[.]cc' | sed 's#\"external/[^/]*/#\"#' >$@",
    )

# `ops` are cc/ops/*.cc: REGISTER_OP, shape functions, C++ gradients; `kernels` cc/kernels/*_op.cc and headers that they
# share. All are compiled as one translation unit, so names in their unnamed namespaces must differ, also from those of
# other op libraries in the same wheel.
def tfo_op_library(name, ops, kernels, deps = [], support_deps = [], cuda_deps = []):
    """Op definitions and OpKernels, for op_libraries of a tfo_op_family: the only C++ that includes TensorFlow."""
    files = [file for file in ops + kernels if file.endswith(".cc")]
    _includes(name, files)
    _op_library(
        name,
        ops + kernels,
        deps,
        support_deps + [_CORE["op_util"]],
        cuda_deps,
        srcs = [":" + name + "_src"] + [file for file in ops + kernels if file not in files],
        textual_hdrs = files,
        # Registration objects are static, and nothing refers to them.
        alwayslink = True,
    )

def _shared_object(name, deps, symbols, libraries = [], linkopts = [], tags = []):
    """A shared object that exports what the version script `symbols` says."""
    cc_binary(
        name = name,
        additional_linker_inputs = libraries + [symbols],
        linkopts = [
            "-Wl,-Bsymbolic",
            "-Wl,--no-undefined",
            "-Wl,--as-needed",
            "-Wl,--gc-sections",
            "-Wl,--version-script=$(location %s)" % symbols,
        ] + linkopts + ["$(execpath %s)" % library for library in libraries] + select({
            _OPT: ["-s"],  # strip symbols
            "//conditions:default": [],
        }),
        linkshared = True,
        linkstatic = True,
        tags = tags,
        deps = deps,
    )

# The CUDA run time precedes TensorFlow's framework library on the link line; otherwise its symbols would bind to
# TensorFlow's stubs. `xla`: the ops use XLA's compiler.
def tfo_shared_object(name, deps, xla = False):
    """A shared object NAME.so of op libraries that exports no symbols, for Python to load."""
    _shared_object(
        name,
        deps,
        symbols = _HIDE_ALL_SYMBOLS,
        libraries = [_CONFIGURED.framework] + ([_TENSORFLOW_CC] if xla else []),
    )

# `algorithms` is the file name of the shared object with the algorithms. It contains the version of the package, because
# the loader takes the first object of a name. Others are NAME.so for the configured release, NAME_2_18.so, ...
def tfo_split_shared_objects(name, algorithms, deps):
    """Shared objects of op libraries for several releases of TensorFlow, over one of the algorithms."""
    libraries = _with_suffix(deps, "_algorithms")
    kernel_objects(
        name = name + "_objects",
        deps = libraries,
    )
    cc_library(
        name = name + "_all_objects",
        srcs = [":%s_objects" % name],
        alwayslink = True,
    )
    _shared_object(
        algorithms,
        # The libraries for what is not an object: CUDA's run time.
        deps = [":%s_all_objects" % name] + libraries,
        symbols = _EXPORT_KERNELS,
        linkopts = ["-Wl,-soname," + algorithms],
    )

    # All in one file, which takes a fifth of the time.
    _includes(name + "_glue", _with_suffix(deps, "_glue_sources"))
    for build in _OTHER_RELEASES:
        _glue_library(
            name + "_glue" + build.suffix,
            build,
            srcs = [":%s_glue_src" % name],
            textual_hdrs = _with_suffix(deps, "_glue_sources"),
            deps = _with_suffix(deps, "_algorithm_headers"),
            alwayslink = True,
        )
    builds = [(_CONFIGURED, _with_suffix(deps, "_glue"))]
    builds += [(build, [":%s_glue%s" % (name, build.suffix)]) for build in _OTHER_RELEASES]
    for build, libraries in builds:
        _shared_object(
            name + build.suffix + ".so",
            deps = libraries,
            symbols = _HIDE_ALL_SYMBOLS,
            libraries = [":" + algorithms, build.framework],
            linkopts = ["-Wl,-rpath,$$ORIGIN"],
            tags = build.tags,
        )

def tfo_py_library(name, srcs, data = [], deps = []):
    """Python wrappers and gradients; data are files to ship next to srcs."""
    py_library(
        name = name,
        srcs = srcs,
        data = data,
        srcs_version = "PY3",
        deps = deps,
    )

def tfo_op_family(name, srcs, op_libraries, deps = []):
    """A family's Python library `name` and kernels `name_kernels`; OP_FAMILIES of tensorflow_ops/BUILD are in the wheel."""
    for suffix in ["", "_algorithms", "_glue"]:
        cc_library(
            name = name + "_kernels" + suffix,
            tags = ["manual"],
            deps = _with_suffix(op_libraries, suffix),
        )
    cc_headers(
        name = name + "_kernels_algorithm_headers",
        deps = _with_suffix(op_libraries, "_algorithm_headers"),
    )
    native.filegroup(
        name = name + "_kernels_glue_sources",
        srcs = _with_suffix(op_libraries, "_glue_sources"),
    )
    tfo_py_library(
        name = name,
        srcs = srcs,
        deps = deps,
    )

# With cuda_deps, the test (core/cc/testing/gpu_testing.h) emulates CUDA kernels on the CPU, but not with
# --config=without_emulation. `name_on_gpu`, which needs --config=cuda, is the same test as a program that runs them on a
# GPU: tools/gpu/build.sh.
def tfo_algorithm_test(name, srcs, deps, cuda_deps = []):
    """A C++ test of algorithms, with core/cc/testing/testing.h. --config=asan, ubsan and tsan run these tests."""
    defines = []
    if cuda_deps:
        cc_binary(
            name = name + "_on_gpu",
            testonly = True,
            srcs = srcs,
            copts = _COPTS + _optimized("-O1"),
            linkopts = ["-s"],
            linkstatic = True,
            local_defines = _LEVEL_DEFINES,
            tags = ["manual"],
            deps = deps + _with_suffix(cuda_deps, "_mirrored") + [_CORE["testing_cuda_mirrored"], _CORE["testing"]],
        )
        deps = deps + select({
            _WITHOUT_EMULATION: [],
            "//conditions:default": [dep + "_emulated" for dep in cuda_deps],
        })
        defines = select({
            _WITHOUT_EMULATION: ["TFO_WITHOUT_EMULATION"],
            "//conditions:default": [],
        })
    cc_test(
        name = name,
        size = "medium",
        srcs = srcs,
        copts = _COPTS + _optimized("-O1"),
        linkstatic = True,
        local_defines = _LEVEL_DEFINES + defines,
        tags = ["algorithm"] + (["emulation"] if cuda_deps else []),
        deps = deps + [_CORE["testing_cuda_emulated"], _CORE["testing"]],
    )

def tfo_py_test_library(name, srcs = [], deps = []):
    """Modules *_testing.py in one folder, which tests import by file name and tools/test_wheel.sh copies beside them."""
    py_library(
        name = name,
        testonly = True,
        srcs = srcs,
        imports = [src.rpartition("/")[0] for src in srcs[:1]],
        srcs_version = "PY3",
        deps = deps,
    )

def tfo_py_test(name, srcs, deps = [_TENSORFLOW_OPS], size = "medium", **attributes):
    """A Python test of the public package. The file also runs against the wheel, so it reads no runfiles."""
    py_test(
        name = name,
        size = size,
        srcs = srcs,
        python_version = "PY3",
        deps = deps,
        **attributes
    )

def tfo_py_tests(name, srcs, size = "large", **attributes):
    """Python tests as tfo_py_test, in one process (run_tests.py)."""
    tfo_py_test(
        name = name,
        size = size,
        srcs = srcs + [_RUN_TESTS],
        args = ["$(rootpath %s)" % src for src in srcs],
        main = _RUN_TESTS,
        **attributes
    )
