"""SpicyMKL on problems that are no fun: it converges, and without a warning."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from own_losses import Huber, Poisson
from thinned import thinned

from kernelweave import MKLClassifier, MKLRegressor
from kernelweave.bank import DenseBank
from kernelweave.combine import WeightedSum
from kernelweave.kernels import RBF, RBFBatch, WeightedDegree
from kernelweave.losses import get_loss
from kernelweave.problem import Problem
from kernelweave.regularizers import L1, BlockNorm, ElasticNet, Simplex
from kernelweave.solvers import SILP, Limits, Spicy, solve

CLASSIFICATION = ["hinge", "squared_hinge", "logistic", "smooth_hinge"]
LOSSES = [*CLASSIFICATION, "squared", "epsilon_insensitive"]
REGULARIZERS = [Simplex(), L1(0.7)]
every_loss = pytest.mark.parametrize("name", LOSSES)
every_regularizer = pytest.mark.parametrize("regularizer", REGULARIZERS, ids=repr)
N = 24


def matrices(n=N, m=6, seed=0):
    rng = np.random.default_rng(seed)
    return [A @ A.T / A.shape[1] for A in (rng.normal(size=(n, 2 + k)) for k in range(m))]


def make(name, regularizer, C=1.0, n_tasks=1, seed=0, Ks=None):
    rng = np.random.default_rng(seed)
    Ks = matrices() if Ks is None else Ks
    n = len(Ks[0])
    loss = get_loss(name)
    y = rng.normal(size=(n_tasks, n)) + matrices(n)[0] @ rng.normal(size=n)
    if loss.task == "classification":
        y = np.where(y > np.median(y), 1.0, -1.0)
    C = C * rng.uniform(0.5, 2.0, size=y.shape)
    return Problem(DenseBank().from_matrices(Ks), y, C, loss, regularizer, WeightedSum())


def fit(problem, solver=None, tol=1e-6):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = solve(problem, solver or Spicy(), Limits(tol=tol))
    certificate = result.certificate
    assert result.converged
    assert certificate.dual <= certificate.primal + 1e-9 * max(1.0, abs(certificate.primal))
    assert np.all(np.isfinite(result.d)) and result.d.min() >= 0
    return result


def zero_kernel(Ks):
    return [*Ks[:-1], np.zeros_like(Ks[0])]


def duplicates(Ks):
    return [Ks[0], Ks[0], Ks[1], Ks[1], Ks[1], Ks[2]]


def only_zeros(Ks):
    return [np.zeros_like(Ks[0])] * 6


def constant_kernels(Ks):
    return [np.ones_like(Ks[0])] * 6


@pytest.mark.parametrize(
    ("name", "regularizer", "change"),
    thinned(LOSSES, REGULARIZERS, [zero_kernel, duplicates, only_zeros, constant_kernels]),
)
def test_odd_kernels(name, regularizer, change):
    result = fit(make(name, regularizer, Ks=change(matrices())))
    if change is duplicates:
        once = fit(make(name, regularizer, Ks=matrices()[:3]))
        assert result.certificate.primal == pytest.approx(
            once.certificate.primal, rel=2e-6, abs=2e-6
        )


@pytest.mark.parametrize(("name", "regularizer", "n"), thinned(LOSSES, REGULARIZERS, [2, 5]))
def test_few_samples(name, regularizer, n):
    problem = make(name, regularizer, Ks=matrices(n))
    y = problem.y.copy()
    y[0, :2] = 1.0, -1.0
    assert fit(replace(problem, y=y)).converged


@every_regularizer
@every_loss
def test_one_kernel(name, regularizer):
    for C in (1.0, 100.0):
        assert fit(make(name, regularizer, C, Ks=matrices(m=1))).converged


@pytest.mark.parametrize(("name", "regularizer", "C"), thinned(LOSSES, REGULARIZERS, [1e-6, 1e4]))
def test_extreme_loss_weights(name, regularizer, C):
    assert fit(make(name, regularizer, C)).converged


@pytest.mark.parametrize(
    ("name", "regularizer", "ends"),
    thinned(["hinge", "logistic", "squared"], REGULARIZERS, [(-6, 6), (0, 6)]),
    ids=str,
)
def test_kernels_of_very_different_sizes(name, regularizer, ends):
    Ks = [10.0**e * K for e, K in zip(np.linspace(*ends, 6), matrices(), strict=True)]
    problem = make(name, regularizer, Ks=Ks)
    value = fit(problem, tol=1e-5).certificate.primal
    assert value == pytest.approx(
        fit(problem, SILP(), tol=1e-5).certificate.primal, rel=2e-5, abs=2e-5
    )


@every_regularizer
@pytest.mark.parametrize("name", ["squared", "epsilon_insensitive"])
def test_targets_of_any_size(name, regularizer):
    problem = make(name, regularizer)
    for scale, shift in ((1e-6, 0.0), (1e6, 0.0), (1.0, 1e6)):
        fit(replace(problem, y=scale * problem.y + shift))
    for value in (0.0, 3.0, 1e6):
        constant = fit(replace(problem, y=np.full_like(problem.y, value)))
        assert constant.certificate.primal == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "regularizer", "C"), thinned(CLASSIFICATION, REGULARIZERS, [0.1, 100.0]), ids=str
)
def test_a_single_positive_and_separable_classes(name, regularizer, C):
    problem = make(name, regularizer, C)
    alone = -np.ones_like(problem.y)
    alone[0, 3] = 1.0
    assert fit(replace(problem, y=alone)).converged
    leading = np.linalg.eigh(matrices()[0])[1][:, -1]
    separable = np.sign(leading - np.median(leading))[None]
    assert fit(replace(problem, y=separable)).converged


@pytest.mark.parametrize(
    ("name", "regularizer", "C"),
    thinned(
        ["hinge", "smooth_hinge", "epsilon_insensitive"],
        [Simplex(), ElasticNet(), BlockNorm(2)],
        [1.0, 100.0],
    ),
    ids=str,
)
def test_several_tasks_in_corners_of_the_loss(name, regularizer, C):
    """Few kernels of low rank and no curvature of the loss: the matrix of a step is singular."""
    problem = make(name, regularizer, C, n_tasks=3)
    value = fit(problem, tol=1e-5).certificate.primal
    assert value == pytest.approx(
        fit(problem, SILP(), tol=1e-5).certificate.primal, rel=2e-5, abs=2e-5
    )


@pytest.mark.parametrize(("n", "C"), [(90, 10.0), (300, 1.0)])
def test_singular_kernels_of_sequences(n, C):
    """One letter at one position makes a kernel of rank four: second-order steps in d get stuck."""
    rng = np.random.default_rng(0)
    y = rng.random(n) < 0.5
    X = []
    for label in y:
        letters = rng.choice(list("ACGT"), 16)
        kept = rng.random(5) < 0.8
        if label:
            letters[5:10] = np.where(kept, list("ACGGT"), "A")
        X.append("".join(letters))
    family = WeightedDegree(1).by_position(1)
    model = MKLClassifier(family, C=C, solver="spicy", tol=1e-4).fit(X, y)
    assert model.converged_ and model.score(X, y) > 0.9


@pytest.mark.parametrize("regularizer", ["simplex", "l1"])
@pytest.mark.parametrize("loss", [Huber(), Poisson()], ids=lambda loss: type(loss).__name__)
def test_losses_of_three_methods(loss, regularizer):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = rng.poisson(np.exp(0.5 + 0.8 * X[:, 0])).astype(float)
    options = {"loss": loss, "regularizer": regularizer, "tol": 1e-5, "target_scale": None}
    model = MKLRegressor("simplemkl", solver="spicy", **options).fit(X, y)
    other = MKLRegressor("simplemkl", solver="silp", **options).fit(X, y)
    assert model.converged_ and model.objective_ == pytest.approx(other.objective_, rel=2e-5)


@pytest.mark.parametrize("bank", ["factored", "lazy"])
@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_single_precision_rows_and_factors(bank, loss):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4)).astype(np.float32)
    y = X[:, 0] * X[:, 1] > 0
    kernels = [RBF(width=w).on(k) for k in range(4) for w in (0.5, 2.0)] + [RBF(width=2.0)]
    model = MKLClassifier(kernels, loss=loss, bank=bank, solver="spicy", tol=1e-5).fit(X, y)
    other = MKLClassifier(kernels, loss=loss, bank="dense", solver="silp", tol=1e-5).fit(X, y)
    assert model.converged_ and model.objective_ == pytest.approx(other.objective_, rel=2e-5)


def test_a_batch_of_thousands_of_kernels():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 20))
    y = X[:, 0] + X[:, 1] * X[:, 2] > 0
    kernels = RBFBatch.random(4000, 20, sizes=(1, 4), widths=(0.7, 1, 3))
    model = MKLClassifier(kernels, loss="logistic", solver="spicy", tol=1e-4).fit(X, y)
    other = MKLClassifier(kernels, loss="logistic", solver="active-set", tol=1e-4).fit(X, y)
    assert model.converged_ and model.objective_ == pytest.approx(other.objective_, rel=2e-4)
