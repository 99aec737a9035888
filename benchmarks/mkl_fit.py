"""Whole MKL fits against one SVC fit on the uniform sum of the same kernels, in one run.

    python benchmarks/mkl_fit.py                       # parts a and b
    python benchmarks/mkl_fit.py --quick               # smaller n for the first part
    python benchmarks/mkl_fit.py --parts c             # n = 5,000, 10,000 and 20,000
    python benchmarks/mkl_fit.py --parts c --sizes 5000

(a) n = 5,000, 20 features, 10 precomputed RBF kernels, simplex and l2, relative gap 1e-3.
(b) scikit-learn's breast cancer data, SimpleMKL family (403 kernels), 398 training rows, gap 1e-3:
    building the bank against NumPy's dense stack, and the fit on it against one SVC.
(c) what certifying costs: ten RBF widths from rows, C = 1, 10, 100, relative gap 1e-3; the share of
    the fit spent on certificates, those of every iteration and those by the kernels themselves.
Times are the smallest of interleaved repetitions; every contestant is given the same arrays.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType

import numpy as np
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from kernelweave import MKLClassifier, sample_ids
from kernelweave.bank import build_bank
from kernelweave.combine import WeightedSum
from kernelweave.kernels import RBF, from_matrices
from kernelweave.losses import Hinge
from kernelweave.operators import ComputedOperator
from kernelweave.problem import Problem
from kernelweave.regularizers import LpBall, Simplex
from kernelweave.solvers import ActiveSet, Limits, loop, solve

solve_module = sys.modules["kernelweave.solvers.solve"]


def best_times(contestants: dict[str, Callable[[], object]], repeat: int) -> dict[str, float]:
    """Smallest time of each contestant over interleaved rounds."""
    times = {name: np.inf for name in contestants}
    for _ in range(repeat):
        for name, run in contestants.items():
            began = time.perf_counter()
            run()
            times[name] = min(times[name], time.perf_counter() - began)
    return times


def show(title: str, times: dict[str, float], reference: str) -> None:
    print(f"\n{title}")
    for name, seconds in times.items():
        ratio = seconds / times[reference]
        print(f"  {name:<58} {seconds:9.4f} s   {ratio:7.2f} x {reference}")


def precomputed_part(n: int, repeat: int) -> None:
    X, y = make_classification(n, 20, n_informative=8, flip_y=0.1, class_sep=0.8, random_state=0)
    D = euclidean_distances(StandardScaler().fit_transform(X), squared=True)
    grams = [np.exp(-D * gamma) for gamma in np.geomspace(1e-3, 1.0, 10)]
    uniform = np.sum(grams, axis=0)
    models: dict[str, MKLClassifier] = {}

    def fit(name: str, regularizer: object) -> None:
        # New kernel objects each time: their checks (symmetric, semi-definite) are part of a fit.
        models[name] = MKLClassifier(from_matrices(grams), regularizer=regularizer).fit(
            sample_ids(n), y
        )

    contestants = {
        "SVC": lambda: SVC(kernel="precomputed").fit(uniform, y),
        "kernelweave simplex": lambda: fit("simplex", Simplex()),
        "kernelweave l2": lambda: fit("l2", LpBall(2.0)),
    }
    MKLClassifier(from_matrices([K[:300, :300] for K in grams])).fit(sample_ids(300), y[:300])
    times = best_times(contestants, repeat)
    show(f"(a) n = {n}, 10 precomputed RBF kernels, relative gap 1e-3", times, "SVC")
    for name, model in models.items():
        print(
            f"      {name}: gap {model.gap_:.1e}, {model.n_iter_} iterations, "
            f"{np.count_nonzero(model.weights_)} kernels, {len(model.support_)} support vectors"
        )


def numpy_stack(X: np.ndarray) -> np.ndarray:
    """The SimpleMKL family as one writes it in NumPy: 13 kernels on each block of columns."""
    Z = StandardScaler().fit_transform(X)
    blocks = [Z] + [Z[:, [j]] for j in range(Z.shape[1])]
    grams = []
    for block in blocks:
        D = euclidean_distances(block, squared=True)
        grams += [np.exp(-D / (2 * width**2)) for width in 2.0 ** np.arange(-3, 7)]
        inner = block @ block.T + 1
        grams += [inner**degree for degree in (1, 2, 3)]
    stack = np.array(grams)
    stack /= np.einsum("kii->k", stack)[:, None, None] / len(X)
    return stack


def family_part(repeat: int) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    X, _, y, _ = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
    kernels = ComputedOperator.build("simplemkl", X)
    stack = kernels.block(np.arange(len(X)))
    raw = ComputedOperator.build("simplemkl", X, normalize=None).block(np.arange(len(X)))
    bank = build_bank("auto", kernels)
    signs = np.where(y > 0, 1.0, -1.0)[None]
    problem = Problem(bank, signs, np.ones_like(signs), Hinge(), Simplex(), WeightedSum())
    results = {}

    def build() -> None:
        build_bank("auto", ComputedOperator.build("simplemkl", X))

    def fit() -> None:
        results["fit"] = solve(problem, ActiveSet(), Limits(tol=1e-3))

    fit()
    times = best_times({"NumPy": lambda: numpy_stack(X), "kernelweave bank": build}, repeat)
    show(f"(b) building {kernels.m} kernels on {len(X)} rows", times, "NumPy")
    held = bank.nbytes / 1e6
    print(f"      the bank holds {held:.0f} MB, the dense stack {stack.nbytes / 1e6:.0f} MB")
    plain, normalised = raw.sum(axis=0), stack.mean(axis=0)
    contestants = {
        "SVC": lambda: SVC(kernel="precomputed").fit(plain, y),
        "SVC on the mean of the unit-trace kernels": lambda: SVC(kernel="precomputed").fit(
            normalised, y
        ),
        "kernelweave fit": fit,
    }
    times = best_times(contestants, 3 * repeat)
    show("(b) fit; SVC = one fit on the uniform sum of the family", times, "SVC")
    result = results["fit"]
    print(
        f"      gap {result.certificate.gap:.1e}, {len(result.history) - 1} iterations, "
        f"{np.count_nonzero(result.d)} kernels kept"
    )


@contextmanager
def stopwatch(*places: tuple[ModuleType, str]) -> Iterator[dict[str, float]]:
    """Add up the seconds spent in functions of modules, nested calls once."""
    spent, inside = {"seconds": 0.0}, [0]
    kept = [(module, name, getattr(module, name)) for module, name in places]

    def timed(function: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            began = time.perf_counter()
            inside[0] += 1
            try:
                return function(*args, **kwargs)
            finally:
                inside[0] -= 1
                if not inside[0]:
                    spent["seconds"] += time.perf_counter() - began

        return call

    for module, name, function in kept:
        setattr(module, name, timed(function))
    try:
        yield spent
    finally:
        for module, name, function in kept:
            setattr(module, name, function)


def certificate_part(sizes: list[int]) -> None:
    print("\n(c) certificates in a fit, 10 RBF widths from rows, relative gap 1e-3")
    places = [(loop, "certify"), (loop, "recompute"), (solve_module, "certified_exactly")]
    widths = [RBF(width=width) for width in np.geomspace(0.5, 20.0, 10)]
    for n in sizes:
        X, y = make_classification(n, 20, n_informative=8, flip_y=0.05, random_state=0)
        X = StandardScaler().fit_transform(X)
        for C in (1.0, 10.0, 100.0):
            with stopwatch(*places) as spent:
                began = time.perf_counter()
                model = MKLClassifier(widths, C=C).fit(X, y)
                seconds = time.perf_counter() - began
            print(
                f"  n = {n:6d}, C = {C:5g}: {seconds:7.2f} s, certificates "
                f"{100 * spent['seconds'] / seconds:4.1f} % of it, gap {model.gap_:.1e}, "
                f"{model.n_iter_} iterations, {len(model.support_)} support vectors",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="ab", help="which of a, b, c (default: ab)")
    parser.add_argument("--sizes", type=int, nargs="+", default=[5000, 10_000, 20_000])
    parser.add_argument("--quick", action="store_true", help="n = 2,000 in the first part")
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    if "b" in args.parts:
        family_part(args.repeat)
    if "a" in args.parts:
        precomputed_part(2000 if args.quick else 5000, args.repeat)
    if "c" in args.parts:
        certificate_part(args.sizes)


if __name__ == "__main__":
    main()
