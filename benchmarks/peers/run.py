"""Contestants in turns, each in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score, r2_score

from benchmarks.peers.data import CLASSES, NUMBERS, TWO_CLASSES, Data
from benchmarks.peers.objective import evaluate, optimum
from benchmarks.timing import ONE_THREAD, ROOT

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
    shown = ("scikit-learn", "numpy")
    mklpy = "from MKLpy.algorithms import EasyMKL", ("MKLpy", "torch", "cvxopt", *shown)
    himalaya = "from himalaya.kernel_ridge import MultipleKernelRidgeCV", ("himalaya", *shown)
    intelex = "from sklearnex.svm import SVC", ("scikit-learn-intelex", *shown)
    both = ("scikit-learn", "scikit-learn-intelex")
    return {
        "mklpy": Peer("MKLpy", (torch, "MKLpy"), *mklpy, ("numpy<2", "scikit-learn<1.6")),
        "himalaya": Peer("himalaya", ("himalaya",), *himalaya, ("packaging",)),
        "intelex": Peer("scikit-learn-intelex", both, *intelex, ("scikit-learn<1.6",)),
    }


def folder() -> Path:
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
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["no message"])[-1]


def apart() -> dict[str, str]:
    """Return the variables of a process that must not see the caller's packages."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    return {**kept, "PYTHONNOUSERSITE": "1"}


def python_of(home: Path) -> Path:
    return home / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def read_versions(home: Path, shown: tuple[str, ...]) -> dict[str, str]:
    code = (
        "import importlib.metadata, json, sys;"
        "print(json.dumps([importlib.metadata.version(name) for name in sys.argv[1:]]))"
    )
    command = [str(python_of(home)), "-c", code, *shown]
    found = subprocess.run(command, env=apart(), capture_output=True, text=True, check=True)
    return dict(zip(shown, json.loads(found.stdout), strict=True))


OWN = ("kernelweave", "sklearn")
MKLPY = ["AverageMKL", "EasyMKL", "PWMK", "CKA", "MEMO", "GRAM"]
FIRST = ["auto, with the check", "auto, from rows"]
SVM = {"sklearn": ["SVC, mean", "SVC, rbf"], "intelex": ["SVC, rbf"]}
_CV = "MultipleKernelRidgeCV"
LINE_UP: dict[str, dict[str, list[str]]] = {
    TWO_CLASSES: {
        "kernelweave": ["auto", "silp", "spg", "spicy", "mwu", "uniform", "bayes", *FIRST],
        **SVM,
        "mklpy": MKLPY,
    },
    CLASSES: {
        "kernelweave": ["auto, ovr", "auto", "uniform", "bayes", *FIRST],
        **SVM,
        "mklpy": MKLPY,
    },
    NUMBERS: {
        "kernelweave": ["auto", "spg", "spicy", "uniform", "bayes", *FIRST],
        "himalaya": [
            "KernelRidge, mean",
            *(f"{_CV}, {how}" for how in ("random_search", "hyper_gradient")),
        ],
    },
}


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
    """Run contestants on the splits in these files; return what each took, or why it did not."""
    if environment.python is None:
        return {name: [{"error": environment.note}] for name in names}
    variables = {
        **(dict(os.environ) if library in OWN else apart()),
        "KERNELWEAVE_QUIET": "1",
        **ONE_THREAD,
    }
    with tempfile.TemporaryDirectory() as room:
        order = [library, room, str(seconds), json.dumps(names), *map(str, paths)]
        done = subprocess.run(
            [environment.python, "-m", "benchmarks.peers.worker", *order],
            cwd=ROOT,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            return {name: [{"error": last_line(done.stderr)}] for name in names}
        stems = {name: Path(room) / str(number) for number, name in enumerate(names)}
        return {name: read_answer(stem, seconds) for name, stem in stems.items()}


def read_answer(stem: Path, seconds: float) -> list[dict[str, Any]]:
    """Return what a contestant wrote; one that was late or failed on any split did so on all."""
    if stem.with_suffix(".late").exists():
        return [{"late": seconds}]
    if stem.with_suffix(".error").exists():
        return [{"error": last_line(stem.with_suffix(".error").read_text())}]
    return json.loads(stem.with_suffix(".json").read_text())


def environments_with_own(made: dict[str, Environment]) -> dict[str, Environment]:
    """Add the caller's own, where kernelweave and scikit-learn are."""
    return {**made, **{name: Environment(sys.executable, {}) for name in OWN}}


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
            yield {"other": " ".join(other), "difference": float(gap)}


def mean(found: list[dict[str, Any]]) -> dict[str, Any]:
    if "seconds" not in found[0]:
        return found[0]
    names = ("seconds", "wall", "predict", "memory", "score", "score_of_weights", "above")
    kept = {name: [answer.get(name) for answer in found] for name in names}
    means = {
        name: None if None in values else float(np.mean(values)) for name, values in kept.items()
    }
    return {**means, "splits": len(found)}
