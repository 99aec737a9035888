"""Whole MKL fits against one SVC fit on the uniform sum of the same kernels, in one run.

    python -m benchmarks.peers.mkl_fit                       # parts a and b
    python -m benchmarks.peers.mkl_fit --quick               # smaller n for the first part
    python -m benchmarks.peers.mkl_fit --parts c             # n = 5,000, 10,000 and 20,000
    python -m benchmarks.peers.mkl_fit --parts c --sizes 5000

(a) n = 5,000, 20 features, 10 precomputed RBF kernels, simplex and l2, relative gap 1e-3.
(b) scikit-learn's breast cancer data, SimpleMKL family (403 kernels), 398 training rows, gap 1e-3:
    building the bank against NumPy's dense stack, and the fit on it against one SVC.
(c) what certifying costs: ten RBF widths from rows, C = 1, 10, 100, relative gap 1e-3; the share of
    the fit spent on certificates, those of every iteration and those by the kernels themselves.
Times are the smallest of interleaved repetitions; every contestant is given the same arrays.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from benchmarks.part import read_options
from benchmarks.problems import problem_on, two_classes
from benchmarks.show import Table
from benchmarks.timing import race, seconds_of
from kernelweave import MKLClassifier, sample_ids
from kernelweave.bank import build_bank
from kernelweave.cluster.team import pickled_bytes
from kernelweave.kernels import RBF, from_matrices
from kernelweave.operators import ComputedOperator
from kernelweave.regularizers import LpBall, Simplex
from kernelweave.solvers import ActiveSet, Limits, loop, solve

solve_module = sys.modules["kernelweave.solvers.solve"]


def show(title: str, best: dict[str, tuple[float, Any]], reference: str) -> None:
    found = Table(title, ["", "seconds", f"times {reference}"])
    for name, (seconds, _) in best.items():
        found.row(name, seconds, f"{seconds / best[reference][0]:.2f}")


def precomputed_part(n: int, repeat: int) -> None:
    X, y = two_classes(n)
    D = euclidean_distances(X, squared=True)
    grams = [np.exp(-D * gamma) for gamma in np.geomspace(1e-3, 1.0, 10)]
    uniform = np.sum(grams, axis=0)

    def fit(regularizer: Any) -> MKLClassifier:
        # New kernel objects each time: their checks (symmetric, semi-definite) are part of a fit.
        return MKLClassifier(from_matrices(grams), regularizer=regularizer).fit(sample_ids(n), y)

    contestants = {
        "SVC": lambda: SVC(kernel="precomputed").fit(uniform, y),
        "kernelweave simplex": lambda: fit(Simplex()),
        "kernelweave l2": lambda: fit(LpBall(2.0)),
    }
    MKLClassifier(from_matrices([K[:300, :300] for K in grams])).fit(sample_ids(300), y[:300])
    best = race(contestants, repeat)
    show(f"(a) n = {n}, 10 precomputed RBF kernels, relative gap 1e-3", best, "SVC")
    for name, (_, model) in list(best.items())[1:]:
        print(f"{name}: {told(model)}, {np.count_nonzero(model.weights_)} kernels")


def told(model: MKLClassifier) -> str:
    support = f"{len(model.support_)} support vectors"
    return f"gap {model.gap_:.1e}, {model.n_iter_} iterations, {support}"


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
    problem = problem_on(bank, np.where(y > 0, 1.0, -1.0))

    def fit() -> Any:
        return solve(problem, ActiveSet(), Limits(tol=1e-3))

    fit()
    contestants = {
        "NumPy": lambda: numpy_stack(X),
        "kernelweave bank": lambda: build_bank("auto", ComputedOperator.build("simplemkl", X)),
    }
    title = f"(b) building {kernels.m} kernels on {len(X)} rows"
    show(title, race(contestants, repeat), "NumPy")
    held = pickled_bytes(bank) / 1e6
    print(f"the bank holds {held:.0f} MB, the dense stack {stack.nbytes / 1e6:.0f} MB")
    plain, normalised = raw.sum(axis=0), stack.mean(axis=0)
    machine = SVC(kernel="precomputed")
    contestants = {
        "SVC": lambda: machine.fit(plain, y),
        "SVC on the mean of the unit-trace kernels": lambda: machine.fit(normalised, y),
        "kernelweave fit": fit,
    }
    best = race(contestants, 3 * repeat)
    show("(b) fit; SVC = one fit on the uniform sum of the family", best, "SVC")
    result = best["kernelweave fit"][1]
    kept = f"{len(result.history) - 1} iterations, {np.count_nonzero(result.d)} kernels kept"
    print(f"gap {result.certificate.gap:.1e}, {kept}")


@contextmanager
def stopwatch(*places: tuple[ModuleType, str]) -> Iterator[list[float]]:
    """Add up the seconds spent in functions of modules, nested calls once."""
    spent, inside = [0.0], [0]

    def timed(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            inside[0] += 1
            try:
                seconds, value = seconds_of(lambda: function(*args, **kwargs))
            finally:
                inside[0] -= 1
            spent[0] += 0.0 if inside[0] else seconds
            return value

        return call

    with ExitStack() as stack:
        for module, name in places:
            stack.enter_context(patch.object(module, name, timed(getattr(module, name))))
        yield spent


def certificate_part(sizes: list[int]) -> None:
    title = "(c) certificates in a fit, 10 RBF widths from rows, relative gap 1e-3"
    found = Table(title, ["n", "C", "seconds", "certificates, % of it", "fit"])
    places = [(loop, "certify"), (loop, "recompute"), (solve_module, "certified_exactly")]
    widths = [RBF(width=width) for width in np.geomspace(0.5, 20.0, 10)]
    for n in sizes:
        X, y = two_classes(n, flip_y=0.05, class_sep=1.0)
        for C in (1.0, 10.0, 100.0):
            with stopwatch(*places) as spent:
                fit = MKLClassifier(widths, C=C).fit
                seconds, model = seconds_of(lambda fit=fit, X=X, y=y: fit(X, y))
            found.row(n, C, seconds, 100 * spent[0] / seconds, told(model))


def main() -> None:
    sizes = [5000, 10_000, 20_000]
    parts = ("ab", "which of a, b, c (default: ab)")
    args = read_options(__doc__, data=False, parts=parts, sizes=sizes, quick=False, repeat=3)
    if "b" in args.parts:
        family_part(args.repeat)
    if "a" in args.parts:
        precomputed_part(2000 if args.quick else 5000, args.repeat)
    if "c" in args.parts:
        certificate_part(args.sizes)


if __name__ == "__main__":
    main()
