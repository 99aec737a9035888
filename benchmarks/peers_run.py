"""Contestants of ``peers.py`` in turns, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from peers_data import CLASSES, NUMBERS, TWO_CLASSES, Data
from peers_environments import Environment, apart, last_line
from peers_objective import evaluate, optimum
from sklearn.metrics import accuracy_score, r2_score

WORKER = Path(__file__).with_name("peers_worker.py")
THREADS = ("OMP", "OPENBLAS", "MKL", "NUMBA", "VECLIB_MAXIMUM", "NUMEXPR")
OWN = ("kernelweave", "sklearn")
MKLPY = ["AverageMKL", "EasyMKL", "PWMK", "CKA", "MEMO", "GRAM"]
FIRST = ["auto, with the check", "auto, from rows"]
SVM = {"sklearn": ["SVC, mean", "SVC, rbf"], "intelex": ["SVC, rbf"]}
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
            "MultipleKernelRidgeCV, random_search",
            "MultipleKernelRidgeCV, hyper_gradient",
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
    variables = {**(dict(os.environ) if library in OWN else apart()), "KERNELWEAVE_QUIET": "1"}
    variables |= {f"{name}_NUM_THREADS": "1" for name in THREADS}
    with tempfile.TemporaryDirectory() as room:
        order = [library, room, str(seconds), json.dumps(names), *map(str, paths)]
        done = subprocess.run(
            [environment.python, str(WORKER), *order],
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
    return {
        "kind": splits[0].kind,
        "m": len(splits[0].grams),
        "train": len(splits[0].train),
        "test": len(splits[0].test),
        "C": [data.C for data in splits],
        "optimum": best,
        "rows": rows,
        "same": list(differences(decisions)),
    }


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
    """Return the means over the splits, or the reason why there are none."""
    if "seconds" not in found[0]:
        return found[0]
    names = ("seconds", "wall", "predict", "memory", "score", "score_of_weights", "above")
    kept = {name: [answer.get(name) for answer in found] for name in names}
    means = {
        name: None if None in values else float(np.mean(values)) for name, values in kept.items()
    }
    return {**means, "splits": len(found)}
