"""Loads PyTorch, torchvision and torchaudio as peers if they are installed."""

import ctypes
import functools
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile

THREADS = 2

# Lives as long as the process, which maps the libraries from this folder.
_stubs = None


def _load_cuda_stubs(extension: pathlib.Path) -> None:
    """Loads stubs of the CUDA libraries that a CUDA build of torchvision needs.

    PyPI's torchvision is a CUDA build. With a CPU-only torch, its extension loads and
    its CPU ops run if libraries of these names exist; CPU ops call none of their symbols.
    """
    global _stubs
    _stubs = tempfile.TemporaryDirectory()
    folder = pathlib.Path(_stubs.name)

    def output(*command):
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    # "symbol" or "symbol@version"; versions are named after their libraries.
    wanted = [line.split()[-1] for line in output("nm", "-D", "--undefined-only", extension).splitlines()]
    for name in re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-d", extension)):
        if "cuda" not in name:
            continue
        versioned = [w.split("@")[0] for w in wanted if w.endswith("@" + name)]
        symbols = versioned or [w for w in wanted if "cuda" in w and "@" not in w]
        source, script = folder / "stub.c", folder / "stub.lds"
        source.write_text("".join(f"long {symbol}(void) {{ return 0; }}\n" for symbol in symbols))
        script.write_text(f"{name} {{ *; }};" if versioned else "{ global: *; };")
        options = ["-shared", "-fPIC", "-w", f"-Wl,-soname,{name}", f"-Wl,--version-script={script}"]
        output("gcc", *options, source, "-o", folder / name)
        ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)


@functools.cache
def torch():
    """Returns torch, or None if it is not installed."""
    if importlib.util.find_spec("torch") is None:
        return None
    # Otherwise its workers occupy cores after each call, which slows the next candidate down.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import torch

    torch.set_num_threads(THREADS)
    return torch


@functools.cache
def torchvision():
    """Returns (torch, torchvision.ops), or None, with a note, if they are not installed."""
    if torch() is None or importlib.util.find_spec("torchvision") is None:
        print("torchvision is not installed and is omitted (see benchmarks/README.md)", file=sys.stderr)
        return None
    if not torch().cuda.is_available():
        folder = pathlib.Path(importlib.util.find_spec("torchvision").origin).parent
        for extension in folder.glob("_C*.so"):
            _load_cuda_stubs(extension)
    import torchvision

    try:
        torch().ops.torchvision.roi_pool  # noqa: B018  (the attribute exists if the extension loaded)
    except (AttributeError, RuntimeError) as error:
        print(f"torchvision's ops do not load beside this torch: {error}", file=sys.stderr)
        return None
    return torch(), torchvision.ops


@functools.cache
def torchaudio():
    """Returns torch with torchaudio's ops, from the shared objects in TORCHAUDIO (PATH:PATH, loaded in order), or None.

    torchaudio's wheel needs libraries of CUDA: stubs of them, given first, do.
    """
    if torch() is None or "TORCHAUDIO" not in os.environ:
        return None
    for library in os.environ["TORCHAUDIO"].split(":"):
        ctypes.CDLL(library, os.RTLD_LAZY | os.RTLD_GLOBAL)
    return torch()
