"""Every registered regularizer keeps the promises of `Regularizer`."""

from __future__ import annotations

import copy
import pickle

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize
from sklearn.base import clone

from kernelweave.errors import InvalidInputError, UnknownNameError
from kernelweave.regularizers import (
    L1,
    LpBall,
    Regularizer,
    Simplex,
    SquaredLp,
    get_regularizer,
    regularizer_names,
)
from kernelweave.regularizers.norms import norm

REGULARIZERS = [r for name in regularizer_names() for r in Regularizer.registry[name].examples()]
every_regularizer = pytest.mark.parametrize("reg", REGULARIZERS, ids=repr)


def allowed_points(reg: Regularizer, m: int, count: int, seed: int = 0) -> np.ndarray:
    """Allowed weights: projections of random points near to and far from the origin."""
    rng = np.random.default_rng(seed)
    raw = rng.normal(size=(count, m)) * rng.choice([0.1, 1.0, 10.0], (count, 1))
    return np.array([reg.project(v) for v in raw])


def numeric_minimum(reg: Regularizer, cost: np.ndarray, power: float) -> float:
    """Least of ``1/2 sum cost_k d_k^power + r(d)``, searched over d = exp(u).

    A search that uses only `value`. For indicators d is scaled to the edge of the set, which is
    where the least is if the cost falls in d.
    """
    indicator = isinstance(reg, Simplex | LpBall)
    p = getattr(reg, "p", 1.0)

    def objective(u: np.ndarray) -> float:
        d = np.exp(u)
        d = d / norm(d, p) if indicator else d
        return 0.5 * float(np.sum(cost * d**power)) + reg.value(d)

    options = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10}
    return float(minimize(objective, np.zeros(cost.size), method="L-BFGS-B", options=options).fun)


def test_all_rows_of_the_table_are_registered() -> None:
    assert {"simplex", "lp_ball", "l1", "squared_lp"} <= set(regularizer_names())


@every_regularizer
@pytest.mark.parametrize("m", [1, 2, 7, 500])
def test_projection_is_allowed_idempotent_and_nearest(reg: Regularizer, m: int) -> None:
    rng = np.random.default_rng(m)
    others = allowed_points(reg, m, 50)
    for scale in (1e-3, 1.0, 1e4):
        v = rng.normal(size=m) * scale
        d = reg.project(v)
        assert np.isfinite(reg.value(d))
        assert np.all(d >= 0)
        np.testing.assert_allclose(reg.project(d), d, atol=1e-13)
        # Variational inequality: no allowed direction makes an acute angle with v - d.
        angle = (others - d) @ (v - d)
        assert np.all(angle <= 1e-12 * max(1.0, np.linalg.norm(v)) * (1 + np.abs(others).sum()))


@every_regularizer
@pytest.mark.parametrize("v", [[0.0, 0.0, 0.0], [-1.0, -2.0, -3.0], [2.0, 2.0, 2.0], [5.0], [0.0]])
def test_projection_of_zeros_negatives_and_ties(reg: Regularizer, v: list[float]) -> None:
    d = reg.project(np.array(v))
    assert np.isfinite(reg.value(d))
    if len(set(v)) == 1:
        np.testing.assert_allclose(d, d[0], rtol=1e-14)


@pytest.mark.parametrize("reg", [Simplex(), LpBall(1.0), LpBall(1.5), LpBall(3.0)], ids=repr)
def test_projection_agrees_with_a_conic_solver(reg: Regularizer) -> None:
    v = np.random.default_rng(3).normal(size=6) * 2
    d = cp.Variable(6, nonneg=True)
    p = getattr(reg, "p", 1.0)
    within = [cp.sum(d) == 1] if isinstance(reg, Simplex) else [cp.pnorm(d, p) <= 1]
    cp.Problem(cp.Minimize(cp.sum_squares(d - v)), within).solve(solver="CLARABEL")
    np.testing.assert_allclose(reg.project(v), d.value, atol=1e-5)


@pytest.mark.parametrize("p", [1.0001, 1.01, 1.2, 1.9, 2.001, 3.0, 20.0])
@settings(max_examples=40, deadline=None)
@given(v=arrays(np.float64, st.integers(1, 12), elements=st.floats(-1e8, 1e8)))
def test_ball_projection_meets_its_optimality_conditions(p: float, v: np.ndarray) -> None:
    d = LpBall(p).project(v)
    rest = v - d
    # max over the set of <rest, u> is the dual norm of the positive part; d must attain it.
    support = norm(np.maximum(rest, 0.0), p / (p - 1))
    assert norm(d, p) <= 1 + 1e-12
    assert support - rest @ d <= 1e-12 * max(1.0, np.abs(v).sum())


def test_projection_of_a_million_entries() -> None:
    v = np.random.default_rng(0).normal(size=1_000_000)
    for reg in (Simplex(), LpBall(1.5), LpBall(3.0)):
        d = reg.project(v)
        p = getattr(reg, "p", 1.0)
        assert abs(norm(d, p) - 1) <= 1e-12
        rest = v - d
        if p > 1:
            support = norm(np.maximum(rest, 0.0), p / (p - 1))
            assert support - rest @ d <= 1e-9 * support


@every_regularizer
def test_gradient_is_the_derivative_of_the_value(reg: Regularizer) -> None:
    d = allowed_points(reg, 5, 1)[0] + 0.05
    if np.isinf(reg.value(d)):
        d = reg.project(d)
    gradient = reg.gradient(d)
    if isinstance(reg, Simplex | LpBall):
        assert np.all(gradient == 0)
        return
    for k, unit in enumerate(1e-6 * np.eye(5)):
        numeric = (reg.value(d + unit) - reg.value(d - unit)) / 2e-6
        assert gradient[k] == pytest.approx(numeric, rel=1e-5, abs=1e-8)


@every_regularizer
def test_value_is_infinite_outside_the_set(reg: Regularizer) -> None:
    assert reg.value(np.array([1.2, -0.2])) == np.inf
    if isinstance(reg, Simplex | LpBall):
        assert reg.value(np.array([1.5, 0.5])) == np.inf
    assert np.all(np.isfinite(reg.gradient(np.zeros(3))))


@every_regularizer
def test_omega_is_the_minimum_over_weights(reg: Regularizer) -> None:
    norms = np.array([0.3, 1.7, 0.9, 0.05])
    numeric = numeric_minimum(reg, norms**2, -1.0)
    assert reg.omega(norms) == pytest.approx(numeric, rel=1e-7)
    assert reg.omega(norms) <= numeric * (1 + 1e-9)


@every_regularizer
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_weights_from_norms_attain_omega(reg: Regularizer, scale: float) -> None:
    norms = scale * np.array([0.3, 1.7, 0.0, 0.9])
    d = reg.weights_from_norms(norms)
    used = norms > 0
    attained = 0.5 * float(np.sum(norms[used] ** 2 / d[used])) + reg.value(d)
    assert reg.omega(norms) == pytest.approx(attained, rel=1e-12)
    assert d[2] == 0
    assert np.isfinite(reg.value(reg.weights_from_norms(np.zeros(3))))
    assert reg.omega(np.zeros(3)) == 0


@every_regularizer
def test_dual_penalty_is_the_supremum(reg: Regularizer) -> None:
    q = np.array([0.4, 2.0, 1.1, 0.0])
    q = q * reg.dual_scale(q) ** 2
    penalty = reg.dual_penalty(q)
    points = allowed_points(reg, 4, 400)
    # Fenchel-Young for every allowed d ...
    values = np.array([d @ q / 2 - reg.value(d) for d in points])
    assert np.all(values <= penalty + 1e-9 * np.maximum(1.0, np.abs(points).sum(axis=1)))
    # ... and the supremum is reached.
    assert -numeric_minimum(reg, -q, 1.0) == pytest.approx(penalty, rel=1e-5, abs=1e-6)


@every_regularizer
def test_omega_and_the_dual_penalty_are_a_primal_dual_pair(reg: Regularizer) -> None:
    """With |f_k| = d_k sqrt(q_k) at the best d: Omega(|f|) + r*(q/2) = sum |f_k| sqrt(q_k)."""
    q = np.array([0.4, 2.0, 1.1])
    q = q * reg.dual_scale(q) ** 2
    norms = np.random.default_rng(0).uniform(0.1, 2.0, (200, 3))
    slack = [reg.omega(f) + reg.dual_penalty(q) - f @ np.sqrt(q) for f in norms]
    assert min(slack) >= -1e-12


@every_regularizer
def test_dual_scale_is_the_largest_that_makes_the_penalty_finite(reg: Regularizer) -> None:
    for q in (np.array([1e-3, 1e-4]), np.array([50.0, 3e5]), np.zeros(2), np.array([7.0])):
        t = reg.dual_scale(q)
        assert 0 < t <= 1
        assert np.isfinite(reg.dual_penalty(q * t**2))
        if t < 1:
            assert np.isinf(reg.dual_penalty(q * (1.001 * t) ** 2))


@every_regularizer
@pytest.mark.parametrize("m", [1, 5])
def test_start_is_allowed_and_equal(reg: Regularizer, m: int) -> None:
    d = reg.start(m)
    assert d.shape == (m,)
    assert np.isfinite(reg.value(d))
    assert np.all(d == d[0])
    assert d[0] > 0


@every_regularizer
def test_regularizers_are_plain_values(reg: Regularizer) -> None:
    twins = [copy.deepcopy(reg), pickle.loads(pickle.dumps(reg)), clone(reg)]
    assert all(twin == reg and hash(twin) == hash(reg) for twin in twins)
    assert eval(repr(reg), {type(reg).__name__: type(reg)}) == reg
    assert get_regularizer(reg) is reg
    assert get_regularizer(reg.name, **reg.get_params()) == reg


def test_special_cases_agree_with_each_other() -> None:
    rng = np.random.default_rng(0)
    norms, q = rng.uniform(size=6), rng.uniform(size=6)
    assert LpBall(1.0).omega(norms) == pytest.approx(Simplex().omega(norms))
    assert LpBall(1.0).dual_penalty(q) == pytest.approx(Simplex().dual_penalty(q))
    np.testing.assert_allclose(LpBall(1.0).project(q), Simplex().project(q))
    assert norm(q, 1e9) == pytest.approx(q.max())
    assert norm([], 2.0) == 0.0


def test_bad_names_and_parameters_are_explained() -> None:
    d = np.ones(2)
    with pytest.raises(UnknownNameError, match=r"unknown regularizer 'simplx'; did you mean"):
        get_regularizer("simplx")
    with pytest.raises(InvalidInputError, match="'l1' has no parameter 'p'; it has 'weight'"):
        get_regularizer("l1", p=2)
    with pytest.raises(InvalidInputError, match="name or a Regularizer object; got None"):
        get_regularizer(None)  # type: ignore[arg-type]
    for bad in (0.5, -1, np.inf, np.nan, "2"):
        with pytest.raises(InvalidInputError, match="p of LpBall must be"):
            LpBall(bad).project(d)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"weight of L1 must be .* > 0; got 0"):
        L1(0).value(d)
    with pytest.raises(InvalidInputError, match="weight of SquaredLp must be"):
        SquaredLp(weight=-1).value(d)


def test_a_taken_name_cannot_be_registered_by_another_class() -> None:
    with pytest.raises(InvalidInputError, match=r"'l1' of class .*Impostor is taken by L1"):
        type("Impostor", (L1,), {"name": "l1"})
    assert get_regularizer("l1") == L1()
