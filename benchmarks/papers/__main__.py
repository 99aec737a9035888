"""The five papers: one small result of each beside the published one, or all their tables.

    python -m benchmarks.papers [--data-dir DIR]           # about one processor minute
    python -m benchmarks.papers --full --data-dir DIR      # every script, many hours

With --full the scripts of all tables and figures run one after the other with the papers' settings,
as far as data are there. What each of them prints is in ``papers-NAME.txt`` in the folder of
results, its figures beside it. The pages of the documentation under "proof" have these numbers
beside the papers' own.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from benchmarks.data import load
from benchmarks.papers.bemkl_data import ITERATIONS, NEVER, TABLE1, load_table1, split_table1
from benchmarks.papers.mwu_fit import Job, make_model, million_kernels, per_feature_kernels
from benchmarks.papers.mwu_fit import load as load_mwu
from benchmarks.papers.mwu_fit import split as split_mwu
from benchmarks.papers.silp import heaviest_window, sites, stars
from benchmarks.papers.spg import PUBLISHED, make_problem
from benchmarks.papers.spicy_problems import LOOSE, block_l1_problem, random_bank, ringnorm
from benchmarks.part import Settings, run_alone
from benchmarks.show import table
from benchmarks.timing import ROOT, Clock, seconds_of
from kernelweave import BayesianMKLClassifier, MKLClassifier
from kernelweave.problem import Problem
from kernelweave.solvers import MWU, SILP, SPG, ActiveSet, Limits, Result, Solver, Spicy, solve

# The paper, what was looked at, ours, and what the paper has.
Row = tuple[str, str, str, str]
SONAR_1M_HOURS = 3.65
BEMKL_SETS = (("wdbc", "sparse"), ("ionosphere", "dense"))
MWU_SETS = ("breast", "heart", "wdbc")
MWU_METHODS = ("mwu hinge", "mwu paper", "nystrom", "uniform")


class Data:
    """Sets that were asked for; those that cannot be had are named in `missing`."""

    def __init__(self, settings: Settings) -> None:
        self.folder = settings.data_dir
        self.missing: dict[str, str] = {}

    def get(self, loader: Callable[..., Any], name: str) -> Any:
        try:
            return loader(name, self.folder)
        except (OSError, LookupError, ValueError, RuntimeError) as error:
            self.missing[name] = str(error).splitlines()[0][:200]
            return None


def processor_seconds(
    clock: Clock, name: str, work: Callable[[], Any], repeats: int = 1
) -> tuple[Any, float]:
    """Time `work` by the clock for later runs; return its value and processor seconds.

    The papers' programs had one thread, and other work on the machine counts for little.
    """
    spent = []

    def timed() -> Any:
        seconds, value = seconds_of(work, time.process_time)
        spent.append(seconds)
        return value

    value, _ = clock.time(name, timed, repeats)
    return value, min(spent)


def silp(data: Data, clock: Clock) -> list[Row]:
    """Weights move to wider kernels as the stars part; weights over positions find the site."""
    separations = np.array([0.1, 1.3, 2.5, 5.7])
    moved, seconds = processor_seconds(clock, "papers/silp stars", lambda: stars(separations, 1000))
    widths = ", ".join(f"{width:.2g}" for width in moved.mean_width)
    found = sites(data.folder, 1200)
    areas = f"{found['fixed']['roc']:.3f} / {found['fixed']['prc']:.3f}"
    where = f"{found['title']}, {found['n']} of them: heaviest window of 5 positions"
    rows = [
        (
            "two stars, separation 0.1, 1.3, 2.5, 5.7: mean width learnt",
            f"{widths} ({seconds:.1f} s)",
            "wider kernels as the stars part",
        ),
        (where, f"starts at {heaviest_window(found):+d}", "greatest weight next to the site"),
        (
            "the same, weighted degree kernel: areas under ROC / PRC",
            areas,
            "other data: human sites",
        ),
    ]
    return [("SILP", *row) for row in rows]


def spg(data: Data, clock: Clock) -> list[Row]:
    """Sonar under l1, to a gap of 1e-3: sum of 793 kernels (Table 4), product of 60 (Table 9)."""
    found = data.get(load, "sonar")
    if found is None:
        return []
    X, y = StandardScaler().fit_transform(found[0]), found[1]
    rows = []
    for kind, theirs, ours, solver in (
        (4, "SPG-GMKL", "active-set (auto)", ActiveSet()),
        (4, "SILP", "SILP", SILP()),
        (9, "SPG-GMKL", "SPG (auto)", SPG()),
    ):
        problem = make_problem(kind, X, y, "l1")
        told = PUBLISHED[kind, "sonar", "l1"][theirs]
        form = "sum" if kind == 4 else "product"
        name = f"papers/spg sonar {form} {ours}"
        result, seconds = processor_seconds(clock, name, _fit(problem, solver, 1e-3), 2)
        what = f"sonar, {form} of {problem.m} kernels, l1, gap 1e-3"
        took = f"{ours} {seconds:.2f} s"
        if not result.converged:
            took += f", not converged: gap {result.certificate.gap:.0e}"
        rows.append(("SPG-GMKL", what, took, f"{theirs} {told:g} s (one 2.1 GHz core)"))
    return rows


def _fit(problem: Problem, solver: Solver, tol: float) -> Callable[[], Result]:
    # What a fit learns of a bank serves later fits on it; here every fit is the first.
    limits = Limits(tol=tol, max_iter=10_000, max_time=60.0)
    return lambda: solve(problem.with_bank(copy(problem.bank)), solver, limits)


def spicy(data: Data, clock: Clock) -> list[Row]:
    """Ringnorm, n = 200, logistic loss, to a gap of 1e-2: Figure 3."""
    X, y = ringnorm(200)
    rows = []
    for m in (1000, 3000):
        problem = block_l1_problem(random_bank(X, m, LOOSE), y, "logistic", 0.05)
        name = f"papers/spicy {m} kernels"
        result, seconds = processor_seconds(clock, name, _fit(problem, Spicy(), LOOSE), 2)
        what = f"ringnorm drawn anew, n = 200, {m:,} kernels, logistic, gap 1e-2"
        ours = f"{seconds:.2f} s, {np.count_nonzero(result.d)} kernels kept"
        rows.append(("SpicyMKL", what, ours, "under 10 s for 3,000 (2.93 GHz Core i7)"))
    return rows


def bemkl(data: Data, clock: Clock) -> list[Row]:
    """Two sets of Table 1, two splits each."""
    rows = []
    for name, preset in BEMKL_SETS:
        found = data.get(load_table1, name)
        if found is None:
            continue
        paper = TABLE1[name]
        scores, seconds = processor_seconds(
            clock, f"papers/bemkl {name}", partial(_bemkl_scores, *found, paper.n, preset)
        )
        told = getattr(paper, preset)
        what = f"{name}, {paper.n} rows, {paper.m} kernels, {preset}, 2 splits"
        ours = f"{np.mean(scores):.1f} %, {seconds / 2:.1f} s a fit"
        theirs = f"{told.accuracy:.1f} ± {told.deviation:.1f} %, {told.seconds:.1f} s (3.0 GHz)"
        rows.append(("BEMKL", what, ours, theirs))
    return rows


def _bemkl_scores(X: np.ndarray, y: np.ndarray, n: int, preset: str) -> list[float]:
    scores = []
    for replication in range(2):
        train, test, y_train, y_test = split_table1(X, y, n, replication)
        settings = {"max_iter": ITERATIONS, "tol": NEVER, "random_state": replication}
        model = BayesianMKLClassifier("simplemkl", sparsity=preset, **settings)
        scores.append(100.0 * model.fit(train, y_train).score(test, y_test))
    return scores


def mwu(data: Data, clock: Clock) -> list[Row]:
    """Small sets of Figure 2, two splits at C = 1; and the time of a kernel when there are many."""
    rows = []
    for name in MWU_SETS:
        found = data.get(load_mwu, name)
        if found is None:
            continue
        kernels = per_feature_kernels(found[0].shape[1])
        errors: dict[str, list[float]] = {method: [] for method in MWU_METHODS}
        for seed in range(2):
            train, test, y_train, y_test = split_mwu(*found, seed)
            for method, own in errors.items():
                model = make_model(Job(name, "features", method), kernels).fit(train, y_train)
                own.append(100.0 * (1.0 - model.score(test, y_test)))
        shares = ", ".join(f"{method} {np.mean(own):.1f} %" for method, own in errors.items())
        what = f"{name}, {len(kernels)} kernels, 2 splits, C = 1: misclassified"
        rows.append(("MWUMKL", what, shares, "as good as the others or better"))
    return [*rows, _many_kernels(clock)]


def _many_kernels(clock: Clock) -> Row:
    """The rounds of algorithm 4 are as many whatever the data, so any of sonar's shape will do."""
    m, rng = 4000, np.random.default_rng(0)
    X, y = rng.normal(size=(208, 60)), np.resize([-1.0, 1.0], 208)
    settings = {"loss": "squared_hinge", "max_iter": 10**9, "n_jobs": 1}
    solver = MWU(eps=0.2, omega="paper")
    model = MKLClassifier(million_kernels(m, 60), C=10.0, solver=solver, **settings)
    _, seconds = processor_seconds(clock, "papers/mwu kernels", lambda: model.fit(X, y))
    rounds = model.history_[-1].inner_iterations
    hours = f"({SONAR_1M_HOURS} h for a million, Core 2)"
    return (
        "MWUMKL",
        f"{m:,} kernels on 208 rows, as many as sonar has, {rounds:,} rounds: time a kernel",
        f"{1e3 * seconds / m:.1f} ms",
        f"{3600 * 1e3 * SONAR_1M_HOURS / 1e6:.1f} ms {hours}",
    )


PAPERS = {"SILP": silp, "SPG-GMKL": spg, "SpicyMKL": spicy, "BEMKL": bemkl, "MWUMKL": mwu}


TITLE = "The five papers"
# By name; OUT is the folder of results. Every script but `strings` takes --data-dir.
SCRIPTS = {
    "silp": "silp --figure OUT/proof_silp.png",
    "silp-sites": "examples/splice_sites.py --sizes 1000 3000 10000 30000 60000 --spectrum "
    "--out OUT",
    "silp-strings": "strings",
    "silp-million": "strings --parts million",
    "silp-solvers": "silp_solvers",
    "spg-small": "spg --figure OUT/proof_spg.png",
    "spg-scaling": "spg_scaling",
    "spg-ablation": "spg_ablation --figure OUT/spg_ablation.png",
    "spg-large": "large_n --parts adult cod_rna",
    "spg-covertype": "large_n --parts covertype --combinations sum --tol 1e-2",
    "spg-million": "million_kernels",
    "spicy": "spicy --repeats 10 --figure OUT/spicy.png",
    "spicy-figures": "spicy_figures --figure OUT/proof_spicy.png",
    "bemkl": "bemkl --replications 20 --figure OUT/proof_bemkl.png",
    "mwu": "mwu --splits 30 --figure OUT/proof_mwu.png",
}


def measure(settings: Settings, clock: Clock) -> dict[str, Any]:
    """Small results of all papers; with ``--full`` all scripts besides."""
    result: dict[str, Any] = {"rows": [], "scripts": []}
    data = Data(settings)
    for paper, look in PAPERS.items():
        settings.say(paper)
        result["rows"] += look(data, clock)
    result["missing"] = data.missing
    if settings.full:
        result["scripts"] = [_run(settings, *item) for item in SCRIPTS.items()]
    return result


def _run(settings: Settings, name: str, command: str) -> dict[str, Any]:
    script, *options = command.split()
    words = [script] if script.endswith(".py") else ["-m", f"benchmarks.papers.{script}"]
    words += [word.replace("OUT", str(settings.out.resolve())) for word in options]
    if settings.data_dir is not None and script != "strings":
        words += ["--data-dir", str(settings.data_dir)]
    shown = settings.out / f"papers-{name}.txt"
    settings.say(f"{name}: {shown}")
    with shown.open("w") as file:
        streams = {"stdout": file, "stderr": subprocess.STDOUT, "check": False, "cwd": ROOT}
        run = [sys.executable, *words]
        seconds, done = seconds_of(lambda: subprocess.run(run, **streams))
    output = "ended with an error: " * bool(done.returncode) + str(shown)
    return {"name": name, "command": command, "seconds": seconds, "output": output}


def tell(result: dict[str, Any]) -> str:
    text = table(["paper", "what", "here", "published"], result["rows"])
    text += "\n\nOurs are processor seconds. The papers' are those of machines of 2006 to 2014: a"
    text += " ratio says how long one waits now, not which algorithm is better."
    for name, reason in result["missing"].items():
        text += f"\n\nLeft out, {name}: {reason}"
    if result["scripts"]:
        heads = ["name", "command", "seconds", "output"]
        text += "\n\n" + table(heads, [[own[head] for head in heads] for own in result["scripts"]])
    return text


if __name__ == "__main__":
    run_alone(sys.modules[__name__])
