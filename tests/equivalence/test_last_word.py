"""The certificate is about the function that predicts, by the kernels themselves."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from kernelweave import MKLClassifier, MKLOneClass
from kernelweave.bank import BatchBank, DenseBank, FactoredBank, LazyBank
from kernelweave.combine import WeightedSum
from kernelweave.kernels import RBF, Linear, Polynomial, RBFBatch
from kernelweave.losses import Hinge
from kernelweave.operators import ComputedOperator
from kernelweave.operators.stacked import StackedOperator
from kernelweave.problem import Problem
from kernelweave.regularizers import L1, Simplex
from kernelweave.solvers import SPG, Limits, solve

N = 150


def samples():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 4))
    return X, np.where(X[:, 0] + X[:, 1] ** 2 + 0.4 * rng.normal(size=N) > 0.7, 1.0, -1.0)


KERNELS = [RBF(width=0.7), RBF(width=2.0), Polynomial(3), RBF(width=1.0).on([0]), Linear()]


def stacked(kernels):
    parts = [[2, 0], [1, 4], [3]]
    plans = [LazyBank(), DenseBank("float32"), FactoredBank(1e-4)]
    banks = [plan.build(kernels.select(own)) for plan, own in zip(plans, parts, strict=True)]
    return StackedOperator(banks, parts)


@pytest.mark.parametrize(
    "build",
    [DenseBank("float32").build, LazyBank().build, FactoredBank(1e-3).build, stacked],
    ids=["dense", "lazy", "factored", "stacked"],
)
def test_an_exact_twin_has_the_values_of_the_kernels(build):
    kernels = ComputedOperator.build(KERNELS, samples()[0])
    Ks = kernels.block(np.arange(N))
    rng = np.random.default_rng(1)
    v = rng.normal(size=(2, N)) * (rng.random(N) < 0.4)
    d = np.array([0.5, 0.0, 0.0, 1.5, 0.2])
    bank = build(kernels)
    quad, product = bank.exact().quad_and_product(v, d)
    true_quad = np.einsum("ti,kij,tj->k", v, Ks, v)
    true_product = np.einsum("k,kij,tj->ti", d, Ks, v)
    np.testing.assert_allclose(quad, true_quad, rtol=1e-12)
    np.testing.assert_allclose(product, true_product, rtol=0, atol=1e-12 * abs(true_product).max())
    # And what the bank itself is off by is within the bound that it states.
    off = bank.error(v, d)
    own_quad, own_product = bank.quad_and_product(v, d)
    room = 1e-12 * true_quad.max()
    assert np.all(true_quad <= own_quad + off.quad_missing + room)
    assert np.all(abs(true_product - own_product) <= off.product + room)
    assert bank.exact().exact().error(v, d).quad_missing.max() == 0.0


def test_an_exact_twin_of_very_many_gaussians():
    X, _ = samples()
    kernels = RBFBatch(np.array([[0], [1], [2]]), gamma=[0.1, 1.0, 9.0])
    model = MKLClassifier(kernels, bank=BatchBank("float32"), C=1e4).fit(X, samples()[1])
    assert model.converged_ and model.gap_ <= 1e-3


@pytest.mark.parametrize("bank", ["dense", "lazy", "factored", "auto"])
@pytest.mark.parametrize("C", [1.0, 1e5])
def test_the_objective_is_that_of_the_decision_function(bank, C):
    X, y = samples()
    model = MKLClassifier(KERNELS, C=C, bank=bank, max_iter=200).fit(X, y)
    z = model.decision_function(X)
    loss = C * np.maximum(0.0, 1.0 - y * z).sum()
    Ks = ComputedOperator.build(KERNELS, X).block(np.arange(N))
    alpha = np.zeros(N)
    alpha[model.support_] = model.dual_coef_[0]
    quad = np.einsum("i,kij,j->k", alpha, Ks, alpha)
    objective = loss + 0.5 * np.sum(model.weights_ * np.sqrt(np.maximum(quad, 0.0))) ** 2
    assert model.converged_
    assert objective <= model.objective_ * (1.0 + 1e-9)
    assert (objective - model.dual_objective_) / objective <= model.tol


@pytest.mark.parametrize("C", [1e4, 1e6])
def test_spicy_does_not_stay_on_rows_in_single_precision(C):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 5))
    y = np.sign(X[:, 0] + X[:, 1] ** 2 - 0.5)
    kernels = [Linear(), Polynomial(3), RBF(width=3.0)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = MKLClassifier(kernels, C=C, solver="spicy", bank="lazy").fit(X, y)
    assert model.converged_


def test_where_the_gradient_is_not_unique_cutting_planes_take_over():
    """Just below the C at which the first kernel enters: alpha has room, and d none."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(30, 3))
    Ks = [np.exp(-(np.subtract.outer(x, x) ** 2)) for x in X.T]
    y = np.where(np.arange(30) < 3, 1.0, -1.0)[None]
    C = np.random.default_rng(2).uniform(0.5, 2.0, size=(1, 30))
    problem = Problem(DenseBank().from_matrices(Ks), y, C, Hinge(), L1(0.7), WeightedSum())
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        for factor in (0.3, 0.4, 0.5):
            result = solve(replace(problem, C=factor * C), SPG(), Limits(tol=1e-7, max_iter=5000))
            assert result.converged


def test_rounding_is_blamed_only_where_it_can_be():
    X, y = samples()
    Ks = ComputedOperator.build(KERNELS, X).block(np.arange(N))
    problem = Problem(
        DenseBank().from_matrices(list(Ks)),
        y[None],
        np.ones((1, N)),
        Hinge(),
        Simplex(),
        WeightedSum(),
    )
    with pytest.warns(ConvergenceWarning, match="rounding stops") as caught:
        result = solve(problem, SPG(), Limits(tol=1e-17, max_iter=5000))
    assert len(caught) == 1
    assert result.certificate.gap <= 100 * result.certificate.rounding < 1e-8


def test_samples_on_the_boundary_of_a_one_class_model_are_inside():
    X, _ = samples()
    for bank in ("dense", "lazy", "factored"):
        model = MKLOneClass([RBF(width=1.0), RBF(width=4.0)], nu=0.3, bank=bank, tol=1e-6).fit(X)
        outside = np.mean(model.predict(X) < 0)
        assert outside <= 0.3 + 1e-9
        relative = (model.objective_ - model.dual_objective_) / abs(model.dual_objective_)
        assert model.gap_ == pytest.approx(relative, rel=1e-9)
