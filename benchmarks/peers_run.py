"""Contestants of ``peers.py`` in turns, each in a process of its own."""

from __future__ import annotations

import json
import os
import signal
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
MKLPY = ("AverageMKL", "EasyMKL", "PWMK", "CKA", "MEMO", "GRAM")
LINE_UP: dict[str, list[tuple[str, str]]] = {
    TWO_CLASSES: [
        *(
            ("kernelweave", name)
            for name in ("auto", "silp", "spg", "spicy", "mwu", "uniform", "bayes")
        ),
        ("kernelweave", "auto, with the check"),
        ("kernelweave", "auto, from rows"),
        ("sklearn", "SVC, mean"),
        ("sklearn", "SVC, rbf"),
        ("intelex", "SVC, rbf"),
        *(("mklpy", name) for name in MKLPY),
    ],
    CLASSES: [
        *(("kernelweave", name) for name in ("auto, ovr", "auto", "uniform", "bayes")),
        ("kernelweave", "auto, with the check"),
        ("kernelweave", "auto, from rows"),
        ("sklearn", "SVC, mean"),
        ("sklearn", "SVC, rbf"),
        ("intelex", "SVC, rbf"),
        *(("mklpy", name) for name in MKLPY),
    ],
    NUMBERS: [
        *(
            ("kernelweave", name)
            for name in ("auto", "spg", "spicy", "uniform", "bayes", "auto, from rows")
        ),
        ("kernelweave", "auto, with the check"),
        ("himalaya", "KernelRidge, mean"),
        ("himalaya", "MultipleKernelRidgeCV, random_search"),
        ("himalaya", "MultipleKernelRidgeCV, hyper_gradient"),
    ],
}


def run(
    environment: Environment, library: str, name: str, paths: list[Path], seconds: float
) -> list[dict[str, Any]]:
    """Run a contestant on the splits in these files; return what it took for each, or why not."""
    if environment.python is None:
        return [{"error": environment.note}]
    variables = {**(dict(os.environ) if library in OWN else apart()), "KERNELWEAVE_QUIET": "1"}
    variables |= {f"{name}_NUM_THREADS": "1" for name in THREADS}
    with tempfile.TemporaryDirectory() as room:
        answer = Path(room) / "answer.json"
        order = [library, name, str(answer), str(seconds), *map(str, paths)]
        try:
            done = subprocess.run(
                [environment.python, str(WORKER), *order],
                env=variables,
                capture_output=True,
                text=True,
                timeout=20 * seconds * len(paths) + 120,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return [{"late": seconds}]
        if answer.exists():
            return json.loads(answer.read_text())
    if done.returncode == -getattr(signal, "SIGXCPU", 0):
        return [{"late": seconds}]
    return [{"error": last_line(done.stderr)}]


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
    for library, name in LINE_UP[splits[0].kind]:
        if name == "SVC, rbf" and splits[0].rows.ndim == 1:  # sequences
            continue
        say(f"{library}: {name}")
        found = run(environments[library], library, name, paths, seconds)
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
