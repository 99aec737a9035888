"""From scores on splits to intervals and verdicts: yes, no, or no difference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from helps_contest import SOLVERS, TOL
from scipy import stats

Cell = dict[str, Any]
# "mkl" is the one of the next two that did better in cross-validation on the training rows.
MKL = ("mkl", "auto", "lp2", "bayes")
RIVALS = ("uniform", "single", "svc")


def corrected_interval(
    values: Sequence[float], n_train: int, n_test: int
) -> tuple[float, float, float]:
    """Return mean, lower and upper end of the corrected resampled t interval at 95 per cent.

    Splits of the same rows are not independent; Nadeau and Bengio (2003), section 3, put
    1 / J + n_test / n_train in the place of 1 / J. The standard deviation counts as that of one
    test row at least: few splits may agree to the row by chance. One split has no interval (NaN).
    """
    J = len(values)
    mean = float(np.mean(values))
    if J < 2:
        return mean, float("nan"), float("nan")
    deviation = max(float(np.std(values, ddof=1)), 1.0 / n_test)
    factor = np.sqrt(1.0 / J + n_test / n_train)
    half = float(stats.t.ppf(0.975, J - 1) * factor * deviation)
    return mean, mean - half, mean + half


def verdict(low: float, high: float) -> str:
    """Say whether the interval of a difference is above zero, below it, or neither."""
    if low > 0:
        return "yes"
    return "no" if high < 0 else "no difference"


def summarise(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Return one entry for each set: scores, and MKL against each rival."""
    out = []
    for name in dict.fromkeys(cell["name"] for cell in cells):
        own = [cell for cell in cells if cell["name"] == name]
        scores = {who: [_score(cell, who) for cell in own] for who in (*MKL, *SOLVERS, *RIVALS)}
        shape = own[0]["train"], own[0]["test"]
        out.append(
            {
                "name": name,
                "train": shape[0],
                "test": shape[1],
                "kernels": own[0]["kernels"],
                "metric": "balanced accuracy" if own[0]["balanced"] else "accuracy",
                "splits": len(own),
                "scores": {who: corrected_interval(s, *shape) for who, s in scores.items()},
                "versus": {
                    f"{who} - {rival}": _versus(scores[who], scores[rival], shape)
                    for who in MKL
                    for rival in RIVALS
                },
                "bayes_stopped": sum(not cell["found"]["bayes"]["converged"] for cell in own),
            }
        )
    return out


def _score(cell: Cell, who: str) -> float:
    found = cell["found"]
    if who == "mkl":
        who = "lp2" if found["lp2"]["cv"] > found["auto"]["cv"] else "auto"
    return float(found[who]["score"])


def _versus(
    ours: Sequence[float], theirs: Sequence[float], shape: tuple[int, int]
) -> dict[str, Any]:
    mean, low, high = corrected_interval(np.subtract(ours, theirs).tolist(), *shape)
    return {"mean": mean, "low": low, "high": high, "verdict": verdict(low, high)}


def agreement(cells: Sequence[Cell]) -> dict[str, Any]:
    """Return how far the solvers of the simplex problem, at the same C, are from each other.

    Only fits that reached the tolerance are compared; of the others the largest gap is kept.
    """
    objective, score, where, same = 0.0, 0.0, "", 0
    stopped: dict[str, list[float]] = {solver: [] for solver in ("auto", *SOLVERS)}
    for cell in cells:
        fits = {solver: cell["found"][solver] for solver in stopped}
        for solver, fit in fits.items():
            if fit["gap"] > TOL:
                stopped[solver].append(fit["gap"])
        done = [fit for fit in fits.values() if fit["gap"] <= TOL]
        values = [fit["objective"] for fit in done]
        objective = max(objective, (max(values) - min(values)) / max(1.0, max(values)))
        apart = float(np.ptp([fit["score"] for fit in done]))
        same += apart == 0.0
        if apart > score:
            score, where = apart, cell["name"]
    return {
        "cells": len(cells),
        "objective": float(objective),
        "score": score,
        "where": where,
        "same": same,
        "stopped": {
            solver: {"fits": len(gaps), "gap": max(gaps)}
            for solver, gaps in stopped.items()
            if gaps
        },
    }
