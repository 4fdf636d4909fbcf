"""For tests: runs scripts in new processes that import the package, not the source tree."""

import os
import subprocess
import sys
import textwrap


def run(directory, script, *arguments, **environment):
    """Runs a Python script in a new process in `directory`; returns the completed process."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(os.path.abspath(p) for p in sys.path if p),
        **environment,
    }
    command = [sys.executable, "-c", textwrap.dedent(script), *arguments]
    return subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True, check=False)


def output(directory, script, *arguments, **environment):
    """Returns the script's standard output; raises AssertionError with its standard error if it fails."""
    done = run(directory, script, *arguments, **environment)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout
