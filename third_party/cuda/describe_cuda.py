"""Finds CUDA's compiler or downloads it from PyPI; prints its location as JSON.

usage: describe_cuda.py MAJOR CUDA_HOME ARCHITECTURES
If the machine has no suitable toolkit, unpacks the wheels once into the cache folder that
all clones share ($TENSORFLOW_OPS_CACHE, default ~/.cache/tensorflow_ops).
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

# CUDA 13.0 as wheels. All five are pinned, because nvcc alone would install newer parts.
# To update them, use the versions of one release of the `nvidia-cuda-*` packages.
WHEELS = (
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
)


def toolkit(home, major):
    """Returns (facts, None) for the toolkit in `home`, or (None, reason)."""
    home = pathlib.Path(home).resolve()
    nvcc = home / "bin" / "nvcc"
    if not nvcc.exists():
        return None, f"{home} has no bin/nvcc"
    shown = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout
    release = re.search(r"release (\d+)\.(\d+)", shown)
    if not release:
        return None, f"{nvcc} --version says {shown!r}"
    if release[1] != major:
        return None, f"{home} is CUDA {release[1]}.{release[2]}, and the kernels are built with CUDA {major}"
    for library in ("lib64", "lib", "targets/x86_64-linux/lib"):
        static = home / library / "libcudart_static.a"
        if static.exists():
            break
    else:
        return None, f"{home} has no libcudart_static.a"
    if not any((home / i / "cuda_fp16.h").exists() for i in ("include", "targets/x86_64-linux/include")):
        return None, f"{home} has no cuda_fp16.h"
    return {
        "nvcc": str(nvcc),
        "cudart_static": str(static),
        "version": f"{release[1]}.{release[2]}",
        "watch": [str(nvcc), str(static)],
    }, None


def fetch():
    """Returns the toolkit's folder in the cache, after unpacking it if necessary."""
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cache = pathlib.Path(os.environ.get("TENSORFLOW_OPS_CACHE") or os.path.join(caches, "tensorflow_ops"))
    pins = hashlib.sha256(" ".join(WHEELS).encode()).hexdigest()[:12]
    folder = cache / f"cuda-{pins}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        # Renames the folder when it is complete, so that interrupted and concurrent runs do no harm.
        with tempfile.TemporaryDirectory(dir=cache, prefix=f"cuda-{pins}.") as work:
            command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "download", "--no-deps"]
            subprocess.run([*command, "-d", work, *WHEELS], check=True, capture_output=True, text=True)
            unpacked = pathlib.Path(work) / "unpacked"
            for wheel in sorted(pathlib.Path(work).glob("*.whl")):
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(unpacked)
            for program in [*unpacked.glob("nvidia/*/bin/*"), *unpacked.glob("nvidia/*/nvvm/bin/*")]:
                if program.is_file():
                    program.chmod(0o755)
            try:
                unpacked.rename(folder)
            except OSError:
                if not folder.exists():
                    raise
    return next(folder.glob("nvidia/*/bin/nvcc")).parent.parent


def answer(major, cuda_home, architectures):
    numbers = architectures.split()
    if not numbers or not all(re.fullmatch(r"\d{2,3}[af]?", n) for n in numbers):
        return {
            "error": f"TFO_CUDA_ARCHITECTURES is {architectures!r}; expected compute capabilities such as '80 90', "
            "oldest first."
        }
    found = {"architectures": numbers}
    if cuda_home:
        facts, why = toolkit(cuda_home, major)
        if facts is None:
            return {"error": f"CUDA_HOME cannot be used: {why}. Unset CUDA_HOME to use PyPI's CUDA {major}."}
        return found | facts
    on_path = shutil.which("nvcc")
    places = ["/usr/local/cuda"]
    if on_path:
        places.insert(0, str(pathlib.Path(on_path).resolve().parent.parent))
    for place in places:
        if os.path.exists(place):
            facts, _ = toolkit(place, major)
            if facts is not None:
                return found | facts
    try:
        home = fetch()
    except subprocess.CalledProcessError as error:
        return {
            "error": f"There is no CUDA {major} toolkit on this machine, and its wheels could not be downloaded "
            f"({error.stderr.strip()[-500:]}). Set CUDA_HOME to a toolkit, or make PyPI reachable for pip. "
        }
    facts, why = toolkit(home, major)
    return found | facts if facts else {"error": f"PyPI's CUDA wheels cannot be used: {why}."}


print(json.dumps(answer(*sys.argv[1:]), ensure_ascii=False))
