"""Writes libraries without code, which let a build with libcudart_static.a run with an old glibc.

usage: glibc_stubs.py LIBCUDART_STATIC
glibc 2.34 merged libdl, libpthread and librt into libc. What is linked with it since then needs
2.34 for each function that moved, although glibc keeps their former versions. These libraries
define those that CUDA's run time calls, in their former versions, under the names of the
former libraries: the real ones are found when the program runs. Prints the files' names as JSON.
"""

import json
import re
import subprocess
import sys

LIBRARIES = {
    "dl": ("libdl.so.2", r"dl"),
    "pthread": ("libpthread.so.0", r"pthread_|sem_"),
    "rt": ("librt.so.1", r"shm_"),
}


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def moved_functions():
    """Returns the former version of each function that glibc 2.34 moved, by name."""
    libc = output("gcc", "-print-file-name=libc.so.6").strip()
    versions = {}
    for version, function in re.findall(r"\s\(?(GLIBC_[\d.]+)\)?\s+(\w+)$", output("objdump", "-T", libc), re.M):
        versions.setdefault(function, set()).add(version)
    return {f: min(vs - {"GLIBC_2.34"}) for f, vs in versions.items() if "GLIBC_2.34" in vs and len(vs) == 2}


def write(name, soname, functions):
    """Writes NAME.so; functions: the version of each."""
    with open(f"{name}.c", "w") as source:
        source.writelines(f"void {function}(void) {{}}\n" for function in functions)
    with open(f"{name}.map", "w") as script:
        for version in sorted(set(functions.values())):
            names = "; ".join(f for f in sorted(functions) if functions[f] == version)
            script.write(f"{version} {{ global: {names}; }};\n")
    flags = ["-shared", "-nostdlib", "-fno-builtin", f"-Wl,-soname,{soname}", f"-Wl,--version-script={name}.map"]
    output("gcc", *flags, "-o", f"{name}.so", f"{name}.c")


def main(archive):
    called = set(re.findall(r" U (\w+)$", output("nm", archive), re.M))
    moved = {function: version for function, version in moved_functions().items() if function in called}
    stubs = []
    for library, (soname, pattern) in LIBRARIES.items():
        functions = {f: version for f, version in moved.items() if re.match(pattern, f)}
        if functions:
            write(f"lib{library}", soname, functions)
            stubs.append(f"lib{library}")
    print(json.dumps({"stubs": stubs}))


main(*sys.argv[1:])
