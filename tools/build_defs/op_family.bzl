"""Macros for the targets of an op family.

An op family is a folder under tensorflow_ops/ with
    cc/kernels/*.h, *_cpu.cc        tfo_algorithm_library  plain C++, no TensorFlow
    cc/kernels/*_simd.cc            the same, compiled once per instruction set
    cc/kernels/*_gpu.cu.cc          tfo_cuda_library       CUDA kernels and launchers, also emulated on the CPU
    cc/ops/*.cc, cc/kernels/*_op.cc tfo_op_library         REGISTER_OP, OpKernels
    python/ops/*.py                 tfo_py_library         wrappers, gradients
    *_test.cc, *_test.py            tfo_algorithm_test, tfo_py_test
and one tfo_op_family. namespace.bzl makes all of these from the names of files.

Other repositories can use these macros, too: see examples/external_repo.
"""

load("@local_config_cpu//:config.bzl", "BUILT_CPU_LEVELS")
load("@local_config_cuda//:config.bzl", "CUDA_ENABLED")
load("@local_config_tensorflow//:config.bzl", "TENSORFLOW_COPTS", "TENSORFLOW_MINOR")
load("@rules_cc//cc:cc_binary.bzl", "cc_binary")
load("@rules_cc//cc:cc_library.bzl", "cc_library")
load("@rules_cc//cc:cc_test.bzl", "cc_test")
load("@rules_python//python:py_library.bzl", "py_library")
load("@rules_python//python:py_test.bzl", "py_test")
load("//third_party/tensorflow:tensorflow_releases.bzl", "RELEASES", "RELEASE_COPTS")
load("//tools/build_defs:cuda_objects.bzl", "cuda_objects")
load("//tools/build_defs:kernel_objects.bzl", "cc_headers", "kernel_objects")

# Labels, because in a macro that another repository loads, a plain string would
# refer to a target of that repository.
_OPT = Label("//tools/build_defs:opt")
_AARCH64 = Label("@platforms//cpu:aarch64")
_CORE = {name: Label("//tensorflow_ops/core:" + name) for name in ["cuda_launch", "device", "gpu_testing", "gpu_testing_cuda", "gpu_testing_cuda_emulated", "op_util", "simd", "testing"]}
_CUDART = Label("@local_config_cuda//:cudart")
_EXPORT_KERNELS = Label("//tools/build_defs:export_kernels.lds")
_HIDE_ALL_SYMBOLS = Label("//tools/build_defs:hide_all_symbols.lds")
_RUN_TESTS = Label("//tools/build_defs:run_tests.py")
_SIMD_SYMBOLS_TEST = Label("//tools/build_defs:simd_symbols_test.py")
_TENSORFLOW_CC = Label("@local_config_tensorflow//:cc")

def _tensorflow_build(suffix, repository, minor, copts, tags):
    return struct(
        suffix = suffix,
        headers = Label("@%s//:headers" % repository),
        framework = Label("@%s//:framework" % repository),
        copts = copts + ["-DTFO_TENSORFLOW_MINOR=" + minor.split(".")[1]],
        tags = tags,
    )

# C++ that includes TensorFlow is built for the configured release, under its own name,
# and for the other releases of the wheel, as NAME_2_18. The algorithms are built once.
_CONFIGURED = _tensorflow_build("", "local_config_tensorflow", TENSORFLOW_MINOR, TENSORFLOW_COPTS, [])
_TENSORFLOW_BUILDS = [_CONFIGURED] + [
    _tensorflow_build(suffix, "tensorflow" + suffix, release.minor, RELEASE_COPTS, ["manual"])
    for suffix, release in RELEASES.items()
]

_WARNINGS = ["-Wall", "-Wextra", "-Werror"]
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

_CUDA_DEFINES = ["TFO_CUDA=1"] if CUDA_ENABLED else []

# Instruction set -> compiler flags, narrowest first. TensorFlow's own wheels need
# the baseline. core/cc/cpu_dispatch.h chooses at run time. -ffp-contract=off disables
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

# For files that dispatch. Files of the levels themselves and OpKernels do not use
# these defines, so that builds with different levels share their objects.
_LEVEL_DEFINES = ["TFO_WITHOUT_CPU_" + level.upper() for level in CPU_LEVELS if level not in BUILT_CPU_LEVELS]

def tfo_algorithm_library(name, hdrs, srcs = [], simd_srcs = [], simd_optimization = "-O3", deps = []):
    """An algorithm in plain C++, without TensorFlow headers.

    Targets: `name`, `name_headers`; when there are simd_srcs, `name_<level>` for each
    level in BUILT_CPU_LEVELS.

    Args:
      name: the library's name.
      hdrs: its headers.
      srcs: .cc files compiled once, for the baseline.
      simd_srcs: .cc files compiled once per CPU level, in a namespace of that
        level (core/cc/simd.h). They must not define shared inline code, because
        the linker may keep the AVX-512 copy for all levels.
      simd_optimization: for simd_srcs. Loops written with vector types are often
        as fast with -O2, and compile in half the time. The baseline always uses -O2.
      deps: other algorithm libraries.
    """
    cc_library(
        name = name + "_headers",
        hdrs = hdrs,
        deps = deps,
    )
    levels = []
    if simd_srcs:
        for level in BUILT_CPU_LEVELS:
            levels.append(name + "_" + level)
            cc_library(
                name = name + "_" + level,
                srcs = simd_srcs,
                # GCC 12 warns about its own AVX-512 intrinsics (GCC bug 105593).
                copts = _COPTS + _level_flags(level) + ["-ffp-contract=off", "-Wno-maybe-uninitialized", "-Wno-uninitialized"] +
                        _optimized("-O2" if level == "baseline" else simd_optimization),
                linkstatic = True,
                local_defines = ["TFO_CPU_NAMESPACE=cpu_" + level],
                deps = [":" + name + "_headers", _CORE["simd"]],
            )
    cc_library(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        copts = _EXPORTED_COPTS + _level_flags("baseline") + ["-ffp-contract=off"] + _optimized("-O3"),
        local_defines = _LEVEL_DEFINES,
        deps = deps + [":" + level for level in levels],
    )

def tfo_cuda_library(name, srcs, deps = [], cuda_deps = []):
    """CUDA kernels and launchers, compiled by nvcc and, for tests without a GPU, by g++.

    `name` is empty without --config=cuda. `name_emulated` runs the kernels on the CPU
    with a fiber per CUDA thread (core/cc/cuda_emulation.h), so that tests can check
    results, but not behavior specific to GPUs. It is compiled only if a test links it.

    Targets: `name`, `name_objects`, `name_emulated`, `name_emulated_srcs`.

    Args:
      name: the library's name.
      srcs: .cu.cc files; they include CUDA's headers and the algorithm's own.
      deps: the algorithm libraries that declare the functions in srcs.
      cuda_deps: other CUDA libraries whose functions srcs call.
    """
    if CUDA_ENABLED and srcs:
        cuda_objects(
            name = name + "_objects",
            srcs = srcs,
            deps = deps,
        )
        cc_library(
            name = name,
            srcs = [":" + name + "_objects"],
            deps = deps + cuda_deps + [_CUDART],
        )
    else:
        cc_library(
            name = name,
            deps = deps + cuda_deps,
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
        # GCC does not recognise that values are loaded and used under the same condition.
        copts = _COPTS + ["-Wno-clobbered", "-Wno-maybe-uninitialized", "-Wno-unknown-pragmas", "-ffp-contract=off"] +
                _optimized("-O1"),
        local_defines = ["TFO_CUDA_EMULATION=1"] + _LEVEL_DEFINES,
        tags = ["manual"],
        testonly = True,
        deps = deps + [dep + "_emulated" for dep in cuda_deps],
    )

def _glue_library(name, headers, deps, **attributes):
    """C++ that includes TensorFlow, for each release: NAME_glue, NAME_glue_2_18, ..."""
    for build in _TENSORFLOW_BUILDS:
        cc_library(
            name = name + "_glue" + build.suffix,
            copts = _COPTS + build.copts + _TENSORFLOW_WARNINGS + _TENSORFLOW_SANITIZERS + _optimized("-O2"),
            local_defines = _CUDA_DEFINES,
            tags = build.tags,
            deps = [_with_suffix(dep, build.suffix) for dep in deps] + [headers, build.headers],
            **attributes
        )

def _with_suffix(label, suffix):
    return Label(str(label) + suffix) if type(label) == "Label" else label + suffix

def _glue(label):
    """Returns the label of a library's _glue."""
    return _with_suffix(label, "_glue")

def tfo_op_support_library(name, srcs, hdrs, deps = [], support_deps = [], cuda_deps = []):
    """C++ with TensorFlow headers that several OpKernel files share.

    Targets: `name`, `name_glue`, `name_glue_2_18`, ..., `name_algorithms`.

    Args:
      name: the library's name.
      srcs: .cc files.
      hdrs: headers.
      deps: algorithm libraries.
      support_deps: other support libraries.
      cuda_deps: the CUDA libraries of deps.
    """
    _op_library(name, deps, support_deps, cuda_deps, srcs = srcs, hdrs = hdrs)

def _op_library(name, deps, support_deps, cuda_deps, **attributes):
    algorithms = deps + (cuda_deps if CUDA_ENABLED else [])
    cc_headers(
        name = name + "_algorithm_headers",
        deps = algorithms,
    )
    _glue_library(
        name,
        headers = ":%s_algorithm_headers" % name,
        deps = [_glue(dep) for dep in support_deps],
        **attributes
    )
    cc_library(
        name = name + "_algorithms",
        deps = algorithms + [_with_suffix(dep, "_algorithms") for dep in support_deps],
    )
    cc_library(
        name = name,
        deps = [":%s_glue" % name, ":%s_algorithms" % name],
    )

def tfo_op_library(name, ops, kernels, deps = [], support_deps = [], cuda_deps = []):
    """Op definitions and OpKernels: the only C++ that includes TensorFlow.

    All files are compiled as one translation unit, because TensorFlow's headers take
    most of the time. Names in their unnamed namespaces must differ.

    Targets: `name`, `name_src`, `name_glue`, `name_glue_2_18`, ..., `name_algorithms`.
    List `name` in op_libraries of the tfo_op_family to include the ops in the wheel.

    Args:
      name: the library's name.
      ops: cc/ops/*.cc: REGISTER_OP, shape functions, C++ gradients.
      kernels: cc/kernels/*_op.cc and headers that they share.
      deps: the algorithm libraries that the kernels call.
      support_deps: tfo_op_support_library targets; core's op_util is always one.
      cuda_deps: the CUDA libraries of deps.
    """
    files = [src for src in ops + kernels if src.endswith(".cc")]
    package = native.package_name() + "/" if native.package_name() else ""
    native.genrule(
        name = name + "_src",
        outs = [name + ".cc"],
        cmd = "printf '#include \"%%s\"\\n' %s >$@" % " ".join([package + file for file in files]),
    )
    _op_library(
        name,
        deps,
        support_deps + [_CORE["op_util"]],
        cuda_deps,
        srcs = [":" + name + "_src"] + [src for src in ops + kernels if src not in files],
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

def _symbols_test(name, libraries):
    """Tests that the linker cannot mix objects of instruction sets. Targets: `name_objects`, `name_symbols_test`."""
    kernel_objects(
        name = name + "_objects",
        deps = libraries,
    )
    py_test(
        name = name + "_symbols_test",
        size = "small",
        srcs = [_SIMD_SYMBOLS_TEST],
        args = ["$(rootpaths :%s_objects)" % name],
        data = [":%s_objects" % name],
        main = _SIMD_SYMBOLS_TEST,
        python_version = "PY3",
    )

def tfo_shared_object(name, deps, xla = False):
    """A shared object that Python loads. It contains all of `deps` and exports no symbols.

    The CUDA run time precedes TensorFlow's framework library on the link line;
    otherwise its symbols would bind to TensorFlow's stubs.

    Targets: `name`; without `xla` also `name_symbols_test`.

    Args:
      name: the file's name, ending in .so.
      deps: op libraries.
      xla: whether they use XLA's compiler.
    """
    if not xla:
        _symbols_test(name, [_with_suffix(dep, "_algorithms") for dep in deps])
    _shared_object(
        name,
        deps,
        symbols = _HIDE_ALL_SYMBOLS,
        libraries = [_CONFIGURED.framework] + ([_TENSORFLOW_CC] if xla else []),
    )

def tfo_split_shared_objects(name, algorithms, deps):
    """Shared objects for several releases of TensorFlow over one of the algorithms.

    Targets: `algorithms`; NAME.so for the configured release; NAME_2_18.so, ... for the others; NAME_symbols_test.

    Args:
      name: the file names' first part.
      algorithms: the file name of the shared object with the algorithms. It contains the
        version of the package, because the loader takes the first object of a name.
      deps: op libraries.
    """
    libraries = [_with_suffix(dep, "_algorithms") for dep in deps]
    _symbols_test(name, libraries)
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
    for build in _TENSORFLOW_BUILDS:
        _shared_object(
            name + build.suffix + ".so",
            deps = [_with_suffix(_glue(dep), build.suffix) for dep in deps],
            symbols = _HIDE_ALL_SYMBOLS,
            libraries = [":" + algorithms, build.framework],
            linkopts = ["-Wl,-rpath,$$ORIGIN"],
            tags = build.tags,
        )

def tfo_py_library(name, srcs, data = [], deps = []):
    """Python wrappers and gradients. Targets: `name`.

    Args:
      name: the library's name.
      srcs: .py files.
      data: files to ship next to srcs.
      deps: other Python libraries.
    """
    py_library(
        name = name,
        srcs = srcs,
        data = data,
        srcs_version = "PY3",
        deps = deps,
    )

def tfo_op_family(name, srcs, op_libraries, deps = []):
    """A family of ops: its Python library and all of its kernels.

    Listing the family in OP_FAMILIES of tensorflow_ops/BUILD puts it into the wheel.

    Targets: `name`, `name_kernels` with the suffixes of tfo_op_library.

    Args:
      name: the family's name.
      srcs: .py files.
      op_libraries: tfo_op_library targets.
      deps: other Python libraries.
    """
    for suffix in ["", "_algorithms"] + ["_glue" + build.suffix for build in _TENSORFLOW_BUILDS]:
        cc_library(
            name = name + "_kernels" + suffix,
            tags = ["manual"],
            deps = [library + suffix for library in op_libraries],
        )
    tfo_py_library(
        name = name,
        srcs = srcs,
        deps = deps,
    )

def tfo_algorithm_test(name, srcs, deps, cuda_deps = []):
    """A C++ test of algorithm files. --config=asan, ubsan and tsan run these tests.

    With cuda_deps, the test emulates CUDA kernels on the CPU. With --config=cuda,
    `name_on_gpu` is the same test as a program for a machine with a GPU, which
    needs only the driver there. tools/gpu/run.sh builds the same without Bazel.

    Targets: `name`; with cuda_deps `name_cases`, `name_on_gpu`.

    Args:
      name: the test's name.
      srcs: .cc files, using core/cc/testing.h; gpu_testing.h for CUDA.
      deps: the libraries under test.
      cuda_deps: the tfo_cuda_library targets under test.
    """
    attributes = {
        "srcs": srcs,
        "copts": _COPTS + _optimized("-O1"),
        "linkstatic": True,
        "local_defines": _LEVEL_DEFINES,
    }
    deps = deps + [_CORE["testing"]]
    if cuda_deps:
        cc_library(
            name = name + "_cases",
            testonly = True,
            alwayslink = True,
            deps = deps + [_CORE["gpu_testing"]],
            **attributes
        )
        attributes = {"linkstatic": True}
        deps = [":" + name + "_cases"]
    cc_test(
        name = name,
        size = "medium",
        tags = ["algorithm"],
        deps = deps + [dep + "_emulated" for dep in cuda_deps] + ([_CORE["gpu_testing_cuda_emulated"]] if cuda_deps else []),
        **attributes
    )
    if cuda_deps and CUDA_ENABLED:
        cc_binary(
            name = name + "_on_gpu",
            testonly = True,
            tags = ["on_gpu"],
            linkopts = ["-static-libgcc", "-l:libstdc++.a", "-Wl,--as-needed"],
            deps = deps + cuda_deps + [_CORE["gpu_testing_cuda"]],
            **attributes
        )

def tfo_py_test_library(name, srcs, deps = []):
    """Modules for tests, which import them by file name. The names end in _testing.py.

    They are not part of the wheel; tools/test_wheel.sh copies them next to the tests.
    Targets: `name`.

    Args:
      name: the library's name.
      srcs: .py files in one folder.
      deps: others that they import.
    """
    py_library(
        name = name,
        testonly = True,
        srcs = srcs,
        imports = [srcs[0].rpartition("/")[0]],
        srcs_version = "PY3",
        deps = deps,
    )

def tfo_py_test(name, srcs, deps = None, size = "medium", shard_count = None):
    """A Python test of the public package: `import tensorflow_ops as tfo`.

    The same file runs under pytest against the installed wheel, so it reads
    nothing from Bazel's runfiles. Targets: `name`.

    Args:
      name: the test's name.
      srcs: a list with one file.
      deps: the imported libraries, if not only tensorflow_ops.
      size: Bazel's size; "large" for tests that start many processes.
      shard_count: Bazel's shard_count, for tests that take minutes.
    """
    _py_test(name, srcs, srcs[0], [], [], deps, size, shard_count)

def tfo_py_tests(name, srcs, data = [], deps = None, size = "large", shard_count = None):
    """Python tests as tfo_py_test, in one process (run_tests.py).

    Args:
      name: the test's name.
      srcs: a list of files.
      data: files that they read, beside them.
      deps: the imported libraries, if not only tensorflow_ops.
      size: Bazel's size.
      shard_count: Bazel's shard_count.
    """
    args = ["$(rootpath %s)" % src for src in srcs]
    _py_test(name, srcs + [_RUN_TESTS], _RUN_TESTS, args, data, deps, size, shard_count)

def _py_test(name, srcs, main, args, data, deps, size, shard_count):
    py_test(
        name = name,
        srcs = srcs,
        args = args,
        data = data,
        main = main,
        python_version = "PY3",
        size = size,
        shard_count = shard_count,
        deps = [Label("//tensorflow_ops")] if deps == None else deps,
    )
