"""The cost of a round against the limit of memory, and what the target omega does; see mwu.py."""

from collections.abc import Iterator
from typing import Any

import numpy as np

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


def _touch(state: np.ndarray) -> None:
    """Read and write, and next to no arithmetic."""
    np.multiply(state, 0.5, out=state)


def _median(func: Any, repeats: int) -> float:
    return float(np.median([seconds_of(func)[0] for _ in range(repeats)]))


def pass_seconds(loop: Any, size: int, dtype: Any, repeats: int) -> float:
    """Seconds of one pass over so many numbers, on as many threads as a round."""
    flat = np.ones(size, dtype)
    block = max(2**15, size // 64)

    def once() -> None:
        map_blocks(lambda a, b: loop(flat[a:b]), size, block, 2.0 * size)

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
    for _ in range(20):  # The rows of `few_pairs` are then in the cache.
        once()
    return _median(once, repeats)


def few_pairs(n: int) -> Iterator[np.ndarray]:
    """The same eight pairs again and again."""
    pairs = np.random.default_rng(1).permutation(n)[:16].reshape(8, 2)
    while True:
        yield from pairs


def new_pairs(n: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(2)
    while True:
        yield from rng.permutation(n)[: n - n % 2].reshape(-1, 2)


def run_step(args: Any) -> None:
    """A round over dense, lazy, factored and batch banks against the pass over the state."""
    heads = ["bank", "m", "n", "state, MB", "round, ms", "state read and written, ms"]
    heads += ["round over it", "with what else it must read, ms", "round over that"]
    found = Table("## step: one round against reading and writing the m x n state once", heads)
    for label, bank, pairs, *read in _cases(args.step_part):
        products = running_products(bank)
        m, n = products.m, products.n
        # Of factored kernels the round passes over the factors, and keeps nothing that large.
        state = getattr(products, "state", np.empty(0))
        taken = round_seconds(products, pairs(n), args.step_repeats)
        touched = pass_seconds(_touch, m * n, state.dtype, args.step_repeats)
        needed = touched if state.size else 0.0
        if read:
            needed += pass_seconds(np.sum, *read, args.step_repeats)
        cells = [label, m, n, state.nbytes / 1e6, 1e3 * taken, 1e3 * touched, taken / touched]
        found.row(*cells, 1e3 * needed, taken / needed)


def _cases(part: float) -> Iterator[tuple[Any, ...]]:
    """Name, bank, pairs to move; how many numbers are read besides, and their type."""
    rng = np.random.default_rng(0)
    n, m = (int(part * size) for size in (1000, 600))
    X = rng.normal(size=(n, 10))
    kernels = [RBF(width=w).on([int(j)]) for w in (0.5, 1.0, 2.0, 4.0) for j in range(10)]
    bound = bind_kernels((kernels * (m // 40 + 1))[:m], X)
    yield "dense", DenseBank("float32").build(bound), new_pairs, 2 * m * n, np.float32
    n = int(part * 40_000)
    bound = bind_kernels(twelve_kernels(), rng.normal(size=(n, 20)))
    lazy = LazyBank().build(bound)
    yield "lazy, rows in the cache", lazy, few_pairs, 2 * 12 * n, np.float32
    yield "lazy, new rows (computed)", LazyBank().build(bound), new_pairs
    n, p = int(part * 6500), int(part * 112)
    X = (rng.random((n, p)) < 0.3).astype(float)
    bank = FactoredBank().build(bind_kernels(per_feature_kernels(p), X))
    label = f"factored, ranks {bank.ranks.mean():.1f} on average (passes over the factors)"
    yield label, bank, new_pairs, int(np.sum(bank.ranks)) * n, np.float64
    batch = million_kernels(int(part * 400_000), 60)
    bank = build_bank("auto", bind_kernels(batch, rng.normal(size=(208, 60))))
    yield "batch (rows computed in the pass)", bank, new_pairs


def run_omega(args: Any) -> None:
    """max_k q_k(a) over the optimum's for several targets, and the weights they end with."""
    n = 80
    X, y = load("wdbc", args.data_dir)
    train, _, y_train, _ = split(X, y, 0, n)
    shared = {"loss": "squared_hinge", "max_iter": 10**9, "max_time": 300.0}
    best = MKLClassifier(default_family(), tol=1e-8, **shared).fit(train, y_train)
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
        for part in args.omega_parts
        for eps in args.omega_eps
    ]
    cases += [(f"auto, tol {tol:g}", MWU(), tol) for tol in (1e-1, 1e-2, 1e-3, 1e-4)]
    for label, solver, tol in cases:
        model = MKLClassifier(default_family(), solver=solver, tol=tol, **shared)
        rounds = model.fit(train, y_train).history_[-1].inner_iterations
        ratio = f"{best.dual_objective_ / model.dual_objective_:.4f}"
        found.row(label, solver.eps, rounds, ratio, model.gap_, _told(model.weights_))


def _told(weights: np.ndarray) -> str:
    return " ".join(f"{w:.2f}" for w in weights)
