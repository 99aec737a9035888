"""Does learning the weights help? MKL against simpler things on real data, set by set.

    python benchmarks/helps.py --data-dir DIR            # six sets, three splits: minutes
    python benchmarks/helps.py --data-dir DIR --full     # twenty sets, ten splits: an hour or two

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

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from helps_cells import run_cells
from helps_contest import BAYES_SECONDS, SECONDS, SOLVERS, TOL
from helps_figure import TITLES, draw
from helps_problems import QUICK, SETS
from helps_stats import agreement, summarise
from part import Clock, Settings, run_alone, table

TITLE = "Does MKL help?"


def measure(settings: Settings, clock: Clock) -> dict[str, Any]:
    """Run the contest; scores and verdicts for each set."""
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
    """Every solver of the simplex problem, by itself."""
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


if __name__ == "__main__":
    run_alone(sys.modules[__name__])
