"""What a fit states about itself is true: recomputed in extended precision, kernels by hand.

21 problems of all losses and regularizers as a rule, each fitted by every solver that takes it, and
some with weights of samples over many decades; about 6,000 fits with ``KERNELWEAVE_HARD=full``.
"""

from __future__ import annotations

from copy import copy

import numpy as np
import pytest
from checked_fits import (
    alpha_of,
    check_model,
    compare,
    draw_case,
    fits_of,
    intercept_of,
    matrix_of,
)
from hard_problems import FULL
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler
from true_certificate import dual_objective, relative_gap, truth

from kernelweave import MKLClassifier, MKLOneClass
from kernelweave.kernels import RBF, Linear
from kernelweave.losses import get_loss
from kernelweave.regularizers import Simplex


# The last two made solvers fail with errors of their own.
@pytest.mark.parametrize("seed", [*range(660 if FULL else 21), 100_147, 100_214])
def test_what_a_fit_states_is_true(seed):
    done = fits_of(draw_case(seed), seed)
    assert len(done) >= 2
    assert [str(violation) for one in done for violation in one.violations] == []


# The first two ended in errors of Python's, the last in "too large for float64".
FAR_APART = [(9, 20), (11, 60), (1, 120)]


@pytest.mark.parametrize(
    ("seed", "decades"),
    [*FAR_APART, *((seed, 8 + seed % 50) for seed in range(300 if FULL else 0))],
)
def test_it_is_true_of_weights_over_many_decades(seed, decades):
    done = fits_of(draw_case(seed, decades), seed)
    assert len(done) >= 2
    assert [str(violation) for one in done for violation in one.violations] == []


@pytest.mark.parametrize("n_columns", [1, 6])
def test_small_differences_beside_huge_numbers_count_in_every_bank(n_columns):
    """A shift of the columns, or squares instead of differences, would lose them."""
    X = 1e-4 * np.random.default_rng(0).normal(size=(60, n_columns))
    X[::7, 0] = 1e20
    y = X[:, -1] > 0
    widths = [RBF(gamma=1e8), RBF(gamma=1e7)]
    squares = ((X[:, None] - X[None]) ** 2).sum(axis=-1)
    np.testing.assert_allclose(widths[0](X), np.exp(-1e8 * squares), atol=1e-12)
    banks = ("dense", "lazy", "factored")
    models = [MKLClassifier(widths, normalize=None, bank=bank).fit(X, y) for bank in banks]
    assert [model.converged_ for model in models] == 3 * [True]
    objectives = [model.objective_ for model in models]
    np.testing.assert_allclose(objectives, objectives[0], rtol=2e-3)


LIES = {
    "objective": lambda model: {"objective_": 0.99 * model.objective_},
    "definition": lambda model: {"gap_": 2 * model.gap_ + 1e-9},
    "converged": lambda model: {"converged_": not model.converged_},
    "dual": lambda model: {"dual_objective_": 1.01 * model.objective_},
    "weights": lambda model: {"weights_": 1.01 * model.weights_},
    "gap": lambda model: {"dual_coef_": 0.9 * model.dual_coef_, "converged_": True},
    "decision": lambda model: {"dual_coef_": 0.9 * model.dual_coef_},
}


@pytest.fixture(scope="module")
def honest():
    """A problem and a fit of it."""
    case = draw_case(0)
    return case, next(one for one in fits_of(case) if one.solver == "silp")


@pytest.mark.parametrize("kind", LIES)
def test_a_false_statement_is_found(kind, honest):
    case, fit = honest
    model = copy(fit.model)
    for name, value in LIES[kind](model).items():
        setattr(model, name, value)
    found = check_model(case, fit.solver, model)
    compare(case, [found])
    assert kind in [violation.kind for violation in found.violations]


def simplemkl_by_hand(X, rows, chosen):
    """Some matrices of the family on some rows, scaled to mean diagonal 1 over all of them."""
    columns = [slice(None), *(slice(j, j + 1) for j in range(X.shape[1]))]
    formulas = [("rbf", 2.0**j) for j in range(-3, 7)] + [("polynomial", j) for j in (1, 2, 3)]
    for k in chosen:
        kind, number = formulas[k % 13]
        part = X[:, columns[k // 13]]
        scale = 1.0
        if kind == "polynomial":
            part = part.astype(np.longdouble)
            scale = np.mean((np.sum(part**2, axis=1) + 1) ** number)
        yield matrix_of(kind, number, part[rows], None) / scale


@pytest.mark.parametrize("C", [1e3, 1e6, 1e7])
def test_factors_instead_of_kernels_do_not_flatter_the_objective(C):
    """The function predicts with exact kernels, whatever the fit kept instead of them."""
    X, y = load_breast_cancer(return_X_y=True)
    X, y = StandardScaler().fit_transform(X), np.where(y == 1, 1.0, -1.0)
    model = MKLClassifier("simplemkl", C=C).fit(X, y)
    d, used, every = model.weights_, np.flatnonzero(model.weights_), np.arange(len(y))
    Ks = list(simplemkl_by_hand(X, every, used))
    weights, alpha = np.full((1, len(y)), C), alpha_of(model, len(y))
    hinge, b = get_loss("hinge"), model.intercept_
    true = truth(Ks, y[None], weights, hinge, Simplex(), d[used], alpha, b)
    assert true.primal <= model.objective_ * (1 + 1e-9)
    support = model.support_
    Ks = simplemkl_by_hand(X, support, range(len(d)))
    few = [y[None, support], weights[:, support], hinge, Simplex(), alpha[:, support]]
    dual = max(dual_objective(Ks, *few), model.dual_objective_)
    assert not model.converged_ or relative_gap(true.primal, dual, true.floor) <= model.tol


@pytest.mark.parametrize("seed", range(5))
def test_samples_around_the_origin_of_a_one_class_model(seed):
    """The optimum is far smaller than the terms of the objective."""
    X = np.random.default_rng(seed).normal(size=(100, 4)) + 0.05
    model = MKLOneClass([Linear(), Linear().on([0, 1])], nu=0.9).fit(X)
    Ks = [matrix_of("linear", None, X[:, :columns], "trace") for columns in (4, 2)]
    y, C, loss = np.ones((1, 100)), np.full((1, 100), 1 / 90), get_loss("one_class")
    b, alpha = intercept_of(model), alpha_of(model, 100)
    converged, tol = model.converged_, model.tol
    true = truth(Ks, y, C, loss, Simplex(), model.weights_, alpha, b)
    unit = max(abs(true.primal), abs(true.dual))
    assert true.primal <= model.objective_ + 1e-9 * unit
    expected = relative_gap(model.objective_, model.dual_objective_, model.objective_floor_)
    assert model.gap_ == pytest.approx(expected, rel=1e-6, abs=1e-12)
    # Cutting planes may know a better bound than that of the alpha they return.
    exact = model.set_params(tol=1e-9).fit(X)
    dual = max(true.dual, dual_objective(Ks, y, C, loss, Simplex(), alpha_of(exact, 100)))
    gap = relative_gap(true.primal, dual, true.floor)
    assert not converged or gap <= tol * (1 + 1e-6)
