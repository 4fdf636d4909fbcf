"""Copies the headers of the algorithms that OpKernels call. See include_folder.bzl."""

import argparse
import pathlib
import re
import shutil

_INCLUDE = re.compile(r'^#include "(.+)"$', re.MULTILINE)


def main():
    """Writes the headers that the OpKernels (*.cc) include and that need no TensorFlow."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("files", type=pathlib.Path, nargs="+", help="OpKernels, and all headers of the package")
    options = parser.parse_args()
    # Vectors (simd.h) are included in inner loops only, under a condition.
    includes = {
        str(file): [include for include in _INCLUDE.findall(file.read_text()) if not include.endswith("simd.h")]
        for file in options.files
    }

    def needs_tensorflow(file):
        return file not in includes or any(map(needs_tensorflow, includes[file]))

    reached = [file for file in includes if file.endswith(".cc")]
    for file in reached:  # also visits what is appended
        reached += {include for include in includes.get(file, []) if include not in reached}
    for file in reached:
        if file.endswith(".h") and not needs_tensorflow(file):
            target = options.output / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)


if __name__ == "__main__":
    main()
