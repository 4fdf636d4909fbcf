"""Packs the files built by Bazel into a wheel, with setuptools. See wheel.bzl."""

import argparse
import logging
import os
import pathlib
import shutil
import sys
import tempfile

import setuptools
from setuptools import build_meta

# setuptools compiles nothing here, so has_ext_modules declares the machine code. The
# shared object calls no CPython functions, so any Python 3 can load it.
_SETUP = """
import setuptools
from setuptools.command.bdist_wheel import bdist_wheel


class Distribution(setuptools.Distribution):
    def has_ext_modules(self):
        return True


class Wheel(bdist_wheel):
    def get_tag(self):
        return ("py3", "none", {platform!r} or super().get_tag()[2])


setuptools.setup(distclass=Distribution, cmdclass={{"bdist_wheel": Wheel}})
"""


def main():
    """Stages the files in the wheel's layout, and builds it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--pyproject", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--platform", default="", help="of the wheel, if not this machine's")
    parser.add_argument("--metadata_files", type=pathlib.Path, nargs="*", default=[])
    parser.add_argument("--files", type=pathlib.Path, nargs="*", default=[])
    parser.add_argument("--bin_dir", type=pathlib.Path, required=True)
    options = parser.parse_args()

    # Version 77 supports SPDX license names.
    if int(setuptools.__version__.split(".")[0]) < 77:
        sys.exit(
            f"setuptools {setuptools.__version__} is too old; run: {sys.executable} -m pip install 'setuptools>=77'"
        )
    output = options.output.resolve()
    # Next to the output, because /tmp may be full.
    with tempfile.TemporaryDirectory(dir=output.parent) as staging:
        stage = pathlib.Path(staging)
        for source in [*options.metadata_files, *options.files]:
            inside = source.relative_to(options.bin_dir) if source.is_relative_to(options.bin_dir) else source
            target = stage / inside
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        project = options.pyproject.read_text().replace('dynamic = ["version"]', f'version = "{options.version}"')
        (stage / "pyproject.toml").write_text(project)
        (stage / "setup.py").write_text(_SETUP.format(platform=options.platform))
        os.chdir(stage)
        # Makes wheels byte-for-byte reproducible.
        os.environ.setdefault("SOURCE_DATE_EPOCH", "1700000000")
        logging.disable(logging.INFO)  # hides a line per file
        build_meta.build_wheel(str(output))


if __name__ == "__main__":
    main()
