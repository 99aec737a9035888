"""Spectral projected gradients where they used to creep."""

from __future__ import annotations

import numpy as np
import pytest
from hard_problems import check_fit, draw, fit
from sklearn.datasets import load_iris

from kernelweave.bank import DenseBank
from kernelweave.combine import Product, WeightedSum
from kernelweave.losses import Hinge
from kernelweave.operators import ComputedOperator, DistanceOperator
from kernelweave.problem import Problem
from kernelweave.regularizers import L1, BlockNorm, SquaredLp
from kernelweave.solvers import SPG, Limits
from kernelweave.solvers.loop import run


@pytest.mark.parametrize(
    ("seed", "loss", "regularizer"),
    [(67, "logistic", L1(0.03)), (109, "squared_hinge", BlockNorm(2, 1.5, 0.01))],
    ids=str,
)
def test_large_weights_of_a_small_price(seed, loss, regularizer):
    """Weights far above one need steps far above ten: 1,000 iterations were not enough."""
    problem = draw(seed, loss=loss, regularizer=regularizer, n=(8, 25), m=(1, 8))
    done = fit(problem, "spg", 1e-4, max_iter=200)
    check_fit(done, 1e-4)
    assert done.result.converged and done.result.d.max() > 10.0


def iris_sum(regularizer):
    """Two of the three irises, the SimpleMKL family, C = 10."""
    X, y = load_iris(return_X_y=True)
    bank = DenseBank().build(ComputedOperator.build("simplemkl", X[50:] - X[50:].mean(axis=0)))
    y = np.where(y[50:] == 1, 1.0, -1.0)
    return Problem(bank, y[None], np.full((1, len(y)), 10.0), Hinge(), regularizer, WeightedSum())


def wide_product(regularizer, features=300):
    """Two of many features tell the classes of 60 samples; a product over all, C = 10."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, features))
    y = np.where(X[:, 0] + X[:, 1] + 0.3 * rng.normal(size=60) > 0, 1.0, -1.0)
    bank = DistanceOperator.build("features", X).keep()
    return Problem(bank, y[None], np.full((1, len(y)), 10.0), Hinge(), regularizer, Product())


def plain_run(problem, solver, max_iter):
    """A fit from equal weights, none of them learnt on some of the samples first."""
    limits = Limits(tol=1e-3, max_iter=max_iter)
    return run(problem, solver, limits)


@pytest.mark.parametrize("p", [1.1, 1.33])
def test_slopes_that_rise_steeply_from_zero(p):
    """Gradients of |d|_p^2 bend without bound at d = 0; 400 projected gradients left gap 0.1."""
    done = plain_run(iris_sum(SquaredLp(p)), SPG(), 45)
    assert done.converged


def test_slopes_that_rise_steeply_from_zero_in_a_product():
    """Steps that differ from weight to weight: gap 1e-2 after 400 of them."""
    done = plain_run(wide_product(SquaredLp(1.1)), SPG(), 250)
    assert done.converged


def test_sparse_sums_by_steps_that_grow_with_the_weight():
    """Steps of equal length need 84 iterations."""
    done = plain_run(iris_sum(L1()), SPG(), 70)
    assert done.converged


@pytest.mark.parametrize("regularizer", [L1(), SquaredLp(2.0)], ids=str)
def test_plain_steps_in_turn_where_steps_by_the_size_of_weights_creep(regularizer):
    """Hundreds of small weights that have to go: 800 scaled steps alone leave 2e-2 and 3e-3."""
    done = plain_run(wide_product(regularizer, 600), SPG(), 800)
    assert done.converged
