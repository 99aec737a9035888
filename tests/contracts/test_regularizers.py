"""Every registered regularizer keeps the promises of `Regularizer`."""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from lp_norm import norm
from scipy.optimize import minimize
from sklearn.base import clone
from thinned import thinned

from kernelweave.bank import DenseBank
from kernelweave.combine import WeightedSum
from kernelweave.errors import InvalidInputError, UnknownNameError
from kernelweave.regularizers import (
    L1,
    BlockNorm,
    ElasticNet,
    Entropy,
    Fixed,
    LpBall,
    Regularizer,
    Simplex,
    SquaredLp,
    get_regularizer,
)

REGULARIZERS = [r for name in Regularizer.names() for r in Regularizer.registry[name].examples()]
CONVEX = [r for r in REGULARIZERS if r.convex]
every_regularizer = pytest.mark.parametrize("reg", REGULARIZERS, ids=repr)
every_convex = pytest.mark.parametrize("reg", CONVEX, ids=repr)
# Sets whose weights have a norm of at most, or exactly, one.
SPHERES = (Simplex, LpBall, Entropy)
SCALES = [1e-8, 1.0, 1e8]


def bound(reg: Regularizer, m: int) -> Regularizer:
    """The regularizer for m small kernels, on three columns in turn."""
    factors = np.random.default_rng(m).normal(size=(m, 4, 2))
    names = [f"rbf(width={k}) on column {k % 3}" for k in range(m)]
    bank = DenseBank().from_matrices(list(factors @ factors.transpose(0, 2, 1)), names)
    return reg.bind(bank, WeightedSum())


def rescaled(reg: Regularizer, d: np.ndarray) -> np.ndarray:
    """Positive weights moved onto the edge of the set, where there is one."""
    return d / norm(d, getattr(reg, "p", 1.0)) if isinstance(reg, SPHERES) else d


def group_labels(reg: BlockNorm, m: int) -> np.ndarray:
    kernels = np.arange(m)
    return kernels % 3 if reg.groups == "columns" else kernels // reg.groups


def definition(reg: Regularizer, d: cp.Variable) -> tuple[cp.Expression, list[cp.Constraint]]:
    """r(d) and its set, written down a second time for a general convex solver."""
    s, p = getattr(reg, "weight", 1.0), getattr(reg, "p", 1.0)
    if isinstance(reg, Simplex):
        return cp.Constant(0.0), [cp.sum(d) == 1]
    if isinstance(reg, LpBall):
        return cp.Constant(0.0), [cp.pnorm(d, p, approx=False) <= 1]
    if isinstance(reg, L1):
        return s * cp.sum(d), []
    if isinstance(reg, SquaredLp):
        return 0.5 * s * cp.square(cp.pnorm(d, p, approx=False)), []
    if isinstance(reg, ElasticNet):
        rho = reg.l1_ratio
        return s * rho * cp.sum(d) + 0.5 * s * (1 - rho) * cp.sum_squares(d), []
    if isinstance(reg, BlockNorm):
        labels = group_labels(reg, d.size)
        norms = [cp.pnorm(d[np.flatnonzero(labels == g)], p, approx=False) for g in set(labels)]
        return s * sum(norms), []
    if isinstance(reg, Entropy):
        return s * (cp.sum(-cp.entr(d)) + np.log(d.size)), [cp.sum(d) == 1]
    pytest.skip(f"no second definition of {reg!r}")


def solved(objective: cp.Expression, within: list[cp.Constraint]) -> float:
    return cp.Problem(cp.Minimize(objective), within).solve(
        solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9
    )


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

    def objective(u: np.ndarray) -> float:
        d = rescaled(reg, np.exp(u))
        return 0.5 * float(np.sum(cost * d**power)) + reg.value(d)

    options = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10}
    return float(minimize(objective, np.zeros(cost.size), method="L-BFGS-B", options=options).fun)


def test_all_rows_of_the_table_are_registered() -> None:
    table = {"simplex", "lp_ball", "l1", "squared_lp", "elastic_net", "block_norm", "entropy"}
    assert table | {"log_det"} <= set(Regularizer.names())


@every_regularizer
@pytest.mark.parametrize("m", [1, 2, 7, 500])
def test_projection_is_allowed_idempotent_and_nearest(reg: Regularizer, m: int) -> None:
    rng, reg = np.random.default_rng(m), bound(reg, m)
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
    assert np.isfinite(bound(reg, len(v)).value(d))
    if len(set(v)) == 1:
        np.testing.assert_allclose(d, d[0], rtol=1e-13)


@every_convex
def test_projection_agrees_with_a_conic_solver(reg: Regularizer) -> None:
    v = np.random.default_rng(3).normal(size=6) * 2
    d = cp.Variable(6, nonneg=True)
    solved(cp.sum_squares(d - v), definition(reg, d)[1])
    np.testing.assert_allclose(reg.project(v), d.value, atol=1e-5)


@every_regularizer
def test_prox_agrees_with_a_conic_solver(reg: Regularizer) -> None:
    v, step = np.random.default_rng(3).normal(size=6) * 2, 0.3
    try:
        found = bound(reg, 6).prox(v, step)
    except NotImplementedError as error:
        assert reg.smooth
        assert "has no prox" in str(error)
        return
    d = cp.Variable(6, nonneg=True)
    value, within = definition(reg, d)
    solved(0.5 * cp.sum_squares(d - v) + step * value, within)
    np.testing.assert_allclose(found, d.value, atol=1e-4)


PROXIMABLE = [*(r for r in REGULARIZERS if r.convex), SquaredLp(1.01)]


@pytest.mark.parametrize(
    ("reg", "m", "step"), thinned(PROXIMABLE, [1, 7, 300], SCALES, keep=3), ids=str
)
def test_prox_is_least(reg: Regularizer, m: int, step: float) -> None:
    """Variational inequality: <v - d, u - d> <= step (r(u) - r(d)) for every allowed u."""
    reg, rng = bound(reg, m), np.random.default_rng(m)
    for scale in SCALES:
        v = rng.normal(size=m) * scale
        d = reg.prox(v, step)
        assert np.all(d >= 0)
        near = np.maximum(d * np.exp(0.1 * rng.normal(size=(20, m))), 1e-3 * step)
        others = [*allowed_points(reg, m, 20), *map(reg.project, near), reg.project(0.0 * v)]
        for u in others:
            gain = step * (reg.value(u) - reg.value(d)) - (v - d) @ (u - d)
            size = step * (reg.value(u) + reg.value(d)) + (np.abs(v) + d) @ (u + d)
            assert gain >= -1e-12 * size


@pytest.mark.parametrize("p", [1.01, 1.1, 1.33, 1.9, 2.0, 2.1, 5.0])
@settings(max_examples=40, deadline=None)
@given(
    v=arrays(np.float64, 6, elements=st.floats(-1e6, 1e6)),
    powers=arrays(np.float64, 6, elements=st.floats(-8.0, 8.0)),
)
def test_prox_of_a_squared_norm_with_a_step_for_each_weight(p, v, powers) -> None:
    """x + t |x|^(2-p) x^(p-1) = v wherever there is weight, and no other weights."""
    steps = 10.0**powers
    x = SquaredLp(p, 0.5).prox(v, steps)
    size = norm(x, p)
    used = x > 1e-290
    pull = 0.5 * steps * (size * (x / size) ** (p - 1.0) if size > 0 else 0.0)
    np.testing.assert_allclose((x + pull)[used], v[used], rtol=1e-9, atol=1e-12 * np.abs(v).max())
    assert np.all(x[v <= 0] == 0)


@pytest.mark.parametrize("p", [1.0001, 1.001, 1.01, 1.2, 1.9, 2.0, 2.001, 3.0, 20.0])
@settings(max_examples=40, deadline=None)
# Newton steps from the last solution overflow here if nothing bounds them.
@example(v=np.array([0.0, 0.614, 1.444]))
@example(v=np.array([596527.831, 0.0, 587176.754]))
@given(v=arrays(np.float64, st.integers(1, 12), elements=st.floats(-1e8, 1e8)))
def test_ball_projection_meets_its_optimality_conditions(p: float, v: np.ndarray) -> None:
    d = LpBall(p).project(v)
    rest = v - d
    # max over the set of <rest, u> is the dual norm of the positive part; d must attain it.
    support = norm(np.maximum(rest, 0.0), p / (p - 1))
    assert norm(d, p) <= 1 + 1e-12
    assert support - rest @ d <= 1e-12 * max(1.0, np.abs(v).sum())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("p", [1.1, 1.5, 3.0, 8.0, 20.0])
def test_points_on_the_sphere_to_rounding_stay(p: float) -> None:
    for seed in range(50):
        v = np.random.default_rng(seed).gamma(0.5, size=5)
        v /= norm(v, p)
        for scale in (1.0 - 2e-16, 1.0, 1.0 + 2e-16, 1.0 + 1e-15):
            np.testing.assert_allclose(LpBall(p).project(scale * v), v, atol=4e-15)


def test_very_many_kernels() -> None:
    rng = np.random.default_rng(0)
    v = rng.normal(size=200_000)
    for reg in (Simplex(), LpBall(1.33), LpBall(1.5), LpBall(3.0)):
        d = reg.project(v)
        p = getattr(reg, "p", 1.0)
        assert abs(norm(d, p) - 1) <= 1e-12
        rest = v - d
        if p > 1:
            support = norm(np.maximum(rest, 0.0), p / (p - 1))
            assert support - rest @ d <= 1e-9 * support
    labels = rng.integers(10_000, size=v.size)
    kernels = SimpleNamespace(m=v.size, names=range(v.size))
    for p in (1.33, 2.0, 4.0):
        reg = BlockNorm(labels, p).bind(kernels, WeightedSum())
        d = reg.prox(v, 1.0)
        assert (v - d) @ d == pytest.approx(reg.value(d), rel=1e-9)
        assert reg.dual_penalty(2.0 * (v - d)) == 0
    for p in (1.0, 1.1, 1.33, 3.0):
        reg = SquaredLp(p)
        d = reg.prox(v, 1.0)
        # Optimality by Fenchel and Young: r(d) + r*(v - d) = <v - d, d>.
        conjugate = reg.dual_penalty(2.0 * np.maximum(v - d, 0.0))
        assert (v - d) @ d == pytest.approx(reg.value(d) + conjugate, rel=1e-9)
    q, norms = v**2, np.abs(v)
    d = Entropy(0.1).prox(v, 1.0)
    assert d.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.ptp(v - d - Entropy(0.1).gradient(d)) <= 1e-12
    for reg in (LpBall(1.33), SquaredLp(1.33), ElasticNet(), Entropy(0.1)):
        d = reg.dual_weights(q)
        assert 0.5 * d @ q - reg.value(d) == pytest.approx(reg.dual_penalty(q), rel=1e-9)
        best = reg.weights_from_norms(norms)
        used = 0.5 * np.sum(norms**2 / best) + reg.value(best)
        assert reg.omega(norms) == pytest.approx(used, rel=1e-9)


@every_regularizer
def test_gradient_is_the_derivative_of_the_value(reg: Regularizer) -> None:
    reg = bound(reg, 5)
    d = allowed_points(reg, 5, 1)[0] + 0.05
    if np.isinf(reg.value(d)):
        d = reg.project(d) if isinstance(reg, LpBall) else d / d.sum()
    gradient = reg.gradient(d)
    if isinstance(reg, Simplex | LpBall):
        assert np.all(gradient == 0)
        return
    for k, unit in enumerate(1e-6 * np.eye(5)):
        along = unit - 1e-6 / 5 if isinstance(reg, Entropy) else unit
        numeric = (reg.value(d + along) - reg.value(d - along)) / 2e-6
        exact = gradient[k] - gradient.mean() if isinstance(reg, Entropy) else gradient[k]
        assert exact == pytest.approx(numeric, rel=1e-5, abs=1e-8)


@every_regularizer
def test_value_is_infinite_outside_the_set(reg: Regularizer) -> None:
    assert bound(reg, 2).value(np.array([1.2, -0.2])) == np.inf
    if isinstance(reg, SPHERES):
        assert reg.value(np.array([1.5, 0.5])) == np.inf
    assert np.all(np.isfinite(bound(reg, 3).gradient(np.zeros(3))))


@every_convex
def test_value_agrees_with_its_second_definition(reg: Regularizer) -> None:
    reg = bound(reg, 7)
    for point in allowed_points(reg, 7, 10):
        d = cp.Variable(7, nonneg=True, value=point)
        assert reg.value(point) == pytest.approx(definition(reg, d)[0].value, rel=1e-9, abs=1e-12)


@every_convex
def test_omega_is_the_minimum_over_weights(reg: Regularizer) -> None:
    norms, reg = np.array([0.3, 1.7, 0.9, 0.05]), bound(reg, 4)
    numeric = numeric_minimum(reg, norms**2, -1.0)
    assert reg.omega(norms) == pytest.approx(numeric, rel=1e-7)
    assert reg.omega(norms) <= numeric * (1 + 1e-9)


@every_convex
@pytest.mark.parametrize("scale", SCALES)
def test_weights_from_norms_attain_omega(reg: Regularizer, scale: float) -> None:
    norms = scale * np.array([0.3, 1.7, 0.0, 0.9])
    used, reg = norms > 0, bound(reg, 4)

    def objective(d: np.ndarray) -> float:
        return 0.5 * float(np.sum(norms[used] ** 2 / d[used])) + reg.value(d)

    d = reg.weights_from_norms(norms)
    assert reg.omega(norms) == pytest.approx(objective(d), rel=1e-12)
    for size in (1e-3, 0.3):
        for shift in size * np.random.default_rng(0).normal(size=(20, 4)):
            assert objective(rescaled(reg, d * np.exp(shift))) >= reg.omega(norms) * (1 - 1e-12)
    # Weight on a kernel without use costs, except that of the entropy, which wants some on all.
    assert d[2] == 0 or isinstance(reg, Entropy)
    assert np.isfinite(bound(reg, 3).value(bound(reg, 3).weights_from_norms(np.zeros(3))))
    assert bound(reg, 3).omega(np.zeros(3)) == 0


@every_convex
def test_dual_penalty_is_the_supremum(reg: Regularizer) -> None:
    q, reg = np.array([0.4, 2.0, 1.1, 0.0]), bound(reg, 4)
    q = q * reg.dual_scale(q) ** 2
    penalty = reg.dual_penalty(q)
    points = allowed_points(reg, 4, 400)
    # Fenchel-Young for every allowed d ...
    values = np.array([d @ q / 2 - reg.value(d) for d in points])
    assert np.all(values <= penalty + 1e-9 * np.maximum(1.0, np.abs(points).sum(axis=1)))
    # ... and the supremum is reached.
    assert -numeric_minimum(reg, -q, 1.0) == pytest.approx(penalty, rel=1e-5, abs=1e-6)


@every_convex
@pytest.mark.parametrize("scale", SCALES)
def test_dual_weights_attain_the_dual_penalty(reg: Regularizer, scale: float) -> None:
    for q in ([0.4, 2.0, 1.1, 0.0], [0.0, 0.0, 0.0, 0.0], [3.0], [1.0, 1.0]):
        scaled, bound_reg = scale * np.array(q), bound(reg, len(q))
        d = bound_reg.dual_weights(scaled)
        if d is None:
            assert isinstance(reg, Simplex | L1 | BlockNorm) or reg.p == 1
            continue
        linear, price = 0.5 * float(d @ scaled), bound_reg.value(d)
        penalty = bound_reg.dual_penalty(scaled)
        assert linear - price == pytest.approx(penalty, rel=1e-12, abs=1e-14 * (linear + price))


@every_convex
def test_dual_weights_are_the_gradient_of_the_dual_penalty(reg: Regularizer) -> None:
    q, reg = np.array([0.4, 3.0, 2.5, 1.6]), bound(reg, 4)
    d = reg.dual_weights(q)
    if d is not None:
        for k, unit in enumerate(1e-6 * np.eye(4)):
            numeric = (reg.dual_penalty(q + unit) - reg.dual_penalty(q - unit)) / 2e-6
            assert 0.5 * d[k] == pytest.approx(numeric, rel=1e-5, abs=1e-8)


@every_convex
def test_omega_and_the_dual_penalty_are_a_primal_dual_pair(reg: Regularizer) -> None:
    """With |f_k| = d_k sqrt(q_k) at the best d: Omega(|f|) + r*(q/2) = sum |f_k| sqrt(q_k)."""
    q, reg = np.array([0.4, 2.0, 1.1]), bound(reg, 3)
    q = q * reg.dual_scale(q) ** 2
    norms = np.random.default_rng(0).uniform(0.1, 2.0, (200, 3))
    slack = [reg.omega(f) + reg.dual_penalty(q) - f @ np.sqrt(q) for f in norms]
    assert min(slack) >= -1e-12
    d = reg.dual_weights(q)
    if d is not None:
        f = d * np.sqrt(q)
        assert reg.omega(f) + reg.dual_penalty(q) == pytest.approx(f @ np.sqrt(q), rel=1e-12)


@every_convex
def test_dual_scale_is_the_largest_that_makes_the_penalty_finite(reg: Regularizer) -> None:
    for q in (np.array([1e-3, 1e-4]), np.array([50.0, 3e5]), np.zeros(2), np.array([7.0])):
        here = bound(reg, len(q))
        t = here.dual_scale(q)
        assert 0 < t <= 1
        assert np.isfinite(here.dual_penalty(q * t**2))
        if t < 1:
            assert np.isinf(here.dual_penalty(q * (1.001 * t) ** 2))


@pytest.mark.parametrize(("reg", "size"), thinned(CONVEX, [0.3, 1.0, 4.0]), ids=str)
def test_a_learning_problem_solved_by_a_conic_solver(reg: Regularizer, size: float) -> None:
    """min r(d) + y'(K(d) + I)^-1 y / 2: dual weights agree, screened kernels are not in use."""
    m, n = 8, 6
    rng = np.random.default_rng(1)
    factors = rng.normal(size=(m, n, 3))
    kernels = factors @ factors.transpose(0, 2, 1) / 3
    y = size * rng.normal(size=n)
    d = cp.Variable(m, nonneg=True)
    value, within = definition(reg, d)
    combined = sum(d[k] * kernels[k] for k in range(m)) + np.eye(n)
    optimum = solved(value + 0.5 * cp.matrix_frac(y, combined), within)
    weights, reg = np.maximum(d.value, 0.0), bound(reg, m)
    alpha = np.linalg.solve(np.tensordot(weights, kernels, 1) + np.eye(n), y)
    q = np.einsum("i,kij,j->k", alpha, kernels, alpha)
    q_inside = q * reg.dual_scale(q) ** 2
    dual = reg.dual_scale(q) * alpha @ y - 0.5 * reg.dual_scale(q) ** 2 * alpha @ alpha
    assert dual - reg.dual_penalty(q_inside) == pytest.approx(optimum, rel=1e-4, abs=1e-6)
    norms = weights * np.sqrt(q)
    residual = y - np.tensordot(weights, kernels, 1) @ alpha
    assert reg.omega(norms) + 0.5 * residual @ residual == pytest.approx(optimum, rel=1e-5)
    found = reg.dual_weights(q)
    if found is not None:
        np.testing.assert_allclose(found, weights, rtol=1e-2, atol=1e-2 * weights.max() + 1e-9)
    for slack in (1e-3, 0.1, 1.0):
        root = np.sqrt(q)
        zero = reg.screened(np.maximum(root - slack, 0.0), root + slack)
        assert zero.shape == (m,)
        assert zero.dtype == bool
        # An interior-point solver ends a little inside the set.
        assert np.all(weights[zero] <= 1e-4 * max(1e-3, weights.max()))
        unused = weights <= 1e-6 * max(1e-3, weights.max())
        if slack == 1e-3 and reg.sparse and unused.any():
            assert zero.sum() >= 0.5 * unused.sum()


def test_screening_is_strict_at_the_border() -> None:
    root = np.sqrt(2.0)
    for reg in (L1(1.0), BlockNorm(1), BlockNorm(1, 1.0), ElasticNet(2.0, 0.5)):
        high = np.array([root * (1 - 1e-9), root * (1 + 1e-9)])
        assert bound(reg, 2).screened(0 * high, high).tolist() == [True, False]
    # Each alone would be screened, the first two together are not.
    high = np.array([1.3, 1.2, 1.1, 0.5])
    assert BlockNorm(2).screened(0 * high, high).tolist() == [False, False, True, True]
    low = np.array([1.15, 1.1, 0.0, 0.0])
    assert Simplex().screened(low, high).tolist() == [False, False, True, True]
    assert not LpBall().screened(low, high).any()


@every_regularizer
@pytest.mark.parametrize("m", [1, 5])
def test_start_is_allowed_and_equal(reg: Regularizer, m: int) -> None:
    d = reg.start(m)
    assert d.shape == (m,)
    assert np.isfinite(bound(reg, m).value(d))
    assert np.all(d == d[0])
    assert d[0] > 0


@every_regularizer
def test_regularizers_are_plain_values(reg: Regularizer) -> None:
    twins = [copy.deepcopy(reg), pickle.loads(pickle.dumps(reg)), clone(reg)]
    assert all(twin == reg and hash(twin) == hash(reg) for twin in twins)
    assert eval(repr(reg), {type(reg).__name__: type(reg)}) == reg
    assert get_regularizer(reg) is reg
    assert get_regularizer(reg.name) == type(reg)()
    known = bound(reg, 4)
    d = known.start(4)
    for twin in (copy.deepcopy(known), pickle.loads(pickle.dumps(known)), bound(clone(known), 4)):
        assert twin == known
        assert twin.value(d) == known.value(d)


def test_special_cases_agree_with_each_other() -> None:
    rng = np.random.default_rng(0)
    norms, q = rng.uniform(size=6), rng.uniform(size=6)
    assert LpBall(1.0).omega(norms) == pytest.approx(Simplex().omega(norms))
    assert LpBall(1.0).dual_penalty(q) == pytest.approx(Simplex().dual_penalty(q))
    np.testing.assert_allclose(LpBall(1.0).project(q), Simplex().project(q))
    squared, ridge = SquaredLp(2.0, 3.0), ElasticNet(3.0, 0.0)
    assert ridge.omega(norms) == pytest.approx(squared.omega(norms))
    assert ridge.dual_penalty(q) == pytest.approx(squared.dual_penalty(q))
    for same in (BlockNorm(1, 3.0, 2.0), BlockNorm(4, 1.0, 2.0)):
        assert same.omega(norms) == pytest.approx(L1(2.0).omega(norms))
        np.testing.assert_allclose(same.prox(3 * q, 0.7), L1(2.0).prox(3 * q, 0.7), atol=1e-15)
        assert same.dual_scale(50 * q) == pytest.approx(L1(2.0).dual_scale(50 * q))
    # The price of entropy goes from none, the simplex, to any, equal weights.
    for scale in SCALES:
        free, dear = Entropy(1e-12 * scale**2), Entropy(1e12 * scale**2)
        assert free.omega(scale * norms) == pytest.approx(Simplex().omega(scale * norms))
        assert free.dual_penalty(scale**2 * q) == pytest.approx(0.5 * scale**2 * q.max())
        equal = Fixed(np.full(6, 1 / 6))
        assert dear.omega(scale * norms) == pytest.approx(equal.omega(scale * norms))
        assert dear.dual_penalty(scale**2 * q) == pytest.approx(0.5 * scale**2 * q.mean())
    assert SquaredLp(1e9, 2.0).value(q) == pytest.approx(q.max() ** 2)
    assert SquaredLp(2.0, 2.0).value(np.array([3e150, 4e150])) == pytest.approx(2.5e301)
    assert SquaredLp(2.0, 2.0).dual_penalty(np.array([np.inf, 1.0])) == np.inf


def test_bad_names_and_parameters_are_explained() -> None:
    d = np.ones(2)
    with pytest.raises(UnknownNameError, match=r"unknown regularizer 'simplx'; did you mean"):
        get_regularizer("simplx")
    with pytest.raises(InvalidInputError, match="name or a Regularizer object; got None"):
        get_regularizer(None)  # type: ignore[arg-type]
    for bad in (0.5, -1, np.inf, np.nan, "2"):
        with pytest.raises(InvalidInputError, match="p of LpBall must be"):
            LpBall(bad).project(d)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"weight of L1 must be .* > 0; got 0"):
        L1(0).value(d)
    with pytest.raises(InvalidInputError, match="weight of SquaredLp must be"):
        SquaredLp(weight=-1).value(d)
    for bad in (1, 1.5, -0.1, np.nan, "0.5"):
        with pytest.raises(InvalidInputError, match=r"from 0 to below 1; got .*use L1\(weight\)"):
            ElasticNet(l1_ratio=bad).value(d)  # type: ignore[arg-type]
    for cls in (ElasticNet, Entropy):
        with pytest.raises(InvalidInputError, match=f"weight of {cls.__name__} must be"):
            cls(weight=0).value(d / 2)
    with pytest.raises(InvalidInputError, match="weight of BlockNorm must be"):
        BlockNorm(1, weight=np.inf).value(d)
    with pytest.raises(InvalidInputError, match="p of BlockNorm must be"):
        BlockNorm(1, p=0.9).value(d)


def test_entropy_is_exact_for_every_price() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        norms = 10.0 ** rng.uniform(-4, 4) * rng.uniform(size=rng.integers(2, 9))
        reg = Entropy(10.0 ** rng.uniform(-4, 4))
        d = reg.weights_from_norms(norms)
        attained = 0.5 * np.sum(norms**2 / d) + reg.value(d)
        assert reg.omega(norms) == pytest.approx(attained, rel=2e-14)


def test_fixed_weights_are_attained() -> None:
    reg = Fixed([0.2, 0.0, 3.0])
    q = np.array([1.0, 5.0, 2.0])
    assert 0.5 * reg.dual_weights(q) @ q == reg.dual_penalty(q)
    assert reg.prox(q, 1.0).tolist() == [0.2, 0.0, 3.0]


def test_a_taken_name_cannot_be_registered_by_another_class() -> None:
    with pytest.raises(InvalidInputError, match=r"'l1' of class .*Impostor is taken by L1"):
        type("Impostor", (L1,), {"name": "l1"})
    assert get_regularizer("l1") == L1()
