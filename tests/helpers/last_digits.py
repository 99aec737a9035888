"""Kernels whose last digits differ from answer to answer, as they do from one processor to another.

BLAS, NumPy and LLVM choose other instructions, and another order of sums, on another processor.
Here every kernel value is multiplied by 1 + u with a new u of at most 4e-16 whenever it is asked
for: whatever a solver decides, it must not hang on those digits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hard_problems import LOSSES, draw, fit

from kernelweave.bank import DenseBank
from kernelweave.combine import WeightedSum
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
from kernelweave.regularizers.fixed import Fixed
from kernelweave.solvers import SILP

__all__ = ["PROBLEMS", "SOLVERS", "Outcome", "blurred", "outcome", "problem_of"]

ROUNDING = 4e-16
REGULARIZERS = [
    Simplex(),
    L1(0.7),
    LpBall(2.0),
    ElasticNet(1.0, 0.5),
    Entropy(0.5),
    BlockNorm(2, 2.0, 0.7),
    SquaredLp(2.0),
]
SOLVERS = {
    "active-set": "active-set",
    "silp": "silp",
    "silp, plain": SILP(stabilise=False),
    "silp-chunking": "silp-chunking",
    "spg": "spg",
    "spicy": "spicy",
    "mwu": "mwu",
    "uniform": "uniform",
    "align": "align",
}
TOL = 1e-6


class _Blurred(list):
    """Matrices that are multiplied by 1 + u whenever they are looked at."""

    def __init__(self, matrices, rng):
        super().__init__(matrices)
        self._rng = rng

    def _blur(self, K):
        u = np.tril(self._rng.uniform(-ROUNDING, ROUNDING, size=K.shape))
        return K * (1.0 + (u + np.tril(u, -1).T))

    def __getitem__(self, k):
        return self._blur(super().__getitem__(k))

    def __iter__(self):
        return (self._blur(K) for K in super().__iter__())


def blurred(problem, seed):
    """The same problem on kernels whose last digits change with every answer."""
    bank = DenseBank().from_matrices(list(problem.bank.block(np.arange(problem.n))))
    bank._matrices = _Blurred(bank._matrices, np.random.default_rng(seed))
    return replace(problem, bank=bank)


def _plain(loss, regularizer, seed=0, **sizes):
    """A problem without any trouble but few samples."""
    sizes = {"n": (24, 24), "m": (6, 6), **sizes}
    if loss != "one_class":
        return draw(seed, loss=loss, regularizer=regularizer, **sizes)
    problem = draw(seed, loss="hinge", regularizer=regularizer, **sizes)
    C = np.full(problem.C.shape, 1.0 / (0.4 * problem.n))
    return replace(problem, C=C, y=np.ones_like(problem.y), loss=get_loss(loss))


def _low_rank(loss, regularizer, n=24, m=6, seed=0, C=(0.5, 2.0)):
    """Singular kernels, of ranks 2, 3, ..., so that alpha is not unique."""
    rng = np.random.default_rng(seed)
    Ks = [A @ A.T / A.shape[1] for A in (rng.normal(size=(n, 2 + k)) for k in range(m))]
    rng = np.random.default_rng(seed)
    y = rng.normal(size=(1, n)) + Ks[0] @ rng.normal(size=n)
    loss = get_loss(loss)
    if loss.task == "classification":
        y = np.where(y > np.median(y), 1.0, -1.0)
    bank = DenseBank().from_matrices(Ks)
    return Problem(bank, y, rng.uniform(*C, size=y.shape), loss, regularizer, WeightedSum())


def _with_C(problem, C):
    return replace(problem, C=np.full(problem.C.shape, C))


def _opposite(loss, C):
    """Every sample twice, with opposite labels."""
    half = draw(3, loss=loss, regularizer=Simplex(), n=(8, 8))
    Ks = [np.tile(K, (2, 2)) for K in half.bank.block(np.arange(8))]
    y = np.repeat([[1.0, -1.0]], 8, axis=1)
    bank = DenseBank().from_matrices(Ks)
    return replace(half, bank=bank, y=y, C=np.full((1, 16), C))


def _problems():
    """All problems by name, each made when it is asked for."""
    made = {}
    for loss in [*LOSSES, "one_class"]:
        for regularizer in REGULARIZERS:
            if loss == "one_class" and not regularizer.bounded:
                continue
            made[f"{loss} {regularizer}"] = (_plain, loss, regularizer)
    for loss in ("hinge", "epsilon_insensitive", "squared_hinge", "logistic"):
        for regularizer in (Simplex(), ElasticNet(1.0, 0.5), LpBall(2.0)):
            few = {"m": (1, 1)}
            made[f"one kernel, {loss} {regularizer}"] = (
                lambda loss=loss, regularizer=regularizer, few=few: _plain(
                    loss, regularizer, **few
                ),
            )
    for loss in ("hinge", "epsilon_insensitive", "squared"):
        for regularizer in (L1(0.7), ElasticNet(1.0, 0.5), Entropy(0.5), SquaredLp(2.0)):
            for m in (1, 12):
                made[f"{m} of low rank, {loss} {regularizer}"] = (
                    _low_rank,
                    loss,
                    regularizer,
                    24,
                    m,
                )
    for loss in ("hinge", "logistic"):
        made[f"low rank, weights far from the first ones, {loss}"] = (
            _low_rank,
            loss,
            L1(1e-3),
            30,
            8,
            0,
            (0.1, 0.1),
        )
        made[f"low rank, large C, {loss}"] = (_low_rank, loss, Simplex(), 40, 12, 0, (50, 200))
    for loss in ("hinge", "squared", "logistic"):
        made[f"four samples, {loss}"] = (lambda loss=loss: _plain(loss, Simplex(), n=(4, 4)),)
        made[f"C of a million, {loss}"] = (lambda loss=loss: _with_C(_plain(loss, Simplex()), 1e6),)
        made[f"C of a millionth, {loss}"] = (
            lambda loss=loss: _with_C(_plain(loss, L1(0.7)), 1e-6),
        )
        made[f"singular kernels, {loss}"] = (
            lambda loss=loss: draw(5, ["kinds"], loss, Simplex(), n=(20, 20), m=(6, 6)),
        )
        made[f"twin kernels, {loss}"] = (
            lambda loss=loss: draw(6, ["twins", "rows"], loss, L1(0.3), n=(20, 20), m=(6, 6)),
        )
    for loss in ("hinge", "squared_hinge", "logistic"):
        made[f"one positive sample, {loss}"] = (
            lambda loss=loss: draw(7, ["lonely"], loss, Simplex(), n=(20, 20)),
        )
        made[f"opposite labels, {loss}"] = (lambda loss=loss: _opposite(loss, 1.0),)
    made["opposite labels, C of 1e8, hinge"] = (lambda: _opposite("hinge", 1e8),)
    made["only zero kernels, hinge"] = (
        lambda: replace(
            _plain("hinge", Simplex()), bank=DenseBank().from_matrices([np.zeros((24, 24))] * 3)
        ),
    )
    for seed in range(8):
        made[f"sizes far apart {seed}"] = (
            lambda seed=seed: draw(seed, ["sizes", "rows"], regularizer=Simplex()),
        )
        made[f"any C {seed}"] = (lambda seed=seed: draw(seed, ["C", "kinds"]),)
    made["weights far from the first ones, hinge L1"] = (
        lambda: _with_C(_plain("hinge", L1(1e-3), n=(30, 30), m=(8, 8)), 0.1),
    )
    made["many kernels, hinge"] = (lambda: _plain("hinge", Simplex(), n=(40, 40), m=(30, 30)),)
    return made


PROBLEMS = _problems()


def problem_of(name):
    """The problem of this name, on exact kernels."""
    make, *args = PROBLEMS[name]
    return make(*args)


@dataclass(frozen=True)
class Outcome:
    """How a fit ended: "converged", "refused" or a reason, and whether that is the truth."""

    reason: str
    gap: float
    resolvable: float
    true_gap: float

    @property
    def honest(self):
        """Whether the certificate is true and a solver gave up only where rounding made it."""
        if self.reason == "refused":
            return True
        truth = self.true_gap <= self.gap + 1e-9 * (1.0 + abs(self.gap))
        return truth and (self.reason != "stuck" or self.gap <= 100.0 * self.resolvable)


def outcome(problem, name, seed, max_iter=2000):
    """Fit one problem with last digits drawn from `seed`."""
    if name == "align" and problem.loss.task == "one_class":
        return Outcome("refused", 0.0, 0.0, 0.0)  # there are no targets to align with
    done = fit(blurred(problem, seed), SOLVERS[name], tol=TOL, max_iter=max_iter)
    if done is None:
        return Outcome("refused", 0.0, 0.0, 0.0)
    result, certificate = done.result, done.result.certificate
    if isinstance(done.problem.regularizer, Fixed):
        # Weights that were learnt beforehand, from kernels of other last digits.
        done = replace(done, problem=done.problem.with_regularizer(Fixed(result.d)))
    assert np.isfinite(result.d).all() and np.isfinite(result.alpha).all()
    assert result.converged == (certificate.gap <= TOL) and result.converged != done.warned
    true_gap = certificate.gap if problem.loss.task == "one_class" else done.truth.gap
    # What rounding may hide is known to the certificate, and no less than the sums themselves.
    resolvable = certificate.approximation + np.finfo(float).eps * problem.n
    return Outcome(result.reason, certificate.gap, resolvable, true_gap)
