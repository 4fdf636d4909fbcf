"""Finds modules by their place: a file that registers what it holds needs no list of files."""

import importlib
import pkgutil


def import_all(package: str) -> None:
    """Imports the modules of a package that are no tests. Not those of its packages."""
    for _, name, is_package in pkgutil.iter_modules(importlib.import_module(package).__path__):
        if not is_package and not name.endswith(("_test", "_testing")):
            importlib.import_module(f"{package}.{name}")
