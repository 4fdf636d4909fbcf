"""Asks pip whether each Python that README promises has the pinned packages of tools/requirements/.

It installs nothing. Whether they fit together does not depend on Python: installing them shows it. Skips if pip
reaches no index.
"""

import pathlib
import subprocess
import sys

import pytest
from packaging.requirements import Requirement

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "requirements"


PYTHONS = ["3.10.0", "3.11.2", "3.12.0", "3.13.0"]  # the second is Debian 12's own


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Returns processes that ask pip, at the same time, by Python."""
    lines = [line for file in sorted(FOLDER.glob("*.txt")) for line in file.read_text(encoding="utf-8").splitlines()]
    pins = [Requirement(line) for line in lines if line[:1].isalpha()]
    assert len(pins) > 30
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--retries=1", "install", "--quiet"]
    options = ["--dry-run", "--no-deps", "--ignore-installed", "--only-binary=:all:"]
    processes = {}
    for python in PYTHONS:
        # pip would evaluate the markers for its own interpreter.
        environment = {"python_version": python.rpartition(".")[0], "python_full_version": python}
        wanted = [
            f"{pin.name}{pin.specifier}" for pin in pins if pin.marker is None or pin.marker.evaluate(environment)
        ]
        where = [f"--target={tmp_path_factory.mktemp('target')}", f"--python-version={python}"]
        processes[python] = subprocess.Popen([*pip, *options, *where, *wanted], stderr=subprocess.PIPE, text=True)
    return processes


@pytest.mark.parametrize("python", PYTHONS)
def test_pins_install(python, answers):
    _, errors = answers[python].communicate()
    if "connection broken" in errors:
        pytest.skip("pip reaches no index")
    assert answers[python].returncode == 0, errors
