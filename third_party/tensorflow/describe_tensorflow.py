"""Prints TensorFlow's location and compiler flags as JSON."""

import json
import os
import sys
from importlib import metadata

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"


def describe(wanted):
    """Returns the facts, or {"error": message}."""
    found = None
    for name in ("tensorflow", "tensorflow-cpu"):
        try:
            found = metadata.distribution(name)
            break
        except metadata.PackageNotFoundError:
            pass
    python = sys.executable
    install = f"Install it: {python} -m pip install 'tensorflow-cpu=={wanted}.*'."
    built_for = f"this repository builds against TensorFlow {wanted}"
    if found is None:
        return {"error": f"{python} has no TensorFlow, and {built_for}. {install}"}
    if ".".join(found.version.split(".")[:2]) != wanted:
        return {"error": f"{python} has TensorFlow {found.version}, and {built_for}. {install}"}
    try:
        import tensorflow as tf
    except Exception as error:  # The import may raise anything; the build cannot continue.
        return {"error": f"{python} has TensorFlow {found.version}, but importing it fails: {error!r}. {install}"}
    it = f"TensorFlow {tf.__version__} of {python}"
    include = tf.sysconfig.get_include()
    if not os.path.exists(os.path.join(include, "tensorflow", "core", "framework", "op_kernel.h")):
        return {"error": f"{it} came without its C++ headers (looked in {include}). {install}"}
    library_folder = tf.sysconfig.get_lib()
    libraries = [flag[len("-l:") :] for flag in tf.sysconfig.get_link_flags() if flag.startswith("-l:")]
    if len(libraries) != 1 or not os.path.exists(os.path.join(library_folder, libraries[0])):
        return {"error": f"{it} came without its framework library (looked in {library_folder}). {install}"}
    cc_library = os.path.join(library_folder, libraries[0].replace("_framework", "_cc"))
    if not os.path.exists(cc_library):
        return {"error": f"{it} came without its C++ library (looked for {cc_library}). {install}"}
    flags = [flag for flag in tf.sysconfig.get_compile_flags() if not flag.startswith("-I")]
    return {
        "version": tf.__version__,
        "include": include,
        "library": os.path.join(library_folder, libraries[0]),
        "cc_library": cc_library,
        "compile_flags": flags,
        # Files that change when TensorFlow is upgraded or replaced by another variant.
        "watch": [
            sys.executable,
            os.path.join(include, "tensorflow", "core", "public", "release_version.h"),
            str(found.locate_file(next(f for f in found.files if f.name == "RECORD"))),
        ],
    }


print(json.dumps(describe(sys.argv[1]), ensure_ascii=False))
