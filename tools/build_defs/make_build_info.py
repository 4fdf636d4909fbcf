"""Writes tensorflow_ops/core/python/build_info.py: what this build was made for."""

import pathlib
import sys

import setuptools  # For its TOML reader: Python 3.10 has none of its own.
from setuptools.compat.py310 import tomllib

del setuptools


def main(output, pyproject, tensorflow, cuda, architectures):
    version = tomllib.loads(pathlib.Path(pyproject).read_text())["project"]["version"]
    pathlib.Path(output).write_text(
        f'''"""What this build of tensorflow_ops was made for. Written by its build."""

VERSION = {version!r}
TENSORFLOW_VERSION = {tensorflow!r}
CUDA_VERSION = {cuda!r}
CUDA_ARCHITECTURES = {tuple(architectures.split())!r}
'''
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
