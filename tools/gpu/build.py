"""Builds the algorithm files and their C interface (*c_api.cc) with nvcc and g++ alone.

Which files there are and with which flags is written in the BUILD files and in tools/build_defs/*.bzl. They are read
here as the Python that they nearly are, so that this build and Bazel's do not differ.
"""

import argparse
import builtins
import concurrent.futures
import dataclasses
import itertools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "gpu"
CUDA_CONFIGURE = "third_party/cuda/cuda_configure.bzl"
# What Bazel itself and .bazelrc add to each C++ command.
CXX = ["g++", "-std=c++17", "-DNDEBUG", "-fPIC", "-I."]


class BuildError(Exception):
    """Says what is wrong, and what the compiler said."""


class Names(dict):
    """A namespace where an unknown NAME is an empty list, any other unknown name a function that does nothing."""

    def __missing__(self, name):
        if hasattr(builtins, name):
            raise KeyError(name)
        return [] if name.isupper() else lambda *args, **kwargs: None


def run_starlark(path, **names):
    """Runs a .bzl or BUILD file; returns its names. Those given stand for what it would load()."""
    namespace = Names(names)
    exec(compile((ROOT / path).read_text(), path, "exec"), namespace)
    return types.SimpleNamespace(**namespace)


class BazelRules:
    """Stands for Bazel's `native` rules: notes what is to be compiled."""

    def __init__(self):
        self.folder = ""
        self.cxx = []  # (file, flags, the object's place in bazel-bin), in the order of the BUILD files
        self.cuda = []  # (file, the object's place in bazel-bin)
        self._generated = {}  # label -> the files it is made of

    def cc_library(self, name, srcs=(), copts=(), local_defines=(), **_):
        flags = [*copts, *("-D" + define for define in local_defines)]
        for label in srcs:
            for src in self._generated.get(label, [label]):
                if src.endswith(".cc"):
                    stem = pathlib.PurePath(src).name.removesuffix(".cc")
                    self.cxx.append((f"{self.folder}/{src}", flags, f"{self.folder}/_objs/{name}/{stem}.pic.o"))

    def py_test(self, **_):
        pass  # tests compile nothing

    def genrule(self, name, srcs=(), **_):
        self._generated[":" + name] = srcs

    def cuda_objects(self, srcs, **_):
        for src in srcs:
            stem = pathlib.PurePath(src).name.removesuffix(".cu.cc")
            self.cuda.append((f"{self.folder}/{src}", f"{self.folder}/{stem}.cu.pic.o"))


def read_build_files(emulated):
    """Returns the BazelRules of every BUILD file: its algorithms, and its kernels for nvcc or for g++."""
    rules = BazelRules()
    macros = run_starlark(
        "tools/build_defs/op_family.bzl",
        load=lambda *args: None,
        Label=str,
        select=lambda choices: choices["//tools/build_defs:opt"],
        native=rules,
        cc_library=rules.cc_library,
        cuda_objects=rules.cuda_objects,
        CUDA_ENABLED=True,
        BUILT_CPU_LEVELS=["baseline", "avx2", "avx512"],
    )

    def algorithm_library(name, **kwargs):
        if name != "testing":  # has a main()
            macros.tfo_algorithm_library(name, **kwargs)

    names = {"tfo_algorithm_library": algorithm_library}
    kernels = "tfo_emulated_cuda_library" if emulated else "tfo_cuda_library"
    names[kernels] = getattr(macros, kernels)
    for path in sorted((ROOT / "tensorflow_ops").glob("*/BUILD")):
        rules.folder = str(path.parent.relative_to(ROOT))
        run_starlark(f"{rules.folder}/BUILD", **names)
    if not (rules.cxx and (emulated or rules.cuda)):
        raise BuildError("no kernels were found: the BUILD files use rules that build.py does not know")
    return rules


def find_cuda(architectures):
    """Returns what third_party/cuda/describe_cuda.py finds: nvcc, cudart_static, version, architectures."""
    configure = run_starlark(CUDA_CONFIGURE)
    script = [sys.executable, "third_party/cuda/describe_cuda.py", configure.CUDA_MAJOR]
    arguments = [os.environ.get("CUDA_HOME", ""), architectures or configure.DEFAULT_ARCHITECTURES]
    facts = json.loads(subprocess.run([*script, *arguments], cwd=ROOT, check=True, capture_output=True).stdout)
    if "error" in facts:
        raise BuildError(facts["error"])
    return facts


@dataclasses.dataclass(frozen=True)
class Compilation:
    """One object file."""

    object: pathlib.Path
    command: list

    def is_up_to_date(self):
        try:
            if self.object.with_suffix(".cmd").read_text() != shlex.join(self.command):
                return False
            built = self.object.stat().st_mtime
            words = self.object.with_suffix(".d").read_text().replace("\\\n", " ").split()
            return all((ROOT / word).stat().st_mtime <= built for word in words if not word.endswith(":"))
        except FileNotFoundError:
            return False

    def run(self):
        """Compiles; returns what the compiler said."""
        if self.is_up_to_date():
            return self.object.with_suffix(".log").read_text()
        self.object.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(self.command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise BuildError(f"{shlex.join(self.command)}\n{done.stdout}")
        self.object.with_suffix(".log").write_text(done.stdout)
        self.object.with_suffix(".cmd").write_text(shlex.join(self.command))
        return done.stdout


def build(emulated, architectures, jobs, bazel_bin):
    """Builds and links what changed; returns the shared object's path and ptxas's report, a line per kernel."""
    rules = read_build_files(emulated)
    for file in sorted((ROOT / "tools/gpu").glob("*c_api.cc")):
        rules.cxx.append((str(file.relative_to(ROOT)), rules.cxx[0][1], ""))
    folder = FOLDER / ("emulated" if emulated else "cuda")
    objects, compilations = [], []

    def add(file, command, built, variant=""):
        if bazel_bin and built and (bazel_bin / built).exists():
            objects.append(str(bazel_bin / built))
            return
        object = folder / (file.replace("/", "__") + variant + ".o")
        dependencies = ["-MMD", "-MF", str(object.with_suffix(".d"))]
        compilations.append(Compilation(object, [*command, *dependencies, "-c", file, "-o", str(object)]))
        objects.append(str(object))

    for file, flags, built in rules.cxx:
        level = "".join(flag.partition("=")[2] for flag in flags if flag.startswith("-DTFO_CPU_NAMESPACE="))
        # g++ takes .cu.cc for C++.
        add(file, [*CXX, *flags], built, level and "." + level)
    link = ["-ldl", "-lrt", "-lpthread"]
    if not emulated:
        cuda = find_cuda(architectures)
        nvcc = run_starlark(
            "tools/build_defs/cuda_objects.bzl",
            load=lambda *args: None,
            attr=types.SimpleNamespace(label_list=lambda **kwargs: None),
            rule=lambda **kwargs: None,
            CcInfo=None,
            CUDA_ARCHITECTURES=cuda["architectures"],
            CUDA_NVCC=cuda["nvcc"],
            CUDA_VERSION=cuda["version"],
        )
        flags = [*nvcc._FLAGS, *nvcc._architecture_flags(), "-Xptxas=-v", "-I.", "-x", "cu"]
        for file, built in rules.cuda:
            add(file, [cuda["nvcc"], *flags], built)
        link = [cuda["cudart_static"], *link]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "build.txt").write_text(f"nvcc {cuda['version']} for sm_{', sm_'.join(cuda['architectures'])}\n")

    if bazel_bin:
        print(f"  {len(objects) - len(compilations)} objects from {bazel_bin}", file=sys.stderr)
        if len(compilations) == len(objects):
            raise BuildError(f"{bazel_bin} has no objects of this repository: build it with Bazel first")
    done = itertools.count(1)

    def compile_one(compilation):
        log = compilation.run()
        name = compilation.object.relative_to(FOLDER)
        print(f"  [{next(done)} / {len(compilations)}] {name}", file=sys.stderr, flush=True)
        return log

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        logs = list(pool.map(compile_one, compilations))
    library = folder / "libtfo_ops.so"
    command = ["g++", "-shared", "-Wl,-Bsymbolic", "-Wl,--no-undefined", "-o", str(library), *objects, *link]
    linked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if linked.returncode != 0:
        raise BuildError(f"{shlex.join(command)}\n{linked.stderr}")
    return library, resources("\n".join(logs))


def resources(log):
    """Makes of `ptxas -v` a line per kernel and architecture."""
    report = re.compile(
        r"entry function '(?P<name>\S+)' for '(?P<arch>\S+)'.*?(?P<stack>\d+) bytes stack frame, "
        r"(?P<stored>\d+) bytes spill stores.*?Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
        re.DOTALL,
    )
    lines = []
    for kernel in report.finditer(log):
        shared = re.search(r"(\d+) bytes smem", kernel["rest"])
        lines.append(
            f"{kernel['arch']} {kernel['name']}: {kernel['registers']} registers, {kernel['stack']} B stack, "
            f"{kernel['stored']} B spilled, {shared[1] if shared else 0} B shared"
        )
    text = subprocess.run(["c++filt"], input="\n".join(sorted(lines)), capture_output=True, text=True).stdout
    text = re.sub(r"void |tfo::|\(anonymous namespace\)::", "", text)
    return re.sub(r"\(.*\)(?=:)", "", text)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--archs", default=os.environ.get("TFO_CUDA_ARCHITECTURES"), help='such as "80 90"')
    parser.add_argument("--emulated", action="store_true", help="kernels compiled by g++, run on the processor")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--objects", type=pathlib.Path, help="take what Bazel compiled there: bazel-bin")
    args = parser.parse_args()
    try:
        library, report = build(args.emulated, args.archs, args.jobs, args.objects)
    except BuildError as error:
        sys.exit(f"ERROR: {error}")
    if report:
        library.with_name("resources.txt").write_text(report)
    print(library)


if __name__ == "__main__":
    main()
