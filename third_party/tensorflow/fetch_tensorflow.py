"""Fetches the headers and libraries of a release of TensorFlow; prints their paths as JSON.

Usage: fetch_tensorflow.py VERSION CACHE_FOLDER CPU

CPU is x86_64 or aarch64.

They are the same for every Python, so this takes any wheel of the release. It downloads 240 MB and
keeps 230 MB in the cache folder, which all clones share.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

_LIBRARY = "tensorflow/libtensorflow_framework.so.2"
_CC_LIBRARY = "tensorflow/libtensorflow_cc.so.2"
_HEADERS = "tensorflow/include/"
_PLATFORMS = ("manylinux2014", "manylinux_2_17", "manylinux_2_26", "manylinux_2_27", "manylinux_2_28")
# Without CUDA.
_PACKAGES = {"x86_64": "tensorflow-cpu", "aarch64": "tensorflow"}


def _download(version, folder, cpu):
    # Not for this Python: 2.18, for example, has no wheel for Python 3.13.
    target = ["--only-binary=:all:", "--implementation=cp", "--python-version=3.11"]
    target += [f"--platform={platform}_{cpu}" for platform in _PLATFORMS]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "download", "--no-deps", "--no-cache-dir"]
    command = [*pip, *target, "-d", str(folder), f"{_PACKAGES[cpu]}=={version}"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return next(folder.glob("*.whl"))


def _fetch(version, cache, cpu):
    folder = pathlib.Path(cache) / (f"tensorflow-{version}" + ("" if cpu == "x86_64" else f"-{cpu}"))
    # An x86-64 build with XLA uses the installed TensorFlow.
    libraries = [_LIBRARY] if cpu == "x86_64" else [_LIBRARY, _CC_LIBRARY]
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=f"tensorflow-{version}.") as work:
            work = pathlib.Path(work)
            with zipfile.ZipFile(_download(version, work, cpu)) as wheel:
                names = [name for name in wheel.namelist() if name.startswith(_HEADERS) or name in libraries]
                wheel.extractall(work / "unpacked", names)
            try:
                # Last, so that the folder is complete whenever it exists.
                (work / "unpacked").rename(folder)
            except OSError:
                if not folder.exists():  # another build was faster
                    raise
    paths = {"include": folder / _HEADERS, "library": folder / _LIBRARY, "cc_library": folder / _CC_LIBRARY}
    return {name: str(path) for name, path in paths.items() if path.exists()}


try:
    print(json.dumps(_fetch(*sys.argv[1:]), ensure_ascii=False))
except subprocess.CalledProcessError as error:
    message = f"TensorFlow {sys.argv[1]} could not be downloaded: {error.stderr.strip()[-500:]}"
    print(json.dumps({"error": message}, ensure_ascii=False))
