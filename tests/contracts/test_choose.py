"""What a solver's name means, and what "auto" chooses for each kind of problem."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernelweave.bank import DenseBank
from kernelweave.combine import PolynomialMixture, WeightedSum
from kernelweave.errors import UnknownNameError
from kernelweave.kernels import RBF, KernelSet
from kernelweave.losses import Hinge, Logistic, OneClass
from kernelweave.problem import Problem
from kernelweave.regularizers import (
    L1,
    BlockNorm,
    ElasticNet,
    Entropy,
    LogDet,
    LpBall,
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
    kernels = KernelSet.build([RBF(width=1.0), RBF(width=3.0)], X)
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
