"""Contestants in turns, each in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score, r2_score

from benchmarks.peers.data import NUMBERS, Data
from benchmarks.peers.objective import evaluate, optimum
from benchmarks.peers.worker import work
from benchmarks.timing import ONE_THREAD, apart

PATIENCE = 3600


@dataclass(frozen=True)
class Peer:
    """What to install and what must import then; `shown` are the packages whose versions count."""

    title: str
    requirements: list[str]
    check: str
    shown: list[str]


@dataclass(frozen=True)
class Environment:
    """A Python that has a peer, or the reason why there is none."""

    python: str | None
    versions: dict[str, str]
    note: str = ""


_HELD = tomllib.loads((Path(__file__).parent / "peers.toml").read_text(encoding="utf-8"))
LINE_UP: dict[str, dict[str, list[str]]] = _HELD.pop("line_up")
# By the module that runs them.
PEERS = {name: Peer(**peer) for name, peer in _HELD.items()}
OWN = ("kernelweave", "sklearn")


def folder() -> Path:
    named = os.environ.get("KERNELWEAVE_PEERS")
    return Path(named) if named else Path.home() / ".cache" / "kernelweave-peers"


def prepare(name: str, peer: Peer, where: Path, say: Callable[[str], None]) -> Environment:
    """Return the environment of a peer, made if it is not there or does not run."""
    home = where / name
    python = str(home / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python"))
    if attempt([python, "-c", peer.check]) is not None:
        say(f"making an environment for {peer.title} in {home} (once)")
        shutil.rmtree(home, ignore_errors=True)
        first = os.environ.get("KERNELWEAVE_PEERS_TORCH") if name == "mklpy" else None
        requirements = [first or peer.requirements[0], *peer.requirements[1:]]
        pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
        # The first requirement alone: PyTorch in the version asked for, before more asks for it.
        for step in (
            [sys.executable, "-m", "venv", str(home)],
            [*pip, requirements[0]],
            [*pip, *requirements],
            [python, "-c", peer.check],
        ):
            error = attempt(step)
            if error is not None:
                return Environment(None, {}, error)
    code = "import json, sys; from importlib.metadata import version;"
    code += "print(json.dumps({name: version(name) for name in sys.argv[1:]}))"
    found = subprocess.check_output([python, "-c", code, *peer.shown], env=hidden_packages())
    return Environment(python, json.loads(found))


def attempt(command: list[str]) -> str | None:
    """Run a command apart from the caller's packages; return the last line of an error, if any."""
    shown = {"capture_output": True, "text": True, "check": False}
    try:
        done = subprocess.run(command, env=hidden_packages(), timeout=PATIENCE, **shown)
    except subprocess.TimeoutExpired:
        return f"more than {PATIENCE} s"
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    return None if done.returncode == 0 else last_line(done.stderr)


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["no message"])[-1]


def hidden_packages() -> dict[str, str]:
    """Return the variables of a process that must not see the caller's packages."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    return {**kept, "PYTHONNOUSERSITE": "1"}


def line_up(data: Data) -> dict[str, list[str]]:
    """Return who takes part, by library; sequences have no columns for a Gaussian kernel."""
    found = LINE_UP[data.kind]
    if data.rows.ndim > 1:
        return found
    return {
        library: [name for name in names if name != "SVC, rbf"] for library, names in found.items()
    }


def run(
    environment: Environment, library: str, names: list[str], paths: list[Path], seconds: float
) -> dict[str, list[dict[str, Any]]]:
    """Run contestants on the splits in these files; return what each took, or why it did not.

    One that was late or failed on any split did so on all.
    """
    if environment.python is None:
        return {name: [{"error": environment.note}] for name in names}
    variables = {**(dict(os.environ) if library in OWN else hidden_packages()), **ONE_THREAD}
    variables["KERNELWEAVE_QUIET"] = "1"
    process = {"python": environment.python, "env": variables, "errors": subprocess.PIPE}
    order = {"library": library, "names": names, "paths": paths, "seconds": seconds}
    try:
        answers = apart(work, **process, **order)
    except subprocess.CalledProcessError as error:
        return {name: [{"error": last_line(error.stderr)}] for name in names}
    return {
        name: answer.get("value") or [reason(answer, seconds)] for name, answer in answers.items()
    }


def reason(answer: dict[str, Any], seconds: float) -> dict[str, Any]:
    return {"late": seconds} if "late" in answer else {"error": last_line(answer["error"])}


def contest(
    splits: list[Data],
    environments: dict[str, Environment],
    seconds: float,
    room: Path,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Let all contestants run on the same splits, one after the other; one row for each."""
    paths = [room / f"split{i}.npz" for i in range(len(splits))]
    for data, path in zip(splits, paths, strict=True):
        data.save(path)
    best = [optimum(data) for data in splits]
    rows = []
    decisions: dict[tuple[str, str], Any] = {}
    for library, names in line_up(splits[0]).items():
        say(f"{library}: {'; '.join(names)}")
        for name, found in run(environments[library], library, names, paths, seconds).items():
            decisions[library, name] = found[0].pop("decision", None)
            judged = [judge(*parts) for parts in zip(splits, found, best, strict=False)]
            rows.append({"library": library, "name": name, **mean(judged)})
    for path in paths:
        path.unlink()
    first = splits[0]
    sizes = {"m": len(first.grams), "train": len(first.train), "test": len(first.test)}
    found = {"kind": first.kind, **sizes, "C": [data.C for data in splits], "optimum": best}
    return {**found, "rows": rows, "same": list(differences(decisions))}


def judge(data: Data, found: dict[str, Any], best: float) -> dict[str, Any]:
    """Put scores and the objective in the place of predictions and weights."""
    if "predicted" not in found:
        return found
    rate = r2_score if data.kind == NUMBERS else accuracy_score
    found["score"] = float(rate(data.y[data.test], found.pop("predicted")))
    weights = found.pop("weights")
    if weights is not None:
        value, found["score_of_weights"] = evaluate(data, np.array(weights))
        found["above"] = value / best - 1
    return found


def differences(decisions: dict[tuple[str, str], Any]) -> Iterator[dict[str, Any]]:
    """Compare kernelweave's equal weights with whoever solves the same problem."""
    ours = decisions.get(("kernelweave", "uniform"))
    for other in (("sklearn", "SVC, mean"), ("himalaya", "KernelRidge, mean")):
        theirs = decisions.get(other)
        if ours is not None and theirs is not None:
            gap = np.abs(np.array(ours) - theirs).max() / np.abs(theirs).max()
            yield {"other": other[0], "difference": float(gap)}


def mean(found: list[dict[str, Any]]) -> dict[str, Any]:
    if "seconds" not in found[0]:
        return found[0]
    names = ("seconds", "wall", "predict", "memory", "score", "score_of_weights", "above")
    kept = {name: [answer.get(name) for answer in found] for name in names}
    means = {
        name: None if None in values else float(np.mean(values)) for name, values in kept.items()
    }
    return {**means, "splits": len(found)}
