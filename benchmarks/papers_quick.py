"""One small result of each of the five papers, beside what the paper says; see papers.py."""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any

import numpy as np
from bemkl_data import ITERATIONS, NEVER, TABLE1, load_table1, split_table1
from datasets import load, make_ringnorm
from mwu_data import load as load_mwu
from mwu_data import million_kernels, per_feature_kernels
from mwu_data import split as split_mwu
from mwu_fit import Job, make_model
from papers_silp import heaviest_window, sites, stars
from papers_spg import PUBLISHED, make_problem
from part import Clock, Settings
from sklearn.preprocessing import StandardScaler
from spicy_problems import LOOSE, LOSSES, block_l1_problem, draw, random_kernels

from kernelweave import BayesianMKLClassifier, MKLClassifier
from kernelweave.bank import DenseBank, storage_dtype
from kernelweave.operators import bind_kernels
from kernelweave.problem import Problem
from kernelweave.solvers import MWU, SILP, SPG, ActiveSet, Limits, Result, Solver, Spicy, solve

# What was looked at, ours, and what the paper has.
Row = dict[str, str]
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
        """Return features and labels, or None."""
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
        began = time.process_time()
        value = work()
        spent.append(time.process_time() - began)
        return value

    value, _ = clock.time(name, timed, repeats)
    return value, min(spent)


def row(paper: str, what: str, ours: str, published: str) -> Row:
    """One line of the table."""
    return {"paper": paper, "what": what, "ours": ours, "published": published}


def silp(data: Data, clock: Clock) -> list[Row]:
    """Weights move to wider kernels as the stars part; weights over positions find the site."""
    separations = np.array([0.1, 1.3, 2.5, 5.7])
    moved, seconds = processor_seconds(clock, "papers/silp stars", lambda: stars(separations, 1000))
    widths = ", ".join(f"{width:.2g}" for width in moved.mean_width)
    found = sites(data.folder, 1200)
    areas = f"{found['fixed']['roc']:.3f} / {found['fixed']['prc']:.3f}"
    return [
        row(
            "SILP",
            "two stars, separation 0.1, 1.3, 2.5, 5.7: mean width learnt",
            f"{widths} ({seconds:.1f} s)",
            "wider kernels as the stars part",
        ),
        row(
            "SILP",
            f"{found['title']}, {found['n']} of them: heaviest window of 5 positions",
            f"starts at {heaviest_window(found):+d}",
            "greatest weight next to the site",
        ),
        row(
            "SILP",
            "the same, weighted degree kernel: areas under ROC / PRC",
            areas,
            "other data: human sites",
        ),
    ]


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
        rows.append(
            row(
                "SPG-GMKL",
                f"sonar, {form} of {problem.m} kernels, l1, gap 1e-3",
                f"{ours} {seconds:.2f} s",
                f"{theirs} {told:g} s (one 2.1 GHz core)",
            )
        )
        if not result.converged:
            rows[-1]["ours"] += f", not converged: gap {result.certificate.gap:.0e}"
    return rows


def _fit(problem: Problem, solver: Solver, tol: float) -> Callable[[], Result]:
    # What a fit learns of a bank serves later fits on it; here every fit is the first.
    limits = Limits(tol=tol, max_iter=10_000, max_time=60.0)
    return lambda: solve(problem.with_bank(copy(problem.bank)), solver, limits)


def spicy(data: Data, clock: Clock) -> list[Row]:
    """Ringnorm, n = 200, logistic loss, to a gap of 1e-2: Figure 3."""
    X, y = make_ringnorm(200)
    X, y = draw(X, np.where(y == 1, 1.0, -1.0), 200)
    rows = []
    for m in (1000, 3000):
        kernels = bind_kernels(random_kernels(m, X.shape[1]), X)
        bank = DenseBank(storage_dtype(LOOSE)).build(kernels)
        problem = block_l1_problem(bank, y, LOSSES["logistic"], 0.05)
        name = f"papers/spicy {m} kernels"
        result, seconds = processor_seconds(clock, name, _fit(problem, Spicy(), LOOSE), 2)
        kept = np.count_nonzero(result.d)
        rows.append(
            row(
                "SpicyMKL",
                f"ringnorm drawn anew, n = 200, {m:,} kernels, logistic, gap 1e-2",
                f"{seconds:.2f} s, {kept} kernels kept",
                "under 10 s for 3,000 (2.93 GHz Core i7)",
            )
        )
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
        rows.append(
            row(
                "BEMKL",
                f"{name}, {paper.n} rows, {paper.m} kernels, {preset}, 2 splits",
                f"{np.mean(scores):.1f} %, {seconds / 2:.1f} s a fit",
                f"{told.accuracy:.1f} ± {told.deviation:.1f} %, {told.seconds:.1f} s (3.0 GHz)",
            )
        )
    return rows


def _bemkl_scores(X: np.ndarray, y: np.ndarray, n: int, preset: str) -> list[float]:
    scores = []
    for replication in range(2):
        train, test, y_train, y_test = split_table1(X, y, n, replication)
        model = BayesianMKLClassifier(
            "simplemkl", sparsity=preset, max_iter=ITERATIONS, tol=NEVER, random_state=replication
        )
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
        rows.append(row("MWUMKL", what, shares, "as good as the others or better"))
    return [*rows, _many_kernels(clock)]


def _many_kernels(clock: Clock) -> Row:
    """The rounds of algorithm 4 are as many whatever the data, so any of sonar's shape will do."""
    m, rng = 4000, np.random.default_rng(0)
    X, y = rng.normal(size=(208, 60)), np.resize([-1.0, 1.0], 208)
    model = MKLClassifier(
        million_kernels(m, 60),
        C=10.0,
        loss="squared_hinge",
        solver=MWU(eps=0.2, omega="paper"),
        max_iter=10**9,
        n_jobs=1,
    )
    _, seconds = processor_seconds(clock, "papers/mwu kernels", lambda: model.fit(X, y))
    rounds = model.history_[-1].inner_iterations
    return row(
        "MWUMKL",
        f"{m:,} kernels on 208 rows, as many as sonar has, {rounds:,} rounds: time a kernel",
        f"{1e3 * seconds / m:.1f} ms",
        f"{3600 * 1e3 * SONAR_1M_HOURS / 1e6:.1f} ms ({SONAR_1M_HOURS} h for a million, Core 2)",
    )


PAPERS: dict[str, Callable[[Data, Clock], list[Row]]] = {
    "SILP": silp,
    "SPG-GMKL": spg,
    "SpicyMKL": spicy,
    "BEMKL": bemkl,
    "MWUMKL": mwu,
}
