"""Writes tensorflow_ops/core/python/build_info.py: the versions that this build is for."""

import pathlib
import sys


def _kernels(releases):
    pairs = [release.split("=") for release in releases]
    return {".".join(full.split(".")[:2]): (f"_tensorflow_ops{suffix}.so", full) for suffix, full in pairs}


def main(output, version, tensorflow, cuda, architectures, *releases):
    """Writes the file. Each of `releases` is a suffix and a version of TensorFlow, such as _2_18=2.18.1."""
    pathlib.Path(output).write_text(
        f'''"""The versions that this build of tensorflow_ops is for. Generated."""

VERSION = {version!r}
TENSORFLOW_VERSION = {tensorflow!r}
# Minor release -> the shared object that serves it and later ones up to the next, and what
# it was built against.
KERNELS = {_kernels([*releases, f"={tensorflow}"])!r}
CUDA_VERSION = {cuda!r}
CUDA_ARCHITECTURES = {tuple(architectures.split())!r}
'''
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
