"""What the box QP solver refuses, where it starts, and how it guards its float32 copies."""

from __future__ import annotations

import numpy as np
import pytest
from dense_gram import DenseGram

from kernelweave.errors import InvalidInputError
from kernelweave.losses import get_loss
from kernelweave.losses.base import BoxQP
from kernelweave.solvers.box_qp import solve_box_qp


def test_all_upper_bounds_zero():
    y = np.array([1.0, -1.0, 1.0, -1.0])
    result = solve_box_qp(get_loss("hinge").box_qp(y, np.zeros(4)), DenseGram(np.eye(4)), tol=1e-6)
    assert not result.a.any() and result.converged and result.intercept == 0.0


def test_a_large_constant_that_float32_would_not_see_past():
    A, rng = np.random.default_rng(0).normal(size=(60, 80)), np.random.default_rng(1)
    K, y = 1e9 + A @ A.T, np.where(rng.random(60) < 0.5, 1.0, -1.0)
    qp = get_loss("hinge").box_qp(y, np.full(60, 1.0))
    result = solve_box_qp(qp, DenseGram(K), tol=1e-3, most=20)
    assert result.converged
    slope = y - K @ result.alpha
    up = np.where(y > 0, result.a < 1, result.a > 0)
    low = np.where(y > 0, result.a > 0, result.a < 1)
    assert slope[up].max() - slope[low].min() <= 1.1e-3


def test_problems_without_a_feasible_point_are_refused():
    qp = get_loss("one_class").box_qp(np.ones(4), np.full(4, 0.2))
    with pytest.raises(InvalidInputError, match=r"the sum 1: .* from 0 to 0\.8"):
        solve_box_qp(qp, DenseGram(np.eye(4)), tol=1e-3)


def good_qp(**changes):
    fields = {
        "sign": np.array([1.0, -1.0]),
        "linear": -np.ones(2),
        "upper": np.ones(2),
        "sample": np.array([0, 1]),
        "total": 0.0,
    }
    return BoxQP(**{**fields, **changes})


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"sample": np.array([0, 2])}, r"0\.\.1"),
        ({"sample": np.array([0, 0])}, "sum >= 0"),
        ({"sample": np.array([0, 0]), "sign": np.ones(2)}, "one variable of each sign"),
        ({"upper": np.array([1.0, np.inf])}, "finite"),
        ({"upper": np.array([1.0, -1.0])}, ">= 0"),
    ],
)
def test_malformed_problems_are_refused(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        solve_box_qp(good_qp(**changes), DenseGram(np.eye(2)), tol=1e-3)
