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
whichever did better in that cross-validation. A full run that was cut short resumes where it was:
results are kept in OUT/helps.
"""

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from joblib import Memory, Parallel, delayed
from scipy import stats

import kernelweave
from benchmarks.data import MissingDataError
from benchmarks.helps import contest, problems
from benchmarks.helps.contest import BAYES_SECONDS, SECONDS, SOLVERS, TOL
from benchmarks.helps.problems import QUICK, SETS
from benchmarks.part import Settings, run_alone
from benchmarks.show import new_figure, save, table
from benchmarks.timing import Clock

Cell = dict[str, Any]
TITLE = "Does MKL help?"
# "mkl" is the one of the next two that did better in cross-validation on the training rows.
MKL = ("mkl", "auto", "lp2", "bayes")
RIVALS = {
    "uniform": "over equal weights",
    "single": "over the best single kernel",
    "svc": "over a tuned SVC",
}
SPARSE = ("auto", *SOLVERS)
WHO = (*MKL, *SOLVERS, *RIVALS)
MARKS = {"yes": "+", "no": "-", "no difference": "0"}
# Okabe and Ito's colours, and shapes for those who print in grey.
LOOKS = {"yes": ("#009E73", "o"), "no difference": ("#666666", "s"), "no": ("#D55E00", "X")}


class Interval(NamedTuple):
    """A mean and its interval, in per cent."""

    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Whether the interval of a difference is above zero, below it, or neither."""
        if self.low > 0:
            return "yes"
        return "no" if self.high < 0 else "no difference"

    def spread(self) -> str:
        return f"{self.mean:.1f} ± {(self.high - self.low) / 2:.1f}"


def corrected_interval(values: Any, n_train: int, n_test: int) -> Interval:
    """Return the corrected resampled t interval at 95 per cent.

    Splits of the same rows are not independent; Nadeau and Bengio (2003), section 3, put
    1 / J + n_test / n_train in the place of 1 / J. The standard deviation counts as that of one
    test row at least: few splits may agree to the row by chance. One split has no interval (NaN).
    """
    J, mean, half = len(values), 100 * float(np.mean(values)), float("nan")
    if J >= 2:
        deviation = max(float(np.std(values, ddof=1)), 1.0 / n_test)
        factor = np.sqrt(1.0 / J + n_test / n_train)
        half = 100 * float(stats.t.ppf(0.975, J - 1) * factor * deviation)
    return Interval(mean, mean - half, mean + half)


def summarise(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Return one entry for each set: scores, and MKL against each rival."""
    out = []
    for name in dict.fromkeys(cell["name"] for cell in cells):
        own = [cell for cell in cells if cell["name"] == name]
        scores = {who: np.array([_score(cell, who) for cell in own]) for who in WHO}
        shape = own[0]["train"], own[0]["test"]
        versus = {
            f"{who} - {rival}": corrected_interval(scores[who] - scores[rival], *shape)
            for who in MKL
            for rival in RIVALS
        }
        one = {key: own[0][key] for key in ("name", "train", "test", "kernels", "balanced")}
        one["scores"] = {who: corrected_interval(s, *shape) for who, s in scores.items()}
        stopped = sum(not cell["found"]["bayes"]["converged"] for cell in own)
        out.append({**one, "versus": versus, "splits": len(own), "bayes_stopped": stopped})
    return out


def _score(cell: Cell, who: str) -> float:
    found = cell["found"]
    if who == "mkl":
        who = "lp2" if found["lp2"]["cv"] > found["auto"]["cv"] else "auto"
    return float(found[who]["score"])


def agreement(cells: Sequence[Cell]) -> str:
    """Say how far the solvers of the simplex problem, at the same C, are from each other.

    Only fits that reached the tolerance are compared; of the others the largest gap is kept.
    """
    objectives, scores = [], []
    stopped: dict[str, list[float]] = {}
    for cell in cells:
        fits = {solver: cell["found"][solver] for solver in SPARSE}
        for solver, fit in fits.items():
            if fit["gap"] > TOL:
                stopped.setdefault(solver, []).append(fit["gap"])
        done = [fit for fit in fits.values() if fit["gap"] <= TOL]
        values = [fit["objective"] for fit in done]
        objectives.append((max(values) - min(values)) / max(1.0, max(values)))
        scores.append(float(np.ptp([fit["score"] for fit in done])))
    where = cells[int(np.argmax(scores))]["name"] if any(scores) else "nowhere"
    text = (
        f"The five solvers of the simplex problem, on {len(cells)} splits at the same C: where "
        f"they reached the gap of {TOL:g}, objectives differ by at most "
        f"{max(objectives):.1e} (relative); scores are equal on {scores.count(0.0)} splits and "
        f"differ by at most {100 * max(scores):.1f} points ({where})."
    )
    late = [f"{s} on {len(gaps)} (largest gap {max(gaps):.2g})" for s, gaps in stopped.items()]
    if late:
        text += (
            f" A fit ends after {SECONDS:g} processor seconds ({BAYES_SECONDS:g} for Bayesian "
            f"MKL); the gap was then still larger for {', '.join(late)}."
        )
    return text


def measure(settings: Settings, clock: Clock) -> dict[str, Any]:
    names = [name for group in SETS.values() for name in group] if settings.full else list(QUICK)
    # What is kept of an earlier run holds as long as neither the library nor the contest changed.
    kept = Memory(settings.out / "helps" if settings.full else None, verbose=0)
    cell = kept.cache(measure_cell, ignore=["settings"])
    jobs = [(name, split) for split in range(10 if settings.full else 3) for name in names]
    # One thread a fit: they are small, and cells run beside each other instead.
    stamp, seed = fingerprint(), settings.seed
    fits = Parallel(n_jobs=-1)
    cells = fits(delayed(attempt)(cell, *job, seed, stamp, settings) for job in jobs)
    done = [cell for cell in cells if "found" in cell]
    missing = list(dict.fromkeys(cell["missing"] for cell in cells if "missing" in cell))
    if not done:
        return {"sets": [], "missing": missing}
    result = {"sets": summarise(done), "agreement": agreement(done), "missing": missing}
    draw(result["sets"], settings.out / "helps.png")
    return result


def fingerprint() -> str:
    root = Path(kernelweave.__file__).parent
    whole = hashlib.sha256()
    for file in [*sorted(root.rglob("*.py")), contest.__file__, problems.__file__]:
        whole.update(Path(file).read_bytes())
    return whole.hexdigest()


def attempt(cell: Any, name: str, *job: Any) -> Cell:
    """Measure a cell, or say why it is missing; the latter is not kept."""
    try:
        return cell(name, *job)
    except MissingDataError as error:
        return {"name": name, "missing": str(error)}


def measure_cell(name: str, split: int, seed: int, stamp: str, settings: Settings) -> Cell:
    """Fit all contestants on one split of one set."""
    problem = problems.make_problem(name, settings.data_dir, split, seed)
    found = contest.run_contest(problem, seed)
    seconds = sum(one["seconds"] for one in found.values())
    settings.say(f"{name}, split {split + 1}: {seconds:.0f} s")
    sizes = {"train": len(problem.y_train), "test": len(problem.y_test)}
    kinds = {"kernels": len(problem.kernels), "balanced": problem.balanced}
    return {"name": name, **sizes, **kinds, "found": found}


def tell(result: dict[str, Any]) -> str:
    """Return tables: the verdicts, the kinds of MKL, how well the solvers agree."""
    missing = "".join(f"\n\nLeft out: {reason}." for reason in result["missing"])
    sets = result["sets"]
    if not sets:
        return "No data." + missing
    verdicts, kinds, solvers = [], [], []
    for one in sets:
        scores, versus, name = one["scores"], one["versus"], one["name"]
        over = [versus[f"mkl - {rival}"] for rival in RIVALS]
        row = [name + " (b)" * one["balanced"], one["train"], one["kernels"], one["splits"]]
        row += [f"{scores[who].mean:.1f}" for who in ("mkl", *RIVALS)]
        told = [f"{x.verdict}: {x.mean:+.1f} [{x.low:+.1f}, {x.high:+.1f}]" for x in over]
        verdicts.append([*row, *told])
        marks = {
            who: " ".join(MARKS[versus[f"{who} - {rival}"].verdict] for rival in RIVALS)
            for who in ("auto", "lp2", "bayes")
        }
        row = [f"{scores[who].spread()} ({mark})" for who, mark in marks.items()]
        kinds.append([name, *row, f"{one['bayes_stopped']} of {one['splits']}"])
        solvers.append([name, *(scores[who].spread() for who in SPARSE)])
    counts = []
    for rival, title in RIVALS.items():
        said = [one["versus"][f"mkl - {rival}"].verdict for one in sets]
        counts.append(f"{title}: " + ", ".join(f"{v} on {said.count(v)}" for v in MARKS))
    heads = ["set", "rows", "kernels", "splits", "MKL", "equal weights", "best single", "SVC"]
    of_kinds = ["set", "sparse (simplex)", "dense (p = 2)", "Bayesian", "Bayesian stopped early"]
    parts = [
        "Mean scores on held-out rows in per cent, (b) balanced accuracy, else accuracy; "
        "difference with its 95 % interval.",
        table(heads + [f"helps {title}?" for title in RIVALS.values()], verdicts),
        f"Of {len(sets)} sets, MKL helps {'; '.join(counts)}.",
        "Each kind of MKL, with half its 95 % interval; in brackets whether it helps over equal "
        "weights, the best single kernel and SVC (+ yes, - no, 0 no difference).",
        table(of_kinds, kinds),
        "Each solver of the sparse kind, at the same C.",
        table(["set", *SPARSE], solvers),
        result["agreement"],
    ]
    return "\n\n".join(parts) + missing


def draw(sets: list[dict[str, Any]], path: Path) -> None:
    """Differences with intervals: one panel for each rival; sets from the top down."""
    figure, [panels] = new_figure(9, 1.2 + 0.24 * len(sets), 1, 3, sharey=True)
    marks = {}
    for axes, (rival, title) in zip(panels, RIVALS.items(), strict=True):
        for place, one in enumerate(sets):
            found = one["versus"][f"mkl - {rival}"]
            colour, marker = LOOKS[found.verdict]
            axes.plot([found.low, found.high], [place, place], color=colour, lw=1.5)
            mark = axes.plot(found.mean, place, marker, color=colour, ms=5)
            marks[f"MKL helps: {found.verdict}"] = mark[0]
        axes.axvline(0, color="black", lw=0.8)
        axes.set_title(title, fontsize=10)
        axes.tick_params(labelsize=8)
    panels[0].set_yticks(range(len(sets)), [one["name"] for one in sets], fontsize=8)
    panels[0].invert_yaxis()
    panels[1].set_xlabel("difference in points of (balanced) accuracy, 95 % interval", fontsize=9)
    save(figure, path, (list(marks.values()), list(marks)))


if __name__ == "__main__":
    run_alone(sys.modules[__name__])
