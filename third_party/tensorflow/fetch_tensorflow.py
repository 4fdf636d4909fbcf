"""Fetches the headers and the framework library of a release of TensorFlow; prints their paths as JSON.

Usage: fetch_tensorflow.py VERSION CACHE_FOLDER

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
_HEADERS = "tensorflow/include/"
_PLATFORMS = ("manylinux2014", "manylinux_2_17", "manylinux_2_27", "manylinux_2_28")


def _download(version, folder):
    # Not for this Python: 2.18, for example, has no wheel for Python 3.13.
    target = ["--only-binary=:all:", "--implementation=cp", "--python-version=3.11"]
    target += [f"--platform={platform}_x86_64" for platform in _PLATFORMS]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "download", "--no-deps", "--no-cache-dir"]
    command = [*pip, *target, "-d", str(folder), f"tensorflow-cpu=={version}"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return next(folder.glob("*.whl"))


def _fetch(version, cache):
    folder = pathlib.Path(cache) / f"tensorflow-{version}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=f"tensorflow-{version}.") as work:
            work = pathlib.Path(work)
            with zipfile.ZipFile(_download(version, work)) as wheel:
                names = [name for name in wheel.namelist() if name.startswith(_HEADERS) or name == _LIBRARY]
                wheel.extractall(work / "unpacked", names)
            try:
                # Last, so that the folder is complete whenever it exists.
                (work / "unpacked").rename(folder)
            except OSError:
                if not folder.exists():  # another build was faster
                    raise
    return {"include": str(folder / _HEADERS), "library": str(folder / _LIBRARY)}


try:
    print(json.dumps(_fetch(*sys.argv[1:]), ensure_ascii=False))
except subprocess.CalledProcessError as error:
    message = f"TensorFlow {sys.argv[1]} could not be downloaded: {error.stderr.strip()[-500:]}"
    print(json.dumps({"error": message}, ensure_ascii=False))
