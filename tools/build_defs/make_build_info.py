"""Writes tensorflow_ops/core/python/build_info.py: the versions that this build is for."""

import pathlib
import re
import sys


def main(output, pyproject, tensorflow, cuda, architectures):
    version = re.search(r'^version = "(.*)"$', pathlib.Path(pyproject).read_text(), re.MULTILINE)[1]
    pathlib.Path(output).write_text(
        f'''"""The versions that this build of tensorflow_ops is for. Generated."""

VERSION = {version!r}
TENSORFLOW_VERSION = {tensorflow!r}
CUDA_VERSION = {cuda!r}
CUDA_ARCHITECTURES = {tuple(architectures.split())!r}
'''
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
