"""Finds CUDA's compiler or downloads it; prints its location as JSON.

usage: describe_cuda.py MAJOR CUDA_HOME ARCHITECTURES
If the machine has no toolkit of CUDA MAJOR (12 or 13), assembles one from packages, once, in the
cache folder that all clones share ($TENSORFLOW_OPS_CACHE, default ~/.cache/tensorflow_ops).
ARCHITECTURES are compute capabilities; none: all that the compiler has of those that wheels serve.
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

# What toolkits are assembled from: wheels of PyPI, all pinned, because nvcc alone would install newer
# parts. To update them, use the versions of one release of the `nvidia-*` packages. For CUDA 12, PyPI has
# no compiler (debian_nvcc.sh has), and only newer releases have the static run time and nv/target.
WHEELS = {
    "12": (
        "nvidia-cuda-nvcc-cu12==12.4.131",
        "nvidia-cuda-runtime-cu12==12.4.127",
        "nvidia-cuda-runtime-cu12==12.9.79",
        "nvidia-cuda-cccl-cu12==12.9.27",
    ),
    "13": (
        "nvidia-cuda-nvcc==13.0.88",
        "nvidia-cuda-crt==13.0.88",
        "nvidia-nvvm==13.0.88",
        "nvidia-cuda-runtime==13.0.96",
        "nvidia-cuda-cccl==13.0.85",
    ),
}

# Compute capabilities for which wheels have machine code.
ARCHITECTURES = ("70", "75", "80", "86", "89", "90", "100", "120")

# What an ordinary toolkit's nvcc.profile says. Debian's names Debian's folders.
PROFILE = """
TOP = $(_HERE_)/..
CICC_PATH = $(TOP)/nvvm/bin
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH += $(CICC_PATH):$(_HERE_):
INCLUDES += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES =+ $(_SPACE_) "-L$(TOP)/lib64"
"""


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


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def download(wheels, work):
    """Unpacks wheels. Returns the folder of each in work."""
    folders = []
    for wheel in wheels:
        folder = work / wheel
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "download", "--no-deps", "-d", folder]
        run(*pip, wheel)
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
            archive.extractall(folder)
        folders.append(folder)
    return folders


def assemble_12(work, home):
    """Makes a toolkit in `home` from Debian's compiler, and headers and run time of wheels."""
    run("bash", pathlib.Path(__file__).resolve().parents[2] / "tools/setup/debian_nvcc.sh", work)
    own, shared = work / "debian/usr/lib/nvidia-cuda-toolkit", work / "debian/usr/bin"
    for folder in ("bin", "nvvm/bin", "include", "lib64"):
        (home / folder).mkdir(parents=True)
    programs = ("ptxas", "fatbinary", "cudafe++", "nvlink", "cuobjdump")
    for program in (own / "bin/nvcc", *(shared / name for name in programs)):
        shutil.copy(program, home / "bin")
    shutil.copytree(own / "bin/crt", home / "bin/crt")
    shutil.copy(own / "bin/cicc", home / "nvvm/bin")
    shutil.copytree(own / "libdevice", home / "nvvm/libdevice")
    (home / "bin/nvcc.profile").write_text(PROFILE)
    nvcc, runtime, newer_runtime, cccl = (folder / "nvidia" for folder in download(WHEELS["12"], work))
    for include in (runtime / "cuda_runtime/include", nvcc / "cuda_nvcc/include"):
        shutil.copytree(include, home / "include", dirs_exist_ok=True)
    shutil.copytree(cccl / "cuda_cccl/include/nv", home / "include/nv")
    shutil.copy(newer_runtime / "cuda_runtime/lib/libcudart_static.a", home / "lib64")


def assemble_13(work, home):
    """Makes a toolkit in `home` from wheels, whose files are where a toolkit has them."""
    for folder in download(WHEELS["13"], work):
        shutil.copytree(next(folder.glob("nvidia/*")), home, dirs_exist_ok=True)
    for program in (*home.glob("bin/*"), *home.glob("nvvm/bin/*")):
        if program.is_file():
            program.chmod(0o755)


def fetch(major):
    """Returns the toolkit's folder in the cache, after assembling it if necessary."""
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cache = pathlib.Path(os.environ.get("TENSORFLOW_OPS_CACHE") or os.path.join(caches, "tensorflow_ops"))
    recipe = hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()[:12]
    folder = cache / f"cuda-{major}-{recipe}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        # Renames the folder when it is complete, so that interrupted and concurrent runs do no harm.
        with tempfile.TemporaryDirectory(dir=cache, prefix=f"{folder.name}.") as work:
            home = pathlib.Path(work, "home")
            {"12": assemble_12, "13": assemble_13}[major](pathlib.Path(work), home)
            try:
                home.rename(folder)
            except OSError:
                if not folder.exists():
                    raise
    return folder


def with_architectures(facts, architectures):
    """Adds the architectures to a toolkit's facts."""
    if not architectures:
        known = re.findall(r"compute_(\w+)", run(facts["nvcc"], "--list-gpu-arch"))
        return facts | {"architectures": [a for a in ARCHITECTURES if a in known]}
    numbers = architectures.split()
    if not all(re.fullmatch(r"\d{2,3}[af]?", n) for n in numbers):
        return {
            "error": f"TFO_CUDA_ARCHITECTURES is {architectures!r}; expected compute capabilities such as '80 90', "
            "oldest first."
        }
    return facts | {"architectures": numbers}


def find(major, cuda_home):
    """Returns the facts of a toolkit, or an error."""
    if major not in WHEELS:
        return {"error": f"TFO_CUDA_MAJOR is {major!r}; expected 12 or 13."}
    if cuda_home:
        facts, why = toolkit(cuda_home, major)
        if facts is None:
            return {"error": f"CUDA_HOME cannot be used: {why}. Set TFO_CUDA_MAJOR, or unset CUDA_HOME."}
        return facts
    on_path = shutil.which("nvcc")
    places = ["/usr/local/cuda", f"/usr/local/cuda-{major}"]
    if on_path:
        places.insert(0, str(pathlib.Path(on_path).resolve().parent.parent))
    for place in places:
        if os.path.exists(place):
            facts, _ = toolkit(place, major)
            if facts is not None:
                return facts
    try:
        home = fetch(major)
    except subprocess.CalledProcessError as error:
        return {
            "error": f"There is no CUDA {major} toolkit on this machine, and its packages could not be downloaded "
            f"({error.stderr.strip()[-700:]}). Set CUDA_HOME to a toolkit."
        }
    facts, why = toolkit(home, major)
    return facts or {"error": f"The toolkit from packages cannot be used: {why}."}


def answer(major, cuda_home, architectures):
    facts = find(major, cuda_home)
    return facts if "error" in facts else with_architectures(facts, architectures)


print(json.dumps(answer(*sys.argv[1:]), ensure_ascii=False))
