"""Checks launches of emulated CUDA kernels against what the compiled kernels may have on each GPU.

usage: check_launches.py LAUNCHES WHEEL

LAUNCHES: a folder, which the environment variable TFO_LAUNCHES named when the tests ran
  (core/cc/cuda/cuda_emulation.h).
WHEEL: has the kernels for all compute capabilities.

A launch fails if a block has more threads than __launch_bounds__ or the registers allow, or too much shared memory.
"""

import collections
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import zipfile

REGISTERS = 65536
# Of a block, static and dynamic: without asking for more, and with. (From 9.0 on, static memory includes 1 kB of the
# system's.)
SHARED = 48 << 10
SHARED_OPT_IN = {70: 96, 75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 120: 99, 121: 99}
# cuda_launch.h: kernels ask from this dynamic memory on.
ASKS_FROM = SHARED - (2 << 10)
# Attributes in .nv.info, with the bits of their format: EIATTR_REGCOUNT, EIATTR_MAX_THREADS.
REGISTER_COUNT, MAX_THREADS = 0x2F04, 0x0504


def demangled(lines):
    return subprocess.check_output(["c++filt"], input="\n".join(lines), text=True).split("\n")


def attributes(cubin, at, length):
    """Yields (attribute, its bytes) of a section .nv.info; most have none, but a number instead."""
    end = at + length
    while at < end:
        attribute, size = struct.unpack_from("<2H", cubin, at)
        at += 4
        if attribute & 0xFF != 4:
            size = 0
        yield attribute, cubin[at : at + size]
        at += size


def kernels_of(cubin):
    """Yields (mangled name, registers, static shared memory, most threads) of a cubin, an ELF file."""
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<3H", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + i * size) for i in range(count)]
    sections = {}
    for name, _, _, _, offset, length, _, info, _, _ in headers:
        start = headers[names][4] + name
        sections[cubin[start : cubin.index(b"\0", start)].decode()] = (offset, length, info)
    of_all = attributes(cubin, *sections.get(".nv.info", (0, 0))[:2])
    registers = dict(struct.unpack("<2I", value) for kind, value in of_all if kind == REGISTER_COUNT)
    for section, (_, _, info) in sections.items():
        if section.startswith(".text."):
            kernel = section.removeprefix(".text.")
            own = dict(attributes(cubin, *sections[f".nv.info.{kernel}"][:2]))
            threads = struct.unpack("<3I", own[MAX_THREADS])[0] if MAX_THREADS in own else 1024
            shared = sections.get(f".nv.shared.{kernel}", (0, 0, 0))[1]
            yield kernel, registers[info & 0xFFFFFF], shared, threads


def cuobjdump():
    """Returns the program that unpacks CUDA's machine code, of the toolkit that compiles the kernels."""
    describe = pathlib.Path(__file__).resolve().parents[2] / "third_party/cuda/describe_cuda.py"
    facts = subprocess.check_output([sys.executable, describe, "12", os.environ.get("CUDA_HOME", ""), ""])
    return pathlib.Path(json.loads(facts)["nvcc"]).parent / "cuobjdump"


def compiled(wheel):
    """Returns {kernel: [(architecture, registers, static shared memory, most threads)]}."""
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            (library,) = [name for name in archive.namelist() if "libtensorflow_ops_kernels" in name]
            archive.extract(library, folder)
        subprocess.run([cuobjdump(), "-xelf", "all", library], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        found = []
        for file in pathlib.Path(folder).glob("*.cubin"):
            architecture = int(file.name.split(".")[-2].removeprefix("sm_"))
            found += [(kernel, (architecture, *rest)) for kernel, *rest in kernels_of(file.read_bytes())]
    kernels = collections.defaultdict(list)
    for name, (_, facts) in zip(demangled([kernel for kernel, _ in found]), found, strict=True):
        kernels[name].append(facts)
    return kernels


def launched(folder):
    """Returns {(kernel, threads, dynamic shared memory)}."""
    launches = set()
    for file in pathlib.Path(folder).iterdir():
        program, *lines = file.read_text().splitlines()
        if "/tensorflow_ops/core/" in program:  # its kernels are only for tests
            continue
        symbols = subprocess.check_output(["nm", program], text=True)
        names = {}
        for line in demangled(symbols.splitlines()):
            address, _, name = line.split(" ", 2) if line[:1] in "0123456789abcdef" else ("", "", "")
            names[address.lstrip("0")] = name
        for line in lines:
            address, threads, dynamic = line.split()
            launches.add((names[address], int(threads), int(dynamic)))
    return launches


def fault(threads, dynamic, architecture, registers, static, most_threads):
    """Returns why a GPU refuses a launch, or None."""
    if threads > most_threads:
        return f"{threads} threads, more than the launch bound {most_threads}"
    if -(-registers // 8) * 8 * -(-threads // 32) * 32 > REGISTERS:
        return f"{threads} threads of {registers} registers"
    limit = SHARED_OPT_IN[architecture] << 10 if dynamic > ASKS_FROM else SHARED
    if static + dynamic > limit:
        return f"{static} + {dynamic} bytes of shared memory, more than {limit}"
    return None


def main(folder, wheel):
    kernels, launches = compiled(wheel), launched(folder)
    faults = []
    for kernel, threads, dynamic in sorted(launches):
        if kernel not in kernels:
            faults.append(f"{kernel}: not in the wheel")
        for facts in kernels.get(kernel, ()):
            why = fault(threads, dynamic, *facts)
            if why:
                faults.append(f"{kernel}, sm_{facts[0]}: {why}")
    print(*faults, sep="\n")
    print(f"{len(launches)} kinds of launches, {len(faults)} faults")
    return 1 if faults or not launches else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
