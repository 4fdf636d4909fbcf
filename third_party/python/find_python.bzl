"""Finds the configured Python, for repository rules."""

# The variables that find_python reads. Repository rules that call it list them in `environ`.
PYTHON_ENVIRON = ["PYTHON_BIN_PATH", "PATH"]

_HOW = "Run `bash tools/test.sh`, which makes an environment with TensorFlow, or set PYTHON_BIN_PATH to a Python that has it."

def find_python(ctx):
    """Returns the path of the Python to build and test with.

    This is PYTHON_BIN_PATH, else the environment .venv in the workspace (which may be
    another repository that uses these rules) or in this repository, else python3.
    The calling rule runs again if the result would change.

    Args:
      ctx: the repository_ctx.

    Returns:
      The interpreter's absolute path, as a string.
    """
    own = None
    for root in [ctx.workspace_root, ctx.path(Label("//:WORKSPACE")).dirname]:
        candidate = root.get_child(".venv", "bin", "python")
        ctx.watch(candidate)
        if not own and candidate.exists:
            own = candidate
    configured = ctx.os.environ.get("PYTHON_BIN_PATH", "")
    if configured:
        if "/" in configured and not configured.startswith("/"):
            fail("\nPYTHON_BIN_PATH is %s; expected an absolute path, or a name to look for on PATH." % configured)
        path = ctx.path(configured) if "/" in configured else ctx.which(configured)
        if not path or not path.exists:
            fail("\nPYTHON_BIN_PATH is %s, and there is no such file. %s" % (configured, _HOW))
    elif own:
        path = own
    else:
        path = ctx.which("python3")
        if not path:
            fail("\nThere is no python3 on PATH. " + _HOW)
    return str(path)

def run_python(ctx, python, script, arguments = []):
    """Runs a script of this repository and returns the JSON it prints.

    Args:
      ctx: the repository_ctx.
      python: the interpreter's path.
      script: the script's label, a Label.
      arguments: strings.

    Returns:
      The decoded JSON. Fails the build if it has an "error".
    """

    # -I ignores PYTHONPATH and the user's site directory. -X utf8, and JSON without
    # \u, keep the bytes of paths, which Bazel interprets as their characters.
    result = ctx.execute([python, "-I", "-X", "utf8", ctx.path(script)] + arguments, timeout = 600)
    if result.return_code != 0:
        fail("\n%s could not run %s:\n%s%s\n%s" % (python, script, result.stdout, result.stderr, _HOW))
    answer = json.decode(result.stdout.strip().split("\n")[-1])
    if "error" in answer:
        fail("\n%s %s" % (answer["error"], _HOW))
    for path in answer.get("watch", []):
        ctx.watch(path)
    return answer
