"""The cost of a round against the limit of memory, and what the target omega does; see mwu.py."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit

from benchmarks.papers.mwu_fit import (
    load,
    million_kernels,
    per_feature_kernels,
    split,
    twelve_kernels,
)
from benchmarks.show import Table
from benchmarks.timing import seconds_of
from kernelweave import MKLClassifier
from kernelweave.bank import DenseBank, FactoredBank, LazyBank, build_bank
from kernelweave.compiled.mwu import best_pair
from kernelweave.compiled.threads import map_blocks
from kernelweave.kernels import RBF, default_family
from kernelweave.operators import bind_kernels
from kernelweave.solvers import MWU
from kernelweave.solvers.mwu.running import running_products


@njit(nogil=True, fastmath=True)
def _touch(state: np.ndarray, first: int, last: int, out: np.ndarray) -> None:
    """Read and write, and next to no arithmetic."""
    for i in range(first, last):
        state[i] = state[i] * 0.5 + 0.25


@njit(nogil=True, fastmath=True)
def _total(numbers: np.ndarray, first: int, last: int, out: np.ndarray) -> None:
    total = numbers.dtype.type(0.0)
    for i in range(first, last):
        total += numbers[i]
    out[first % out.shape[0]] += total


def _median(func: Any, repeats: int) -> float:
    return float(np.median([seconds_of(func)[0] for _ in range(repeats)]))


def pass_seconds(loop: Any, size: int, dtype: Any, repeats: int) -> float:
    """Seconds of one pass over so many numbers, on as many threads as a round."""
    flat, out = np.ones(size, dtype), np.zeros(64)
    block = max(2**15, size // 64)

    def once() -> None:
        map_blocks(lambda a, b: loop(flat, a, b, out), size, block, 2.0 * size)

    once()
    return _median(once, repeats)


def round_seconds(products: Any, pairs: Iterator[np.ndarray], repeats: int) -> float:
    """One round's work: products and block of a pair, the pass, and the search for the next."""
    m, n = products.m, products.n
    rng = np.random.default_rng(0)
    d, v = rng.random(m), np.zeros(n)
    linear, ridge = np.where(rng.random(n) < 0.5, 1.0, -1.0), np.zeros(n)
    up, down = np.full(n, np.inf), np.full(n, -np.inf)

    def once() -> None:
        idx = next(pairs)
        products.pair(*idx)
        fitted = products.move(idx, np.array([0.5, -0.5]), d)
        best_pair(fitted, v, linear, ridge, up, down)

    products.reset(v)
    for _ in range(3):
        once()
    return _median(once, repeats)


def few_pairs(n: int, count: int = 8) -> Iterator[np.ndarray]:
    """The same few samples again and again: rows are in the cache after the first time."""
    rng = np.random.default_rng(1)
    samples = rng.permutation(n)[: 2 * count].reshape(count, 2)
    for _ in range(2):
        yield from samples
    while True:
        yield samples[rng.integers(count)]


def new_pairs(n: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(2)
    while True:
        yield from rng.permutation(n)[: n - n % 2].reshape(-1, 2)


def run_step(args: Any) -> None:
    """A round over dense, lazy, factored and batch banks against the pass over the state."""
    heads = ["bank", "m", "n", "state, MB", "round, ms", "state read and written, ms"]
    heads += ["round over it", "with what else it must read, ms", "round over that"]
    found = Table("## step: one round against reading and writing the m x n state once", heads)
    repeats = 5 if args.quick else 60
    for label, products, pairs, read in _cases(args):
        m, n = products.m, products.n
        dtype = getattr(getattr(products, "state", None), "dtype", np.dtype(np.float64))
        taken = round_seconds(products, pairs, repeats)
        touched = pass_seconds(_touch, m * n, dtype, repeats)
        # Of factored kernels the round passes over the factors, and keeps nothing that large.
        state = getattr(products, "state", np.empty(0))
        kept = touched if state.size else 0.0
        needed = kept + sum(pass_seconds(_total, size, kind, repeats) for size, kind in read)
        cells = [label, m, n, state.nbytes / 1e6, 1e3 * taken, 1e3 * touched, taken / touched]
        found.row(*cells, 1e3 * needed, taken / needed)


def _cases(args: Any) -> Iterator[tuple[str, Any, Iterator[np.ndarray], list[Any]]]:
    """(name, products, pairs to move, what else is read: numbers and their type)."""
    quick = args.quick
    rng = np.random.default_rng(0)
    n, m = (300, 40) if quick else (1000, 600)
    X = rng.normal(size=(n, 10))
    kernels = [RBF(width=w).on([int(j)]) for w in (0.5, 1.0, 2.0, 4.0) for j in range(10)]
    kernels = (kernels * (m // 40 + 1))[:m]
    dense = DenseBank("float32").build(bind_kernels(kernels, X))
    yield "dense", running_products(dense), new_pairs(n), [(2 * m * n, np.float32)]
    del dense
    n = 1000 if quick else 40_000
    X = rng.normal(size=(n, 20))
    kernel_set = bind_kernels(twelve_kernels(), X)
    for label, pairs, read in (
        ("lazy, rows in the cache", few_pairs(n), [(2 * 12 * n, np.float32)]),
        ("lazy, new rows (computed)", new_pairs(n), []),
    ):
        bank = LazyBank().build(kernel_set)
        yield label, running_products(bank), pairs, read
    n, p = (300, 10) if quick else (6500, 112)
    X = (rng.random((n, p)) < 0.3).astype(float)
    factored = FactoredBank().build(bind_kernels(per_feature_kernels(p), X))
    size = int(np.sum(factored.ranks)) * n
    label = f"factored, ranks {factored.ranks.mean():.1f} on average (passes over the factors)"
    yield label, running_products(factored), new_pairs(n), [(size, np.float64)]
    n, m = 208, 5000 if quick else 400_000
    batch = build_bank("auto", bind_kernels(million_kernels(m, 60), rng.normal(size=(n, 60))))
    label = "batch (rows computed in the pass)"
    yield label, running_products(batch), new_pairs(n), []


def run_omega(args: Any) -> None:
    """max_k q_k(a) over the optimum's for several targets, and the weights they end with."""
    n = 80
    X, y = load("wdbc", args.data_dir)
    train, _, y_train, _ = split(X, y, 0, n)
    kernels = default_family()
    best = MKLClassifier(kernels, loss="squared_hinge", tol=1e-8).fit(train, y_train)
    # With a of sum one, max_k q_k = 1 / (2 D); of unit-trace kernels 1/n of that.
    star = 2.0 * n * best.dual_objective_
    title = (
        f"## omega: wdbc, n = {n}, {len(best.weights_)} kernels, 2-norm soft margin, C = 1; "
        f"best weights {_told(best.weights_)}; 1/q* = {star:.0f} on unit-trace kernels"
    )
    heads = ["omega", "eps", "rounds", "max_k q_k over the optimum", "gap", "weights"]
    found = Table(title, heads)
    cases: list[tuple[str, MWU, float]] = [
        ("paper", MWU(eps=eps, omega="paper"), 1e-8) for eps in (0.2, 0.05)
    ]
    cases += [
        (f"{part:g} / q*", MWU(eps=eps, omega=part * star), 1e-8)
        for part in ((0.5,) if args.quick else (0.1, 0.5, 1.0))
        for eps in ((0.3,) if args.quick else (0.3, 0.1))
    ]
    cases += [(f"auto, tol {tol:g}", MWU(), tol) for tol in (1e-1, 1e-2, 1e-3, 1e-4)]
    limits = {"max_iter": 10**9, "max_time": 300.0}
    for label, solver, tol in cases:
        model = MKLClassifier(kernels, loss="squared_hinge", solver=solver, tol=tol, **limits)
        rounds = model.fit(train, y_train).history_[-1].inner_iterations
        ratio = f"{best.dual_objective_ / model.dual_objective_:.4f}"
        found.row(label, solver.eps, rounds, ratio, model.gap_, _told(model.weights_))


def _told(weights: np.ndarray) -> str:
    return " ".join(f"{w:.2f}" for w in weights)
