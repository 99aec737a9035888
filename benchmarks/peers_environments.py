"""Environments of the peers of ``peers.py``: one for each, made once, never the caller's own.

They are made in the folder that the environment variable ``KERNELWEAVE_PEERS`` names, else in
``~/.cache/kernelweave-peers``, with plain names and whatever index ``pip`` is set up for. MKLpy
needs PyTorch: ``KERNELWEAVE_PEERS_TORCH`` names the requirement ("torch" by default; a version
with a build for processors only saves gigabytes).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 3600


@dataclass(frozen=True)
class Peer:
    """What to install, what must import then, and companions to add if it does not."""

    title: str
    requirements: tuple[str, ...]
    check: str
    shown: tuple[str, ...]
    companions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Environment:
    """A Python that has a peer, or the reason why there is none."""

    python: str | None
    versions: dict[str, str]
    note: str = ""


def peers() -> dict[str, Peer]:
    """Return the peers by the module that runs them."""
    torch = os.environ.get("KERNELWEAVE_PEERS_TORCH", "torch")
    return {
        "mklpy": Peer(
            "MKLpy",
            (torch, "MKLpy"),
            "from MKLpy.algorithms import EasyMKL",
            ("MKLpy", "torch", "cvxopt", "scikit-learn", "numpy"),
            ("numpy<2", "scikit-learn<1.6"),
        ),
        "himalaya": Peer(
            "himalaya",
            ("himalaya",),
            "from himalaya.kernel_ridge import MultipleKernelRidgeCV",
            ("himalaya", "scikit-learn", "numpy"),
            ("packaging",),
        ),
        "intelex": Peer(
            "scikit-learn-intelex",
            ("scikit-learn", "scikit-learn-intelex"),
            "from sklearnex.svm import SVC",
            ("scikit-learn-intelex", "scikit-learn", "numpy"),
            ("scikit-learn<1.6",),
        ),
    }


def folder() -> Path:
    """Return where the environments are kept."""
    named = os.environ.get("KERNELWEAVE_PEERS")
    return Path(named) if named else Path.home() / ".cache" / "kernelweave-peers"


def prepare(name: str, peer: Peer, where: Path, say: Callable[[str], None]) -> Environment:
    """Return the environment of a peer, made if it is not there.

    What does not run is tried once more with other companions; what did not install is tried again
    on the next run.
    """
    home = where / name
    ready = home / "ready.json"
    if ready.exists():
        held = json.loads(ready.read_text())
        if held["requirements"] == list(peer.requirements):
            return Environment(str(python_of(home)), held["versions"], held["note"])
    say(f"making an environment for {peer.title} in {home} (once)")
    problems = []
    for extra in ((), peer.companions):
        error = install(home, (*peer.requirements, *extra), peer.check)
        if error is None:
            note = f"with {', '.join(extra)}; without: {problems[0]}" if extra else ""
            versions = read_versions(home, peer.shown)
            held = {"requirements": list(peer.requirements), "versions": versions, "note": note}
            ready.write_text(json.dumps(held))
            return Environment(str(python_of(home)), versions, note)
        problems.append(error)
    return Environment(None, {}, problems[0])


def install(home: Path, requirements: tuple[str, ...], check: str) -> str | None:
    """Make an environment anew and install into it; return the last line of an error, if any."""
    shutil.rmtree(home, ignore_errors=True)
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        venv.create(home, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"{type(error).__name__}: {error}"
    pip = ["-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    # The first requirement alone: PyTorch in the version asked for, before something asks for more.
    for step in ([*pip, requirements[0]], [*pip, *requirements], ["-c", check]):
        error = attempt([str(python_of(home)), *step])
        if error is not None:
            return error
    return None


def attempt(command: list[str]) -> str | None:
    """Run a command apart from the caller's packages; return the last line of an error, if any."""
    try:
        done = subprocess.run(
            command, env=apart(), capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return f"more than {PATIENCE} s"
    return None if done.returncode == 0 else last_line(done.stderr)


def last_line(text: str) -> str:
    """Return the last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["no message"])[-1]


def apart() -> dict[str, str]:
    """Return the variables of a process that must not see the caller's packages."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    return {**kept, "PYTHONNOUSERSITE": "1"}


def python_of(home: Path) -> Path:
    """Return the interpreter of an environment."""
    return home / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def read_versions(home: Path, shown: tuple[str, ...]) -> dict[str, str]:
    """Return the versions installed of some packages."""
    code = (
        "import importlib.metadata, json, sys;"
        "print(json.dumps([importlib.metadata.version(name) for name in sys.argv[1:]]))"
    )
    command = [str(python_of(home)), "-c", code, *shown]
    found = subprocess.run(command, env=apart(), capture_output=True, text=True, check=True)
    return dict(zip(shown, json.loads(found.stdout), strict=True))
