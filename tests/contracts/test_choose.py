"""What a solver's name means, and what "auto" chooses for each kind of problem."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernelweave.bank import DenseBank
from kernelweave.combine import PolynomialMixture, WeightedSum
from kernelweave.errors import UnknownNameError
from kernelweave.kernels import RBF
from kernelweave.losses import Hinge, Logistic, OneClass
from kernelweave.operators import ComputedOperator
from kernelweave.problem import Problem
from kernelweave.regularizers import (
    L1,
    BlockNorm,
    ElasticNet,
    Entropy,
    LogDet,
    LpBall,
    Regularizer,
    Simplex,
    SquaredLp,
)
from kernelweave.solvers import (
    SILP,
    SPG,
    ActiveSet,
    Limits,
    SILPChunking,
    Spicy,
    check_solver,
    get_solver,
    solve,
)


def problem(n=20, **changes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    kernels = ComputedOperator.build([RBF(width=1.0), RBF(width=3.0)], X)
    y = np.where(X[:, :1].T > 0, 1.0, -1.0)
    bank = DenseBank().build(kernels)
    base = Problem(bank, y, np.ones((1, n)), Hinge(), Simplex(), WeightedSum())
    return replace(base, **changes)


@pytest.mark.parametrize(
    ("regularizer", "solver"),
    [
        (Simplex(), ActiveSet),
        (L1(), ActiveSet),
        (LpBall(1.0), SILP),
        (LpBall(2.0), SPG),
        (SquaredLp(), SILP),
        (ElasticNet(), SILP),
        (BlockNorm(1), SILP),
        (Entropy(), SILP),
        (LogDet(), SPG),
    ],
    ids=repr,
)
def test_auto_goes_by_the_regularizer(regularizer, solver):
    chosen = get_solver("auto", problem(regularizer=regularizer))
    assert type(chosen) is solver
    result = solve(problem(regularizer=regularizer), chosen, Limits(tol=1e-4))
    assert result.converged


class OwnSimplex(Regularizer):
    """Weights that sum to one, as a user would write them, without a class of the library."""

    sparse = True
    bounded = True
    polyhedral = True

    def value(self, d):
        return 0.0 if abs(d.sum() - 1.0) <= 1e-9 and d.min() >= -1e-9 else np.inf

    def gradient(self, d):
        return np.zeros_like(d)

    def project(self, v):
        levels = np.sort(v)[::-1]
        shifts = (np.cumsum(levels) - 1.0) / np.arange(1, len(v) + 1)
        d = np.maximum(v - shifts[np.flatnonzero(levels > shifts)[-1]], 0.0)
        return d / d.sum()

    def omega(self, norms):
        return 0.5 * float(norms.sum()) ** 2

    def weights_from_norms(self, norms):
        return norms / norms.sum() if norms.any() else self.start(len(norms))

    def dual_penalty(self, q):
        return 0.5 * float(q.max())


class OwnPrice(Regularizer):
    """A price of two on each unit of weight."""

    sparse = True
    orthant = True
    polyhedral = True

    def value(self, d):
        return 2.0 * float(d.sum()) if d.min() >= -1e-9 else np.inf

    def gradient(self, d):
        return np.full(len(d), 2.0)

    def omega(self, norms):
        return 2.0 * float(norms.sum())

    def weights_from_norms(self, norms):
        return 0.5 * norms

    def dual_penalty(self, q):
        return 0.0 if q.max() <= 4.0 * (1.0 + 1e-9) else np.inf

    def dual_scale(self, q):
        return min(1.0, 2.0 / float(np.sqrt(q.max()))) if q.max() > 0 else 1.0


@pytest.mark.parametrize(
    ("own", "twin"), [(OwnSimplex(), Simplex()), (OwnPrice(), L1(2.0))], ids=repr
)
@pytest.mark.parametrize("loss", [Hinge(), Logistic()], ids=repr)
@pytest.mark.parametrize("solver", ["auto", "active-set", "silp", "spg"])
def test_capabilities_not_classes_open_the_solvers(own, twin, loss, solver):
    mine = problem(regularizer=own, loss=loss)
    chosen = get_solver(solver, mine)
    if solver == "auto":
        assert type(chosen) is ActiveSet
    result = solve(mine, chosen, Limits(tol=1e-6))
    theirs = problem(regularizer=twin, loss=loss)
    expected = solve(theirs, get_solver("auto", theirs), Limits(tol=1e-6))
    assert result.converged
    assert result.certificate.primal == pytest.approx(expected.certificate.primal, rel=1e-5)


@pytest.mark.parametrize("regularizer", [ElasticNet(), BlockNorm(1)], ids=repr)
def test_auto_takes_spicy_for_losses_without_corners(regularizer):
    smooth = problem(regularizer=regularizer, loss=Logistic())
    assert type(get_solver("auto", smooth)) is Spicy
    many = problem(n=1501, regularizer=regularizer, loss=Logistic())
    assert type(get_solver("auto", many)) is SILP


@pytest.mark.parametrize("regularizer", [Simplex(), L1()], ids=repr)
def test_auto_takes_spicy_for_more_than_a_thousand_kernels(regularizer):
    few = problem(regularizer=regularizer, loss=Logistic())
    assert type(get_solver("auto", few)) is ActiveSet
    bank = DenseBank().from_matrices([np.eye(20)] * 1001)
    assert type(get_solver("auto", replace(few, bank=bank))) is Spicy
    assert type(get_solver("auto", replace(few, bank=bank, loss=Hinge()))) is ActiveSet


def test_auto_leaves_one_class_problems_to_spg():
    assert type(get_solver("auto", problem(loss=OneClass()))) is SPG


def test_auto_leaves_other_combinations_to_spg():
    assert type(get_solver("auto", problem(combination=PolynomialMixture((1.0, 0.5))))) is SPG


def test_names_and_objects():
    assert get_solver("silp", problem()) == SILP()
    assert get_solver("silp-chunking", problem()) == SILPChunking()
    own = SILP(stabilise=False)
    assert get_solver(own, problem()) is own


def test_unknown_names_are_told_with_what_there_is():
    with pytest.raises(UnknownNameError, match="silp-chunking"):
        check_solver("slip")
    with pytest.raises(UnknownNameError, match="auto"):
        get_solver("slip", problem())
