"""Packs the files Bazel built into a wheel, with setuptools. See wheel.bzl."""

import argparse
import os
import pathlib
import shutil
import tempfile

import setuptools
from setuptools.command.bdist_wheel import bdist_wheel


class _Distribution(setuptools.Distribution):
    """Has machine code, although setuptools compiles none."""

    def has_ext_modules(self):
        return True


class _Wheel(bdist_wheel):
    """The shared object calls no CPython function, so any Python 3 can load it."""

    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--pyproject", type=pathlib.Path, required=True)
    parser.add_argument("--local_version", default="")
    parser.add_argument("--metadata_files", type=pathlib.Path, nargs="*", default=[])
    parser.add_argument("--files", type=pathlib.Path, nargs="*", default=[])
    parser.add_argument("--bin_dir", type=pathlib.Path, required=True)
    options = parser.parse_args()

    output = options.output.resolve()
    # Beside the output: it is on a disk with room, which /tmp may not be.
    with tempfile.TemporaryDirectory(dir=output.parent) as staging:
        stage = pathlib.Path(staging)
        for source in [options.pyproject, *options.metadata_files, *options.files]:
            inside = source.relative_to(options.bin_dir) if source.is_relative_to(options.bin_dir) else source
            target = stage / inside
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        os.chdir(stage)
        # The same input gives the same wheel, to the byte.
        os.environ.setdefault("SOURCE_DATE_EPOCH", "1700000000")
        arguments = ["-q", "bdist_wheel", "--dist-dir", str(output)]
        if options.local_version:
            arguments[1:1] = ["egg_info", "--tag-build", "+" + options.local_version]
        setuptools.setup(script_args=arguments, distclass=_Distribution, cmdclass={"bdist_wheel": _Wheel})
    if len(list(output.glob("*.whl"))) != 1:
        raise SystemExit(f"expected one wheel in {output}, found {os.listdir(output)}")


if __name__ == "__main__":
    main()
