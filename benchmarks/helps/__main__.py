"""Does learning the weights help? MKL against simpler things on real data, set by set.

    python -m benchmarks.helps --data-dir DIR            # six sets, three splits: minutes
    python -m benchmarks.helps --data-dir DIR --full     # twenty sets, ten splits: an hour or two

Every contestant gets the same rows, the same standardised columns or sequences and the same three
folds of the training rows, on which it chooses C (and SVC its gamma, or its string kernel):

auto       sparse MKL: hinge loss, weights on the simplex
silp, spg, spicy, mwu   the same problem at the same C by the other solvers, which must agree
lp2        dense MKL: weights in the ball of norm 2
bayes      Bayesian MKL, with its defaults; it has no class weights
uniform    equal weights
single     the best single kernel, by cross-validation
svc        scikit-learn's SVC: grid over C and gamma; for sequences over C and one string kernel

Where one class has more than twice the rows of another, the balanced accuracy counts, and C is
weighted by class ("balanced") for all but Bayesian MKL. "MKL" without further name is auto or lp2,
whichever did better in that cross-validation. A full run that was cut short goes on where it was:
results are in OUT/helps, a file for each set and split.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.helps.cells import run_cells
from benchmarks.helps.contest import BAYES_SECONDS, SECONDS, SOLVERS, TOL
from benchmarks.helps.problems import QUICK, SETS
from benchmarks.part import Settings, run_alone
from benchmarks.show import new_figure, save, table
from benchmarks.timing import Clock

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


TITLE = "Does MKL help?"
TITLES = {
    "uniform": "over equal weights",
    "single": "over the best single kernel",
    "svc": "over a tuned SVC",
}
# Okabe and Ito's colours, and shapes for those who print in grey.
LOOKS = {"yes": ("#009E73", "o"), "no difference": ("#666666", "s"), "no": ("#D55E00", "X")}


def measure(settings: Settings, clock: Clock) -> dict[str, Any]:
    names = [name for group in SETS.values() for name in group] if settings.full else list(QUICK)
    cells = run_cells(names, 10 if settings.full else 3, settings)
    done = [cell for cell in cells if "found" in cell]
    if not done:
        return {"sets": [], "missing": _missing(cells)}
    result = {"sets": summarise(done), "agreement": agreement(done), "missing": _missing(cells)}
    draw(result["sets"], settings.out / "helps.png")
    return result


def _missing(cells: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(cell["missing"] for cell in cells if "missing" in cell))


def tell(result: dict[str, Any]) -> str:
    """Return tables: the verdicts, the kinds of MKL, how well the solvers agree."""
    missing = "".join(f"\n\nLeft out: {reason}." for reason in result["missing"])
    if not result["sets"]:
        return "No data." + missing
    sets = result["sets"]
    parts = [_verdicts(sets), _counts(sets), _kinds(sets), _solvers(sets)]
    return "\n\n".join([*parts, _agreement(result["agreement"])]) + missing


def _verdicts(sets: list[dict[str, Any]]) -> str:
    heads = ["set", "rows", "kernels", "splits", "MKL", "equal weights", "best single", "SVC"]
    heads += [f"helps {title}?" for title in TITLES.values()]
    rows = []
    for one in sets:
        star = " (b)" if one["metric"] == "balanced accuracy" else ""
        row = [one["name"] + star, one["train"], one["kernels"], one["splits"]]
        row += [f"{100 * one['scores'][who][0]:.1f}" for who in ("mkl", "uniform", "single", "svc")]
        row += [_difference(one["versus"][f"mkl - {rival}"]) for rival in TITLES]
        rows.append(row)
    return (
        "Mean scores on held-out rows in per cent, (b) balanced accuracy, else accuracy; "
        f"difference with its 95 % interval.\n\n{table(heads, rows)}"
    )


def _difference(found: dict[str, Any]) -> str:
    low, mean, high = (100 * found[key] for key in ("low", "mean", "high"))
    return f"{found['verdict']}: {mean:+.1f} [{low:+.1f}, {high:+.1f}]"


def _counts(sets: list[dict[str, Any]]) -> str:
    sentences = []
    for rival, title in TITLES.items():
        said = [one["versus"][f"mkl - {rival}"]["verdict"] for one in sets]
        sentences.append(
            f"{title}: yes on {said.count('yes')}, no on {said.count('no')}, "
            f"no difference on {said.count('no difference')}"
        )
    return f"Of {len(sets)} sets, MKL helps {'; '.join(sentences)}."


def _kinds(sets: list[dict[str, Any]]) -> str:
    """Sparse, dense and Bayesian MKL, each with its interval and its verdicts."""
    rows = []
    for one in sets:
        row = [one["name"]]
        for who in ("auto", "lp2", "bayes"):
            marks = [
                {"yes": "+", "no": "-"}.get(one["versus"][f"{who} - {rival}"]["verdict"], "0")
                for rival in TITLES
            ]
            row.append(f"{_spread(one['scores'][who])} ({' '.join(marks)})")
        row.append(f"{one['bayes_stopped']} of {one['splits']}")
        rows.append(row)
    heads = ["set", "sparse (simplex)", "dense (p = 2)", "Bayesian", "Bayesian stopped early"]
    return (
        "Each kind of MKL, with half its 95 % interval; in brackets whether it helps over equal "
        f"weights, the best single kernel and SVC (+ yes, - no, 0 no difference).\n\n"
        f"{table(heads, rows)}"
    )


def _solvers(sets: list[dict[str, Any]]) -> str:
    solvers = ("auto", *SOLVERS)
    rows = [[one["name"], *(_spread(one["scores"][who]) for who in solvers)] for one in sets]
    return f"Each solver of the sparse kind, at the same C.\n\n{table(['set', *solvers], rows)}"


def _spread(interval: Sequence[float]) -> str:
    mean, low, high = (100 * value for value in interval)
    return f"{mean:.1f} ± {(high - low) / 2:.1f}"


def _agreement(found: dict[str, Any]) -> str:
    text = (
        f"The five solvers of the simplex problem, on {found['cells']} splits at the same C: where "
        f"they reached the gap of {TOL:g}, objectives differ by at most "
        f"{found['objective']:.1e} (relative); scores are equal on {found['same']} splits and "
        f"differ by at most {100 * found['score']:.1f} points ({found['where'] or 'nowhere'})."
    )
    stopped = ", ".join(
        f"{solver} on {one['fits']} (largest gap {one['gap']:.2g})"
        for solver, one in found["stopped"].items()
    )
    if stopped:
        text += (
            f" A fit ends after {SECONDS:g} processor seconds ({BAYES_SECONDS:g} for Bayesian "
            f"MKL); the gap was then still larger for {stopped}."
        )
    return text


def draw(sets: list[dict[str, Any]], path: Path) -> None:
    """Differences with intervals: one panel for each rival; sets from the top down."""
    figure, [panels] = new_figure(9, 1.2 + 0.24 * len(sets), 1, 3, sharey=True)
    marks = {}
    for axes, (rival, title) in zip(panels, TITLES.items(), strict=True):
        for place, one in enumerate(sets):
            found = one["versus"][f"mkl - {rival}"]
            colour, marker = LOOKS[found["verdict"]]
            low, mean, high = (100 * found[key] for key in ("low", "mean", "high"))
            axes.plot([low, high], [place, place], color=colour, lw=1.5)
            mark = axes.plot(mean, place, marker, color=colour, ms=5)
            marks[f"MKL helps: {found['verdict']}"] = mark[0]
        axes.axvline(0, color="black", lw=0.8)
        axes.set_title(title, fontsize=10)
        axes.tick_params(labelsize=8)
    panels[0].set_yticks(range(len(sets)), [one["name"] for one in sets], fontsize=8)
    panels[0].invert_yaxis()
    panels[1].set_xlabel("difference in points of (balanced) accuracy, 95 % interval", fontsize=9)
    save(figure, path, (list(marks.values()), list(marks)))


if __name__ == "__main__":
    run_alone(sys.modules[__name__])
