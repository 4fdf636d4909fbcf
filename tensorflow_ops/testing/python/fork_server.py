"""Runs scripts in new processes that have already imported TensorFlow, which takes seconds.

Arguments: the modules to import. Each line of stdin is a JSON list: a script, the file of its
output, the script's arguments. The server prints the process id and, when the process has
ended, its exit status in the form of `subprocess`, a line each.
"""

import importlib
import json
import os
import runpy
import sys


def _become(script, log, arguments):
    """Runs `python script arguments` in this process, in the log's folder."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, output), (2, output)):
        os.dup2(file, stream)
    os.chdir(os.path.dirname(log))
    sys.argv[:] = [script, *arguments]
    sys.path.insert(0, os.path.dirname(script))
    runpy.run_path(script, run_name="__main__")


def main():
    # Modules beside this script must not shadow others of the same name.
    sys.path.pop(0)
    # The output of modules goes to stderr: stdout is for answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for module in sys.argv[1:]:
        importlib.import_module(module)
    # Not `for line in sys.stdin`, which reads ahead: a child would read the same lines again.
    while line := sys.stdin.readline():
        script, log, *arguments = json.loads(line)
        process = os.fork()
        if process == 0:
            answers.close()
            return _become(script, log, arguments)
        print(process, file=answers, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), file=answers, flush=True)


if __name__ == "__main__":
    main()
