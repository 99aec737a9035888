"""The protocol of the SpicyMKL paper (section 5.1) in small: what it says of its Figure 1 holds."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from kernelweave import MKLClassifier, sample_ids
from kernelweave.kernels import from_matrices
from kernelweave.operators import bind_kernels
from kernelweave.regularizers import L1, block_l1_to_l1_weight

X, y = load_breast_cancer(return_X_y=True)
# Columns on which the classes overlap. Where few kernels separate them nothing has to be given up
# as c grows, and the number of kernels goes up and down.
X_train, X_test, y_train, y_test = train_test_split(
    X[:200, [4, 5, 8, 9]], y[:200], train_size=0.8, random_state=0
)
N = len(X_train)
# The paper's three values.
CS = (0.005, 0.05, 0.5)


def unit_trace_l1(c: float) -> L1:
    """Block l1 with `c` for kernels of unit trace, on the library's kernels of trace n.

    K = n K' makes the norms in the space of K' sqrt(n) times those in the space of K.
    """
    return L1(block_l1_to_l1_weight(c * np.sqrt(N)))


@cache
def fit(solver: str, loss: str, c: float) -> MKLClassifier:
    """27 (d + 1) kernels, unweighted loss."""
    model = MKLClassifier(
        "spicymkl", loss=loss, C=1.0, regularizer=unit_trace_l1(c), solver=solver, tol=1e-6
    ).fit(X_train, y_train)
    assert model.converged_
    return model


def selected(model: MKLClassifier) -> set[int]:
    return set(np.flatnonzero(model.weights_ > 1e-4 * model.weights_.max()))


@pytest.mark.parametrize("c", CS)
def test_hinge_and_logistic_are_nearly_as_accurate(c):
    hinge, logistic = (
        fit("spicy", loss, c).score(X_test, y_test) for loss in ("hinge", "logistic")
    )
    assert min(hinge, logistic) > 0.8
    assert abs(hinge - logistic) <= 0.05


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_fewer_kernels_as_c_grows(loss):
    counts = [len(selected(fit("spicy", loss, c))) for c in (0.05, 0.5, 2.0)]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] < counts[0]


def test_logistic_is_sparser_than_hinge_under_a_large_c():
    assert len(selected(fit("spicy", "logistic", 0.5))) < len(selected(fit("spicy", "hinge", 0.5)))


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
@pytest.mark.parametrize("c", CS[1:])
def test_spicy_and_silp_select_the_same_kernels(loss, c):
    spicy, silp = fit("spicy", loss, c), fit("silp", loss, c)
    assert selected(spicy) == selected(silp)
    np.testing.assert_allclose(
        spicy.decision_function(X_test), silp.decision_function(X_test), atol=1e-2
    )


def test_unit_trace_conversion_against_matrices_of_unit_trace():
    """The same function from the library's scaling with c sqrt(n) and from K / trace(K) with c."""
    c = 0.05
    grams = bind_kernels("spicymkl", X_train, normalize=None).block(np.arange(N))
    grams /= np.trace(grams, axis1=1, axis2=2)[:, None, None]
    direct = MKLClassifier(
        from_matrices(list(grams)),
        loss="logistic",
        regularizer=L1(block_l1_to_l1_weight(c)),
        normalize=None,
        solver="silp",
        tol=1e-6,
    ).fit(sample_ids(N), y_train)
    ours = fit("spicy", "logistic", c)
    np.testing.assert_allclose(
        ours.decision_function(X_train), direct.decision_function(sample_ids(N)), atol=1e-2
    )
    np.testing.assert_allclose(ours.objective_, direct.objective_, rtol=1e-6)
