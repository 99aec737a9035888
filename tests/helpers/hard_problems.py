"""Problems that are no fun: singular kernels, sizes far apart, huge and tiny C, ties.

Drawn from a seed, so that a case can be named; Hypothesis chooses seeds and kinds of trouble.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass

import numpy as np
from hypothesis import HealthCheck, settings
from sklearn.exceptions import ConvergenceWarning
from true_certificate import truth

from kernelweave.bank import DenseBank
from kernelweave.combine import WeightedSum
from kernelweave.errors import InvalidInputError
from kernelweave.losses import get_loss
from kernelweave.problem import Problem
from kernelweave.regularizers import (
    L1,
    BlockNorm,
    ElasticNet,
    Entropy,
    LpBall,
    Simplex,
    SquaredLp,
)
from kernelweave.solvers import Limits, get_solver, solve

__all__ = [
    "FULL",
    "LOSSES",
    "TROUBLES",
    "Fit",
    "check_fit",
    "draw",
    "fit",
    "hard_settings",
    "many",
    "regularizer_of",
]

FULL = os.environ.get("KERNELWEAVE_HARD") == "full"
CLASSIFICATION = ["hinge", "squared_hinge", "logistic", "smooth_hinge"]
LOSSES = [*CLASSIFICATION, "squared", "epsilon_insensitive"]
TROUBLES = ["kinds", "twins", "rows", "sizes", "C", "lonely", "ties", "targets"]
KINDS = ["zero", "ones", "identity", "rank one", "rank two", "full"]


def many(few):
    """So many examples as a rule, and ten times as many with ``KERNELWEAVE_HARD=full``."""
    return 10 * few if FULL else few


def hard_settings(few):
    """Settings of Hypothesis for so many slow examples, the same on every run."""
    return settings(
        max_examples=many(few),
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def regularizer_of(rng, sizes=(-2, 2)):
    """One of all convex regularizers, with any price in that range of powers of ten."""
    s = float(10.0 ** rng.uniform(*sizes))
    return [
        Simplex(),
        L1(s),
        LpBall(float(rng.choice([1.1, 1.5, 2.0, 4.0]))),
        SquaredLp(float(rng.choice([1.5, 2.0])), s),
        ElasticNet(s, float(rng.choice([0.0, 0.5, 0.9]))),
        BlockNorm(2, float(rng.choice([1.5, 2.0])), s),
        Entropy(s),
    ][rng.integers(7)]


def _kernel(rng, n, kind):
    fixed = {"zero": np.zeros((n, n)), "ones": np.ones((n, n)), "identity": np.eye(n)}
    if kind in fixed:
        return fixed[kind]
    A = rng.normal(size=(n, {"rank one": 1, "rank two": 2, "full": n + 5}[kind]))
    K = A @ A.T / A.shape[1]
    return 0.5 * (K + K.T)


def _kernels(rng, n, m, troubles):
    kinds = KINDS if "kinds" in troubles else KINDS[4:]
    Ks = [_kernel(rng, n, kind) for kind in rng.choice(kinds, size=m)]
    if "twins" in troubles:
        for k in range(m // 2):
            Ks[k] = Ks[-1 - k] * (1.0 + rng.choice([0.0, 1e-12, 1e-6]))
    if "rows" in troubles:
        same = rng.integers(n, size=n)
        Ks = [K[np.ix_(same, same)] for K in Ks]
    if "sizes" in troubles:
        low, high = np.sort(rng.uniform(-12, 12, size=2))
        Ks = [10.0 ** rng.uniform(low, high) * K for K in Ks]
    return Ks


def draw(seed, troubles=(), loss=None, regularizer=None, n_tasks=1, n=(4, 20), m=(1, 6)):
    """A problem on dense kernels.

    Troubles: "kinds" (zero, constant, rank one), "twins" (duplicate kernels), "rows" (duplicate
    samples, with opposite labels among them), "sizes" (kernels from 1e-12 to 1e12), "C" (from 1e-8
    to 1e8), "lonely" (a single positive), "ties" (targets of few values), "targets" (of any size).
    """
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(n[0], n[1] + 1)), int(rng.integers(m[0], m[1] + 1))
    Ks = _kernels(rng, n, m, troubles)
    loss = get_loss(str(rng.choice(LOSSES)) if loss is None else loss)
    signal = rng.normal(size=(n_tasks, n)) @ Ks[0]
    y = signal / (np.abs(signal).max() or 1.0) + 0.5 * rng.normal(size=(n_tasks, n))
    if loss.task == "classification":
        y = np.where(y > np.median(y, axis=1, keepdims=True), 1.0, -1.0)
        y[:, :2] = 1.0, -1.0
        if "lonely" in troubles:
            y[:, 1:] = -1.0
    elif "ties" in troubles:
        y = np.round(y)
    elif "targets" in troubles:
        y = 10.0 ** rng.uniform(-6, 6) * y
    C = 10.0 ** (rng.uniform(-8, 8) if "C" in troubles else rng.uniform(-2, 2))
    regularizer = regularizer_of(rng) if regularizer is None else regularizer
    bank = DenseBank().from_matrices(Ks)
    return Problem(bank, y, np.full(y.shape, C), loss, regularizer, WeightedSum())


@dataclass(frozen=True)
class Fit:
    """A problem as its solver takes it, the result, and whether the user was warned."""

    problem: Problem
    result: object
    warned: bool

    @property
    def truth(self):
        """Its objectives, from plain arrays in extended precision."""
        problem, result = self.problem, self.result
        return truth(
            list(problem.bank.block(np.arange(problem.n))),
            problem.y,
            problem.C,
            problem.loss,
            problem.regularizer,
            result.d,
            result.alpha,
            result.intercept,
            result.witness,
        )


def fit(problem, name, tol=1e-3, max_iter=100):
    """Fit with a solver; None if it refuses this loss or regularizer and says so."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            solver = get_solver(name, problem)
            taken = solver.prepare(problem.bound())
            result = solve(problem, solver, Limits(tol=tol, max_iter=max_iter))
        except InvalidInputError as error:
            assert f"{name}'" in str(error) and ("takes" in str(error) or "learns" in str(error))
            return None
    strange = [w for w in caught if not issubclass(w.category, ConvergenceWarning)]
    assert not strange, [str(w.message) for w in strange]
    return Fit(taken, result, bool(caught))


def check_fit(done, tol=1e-3):
    """Finite, feasible, honest: the certificate is true, or the user has been warned."""
    result, certificate = done.result, done.result.certificate
    for numbers in (result.d, result.alpha, result.intercept):
        assert np.all(np.isfinite(numbers))
    assert np.all(np.isfinite([certificate.primal, certificate.dual, certificate.gap]))
    assert result.d.min() >= 0.0
    assert result.converged == (certificate.gap <= tol)
    assert result.converged != done.warned
    true = done.truth
    assert true.outside <= 1e-12
    # Rounding is no excuse: what it may hide is part of the gap. Only near the floor, where no
    # digit of the objective is left, some parts of that have to be allowed.
    size = max(abs(true.primal), abs(true.dual), true.floor)
    room = 1e-9 * (1.0 + abs(certificate.gap)) + 1e-8 * true.floor / size
    assert true.gap <= certificate.gap + room
    if result.converged:
        assert true.gap <= 1.001 * tol
