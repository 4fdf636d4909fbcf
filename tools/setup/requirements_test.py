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


# Debian 12's own Python is 3.11.2.
@pytest.mark.parametrize("python", ["3.10.0", "3.11.2", "3.12.0", "3.13.0"])
def test_pins_install(python, tmp_path):
    # pip would evaluate the markers for its own interpreter.
    environment = {"python_version": python.rpartition(".")[0], "python_full_version": python}
    lines = [line for file in sorted(FOLDER.glob("*.txt")) for line in file.read_text(encoding="utf-8").splitlines()]
    pins = [Requirement(line) for line in lines if line[:1].isalpha()]
    pins = [f"{pin.name}{pin.specifier}" for pin in pins if pin.marker is None or pin.marker.evaluate(environment)]
    assert len(pins) > 30
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--retries=1", "install", "--quiet"]
    options = ["--dry-run", "--no-deps", "--ignore-installed", f"--target={tmp_path}", f"--python-version={python}"]
    found = subprocess.run([*pip, *options, "--only-binary=:all:", *pins], capture_output=True, text=True, check=False)
    if "connection broken" in found.stderr:
        pytest.skip("pip reaches no index")
    assert found.returncode == 0, found.stderr
