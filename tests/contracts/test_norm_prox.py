"""Every regularizer with `norm_prox` shrinks norms as its Omega says, and tells the Jacobian."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kernelweave.bank import DenseBank
from kernelweave.combine import WeightedSum
from kernelweave.regularizers import (
    L1,
    BlockNorm,
    ElasticNet,
    LpBall,
    Regularizer,
    Simplex,
    SquaredLp,
)
from kernelweave.regularizers.base import NormProx

pytestmark = pytest.mark.filterwarnings("error")

REGULARIZERS = [r for name in Regularizer.names() for r in Regularizer.registry[name].examples()]
# Exponents next to 1 and far from it: powers of 200 and of almost 1.
EXTREME = [LpBall(1.01), LpBall(50.0), SquaredLp(1.01, 0.3), SquaredLp(50.0), BlockNorm(4, 1.01)]
PROXIMAL = [r for r in REGULARIZERS if r.proximal] + EXTREME
every_regularizer = pytest.mark.parametrize("reg", REGULARIZERS, ids=repr)
every_proximal = pytest.mark.parametrize("reg", PROXIMAL, ids=repr)


def bound(reg: Regularizer, m: int) -> Regularizer:
    """The regularizer for m small kernels, on three columns in turn."""
    names = [f"rbf(width={k}) on column {k % 3}" for k in range(m)]
    return reg.bind(DenseBank().from_matrices([np.eye(1)] * m, names), WeightedSum())


def norms_of(m: int, seed: int = 0) -> np.ndarray:
    """Norms of very different sizes, some zero."""
    rng = np.random.default_rng(seed)
    return rng.gamma(0.5, size=m) * (rng.random(m) > 0.15)


def jacobian(shrunk: NormProx) -> np.ndarray:
    inner = np.diag(shrunk.slopes) + shrunk.coupling * shrunk.signs @ shrunk.coupling.T
    full = np.zeros((len(shrunk.norms),) * 2)
    full[np.ix_(shrunk.active, shrunk.active)] = inner
    return full


def gap(reg: Regularizer, n: np.ndarray, step: float, p: np.ndarray) -> float:
    """Fenchel-Young gap of Omega at p and (n - p) / step: never negative, zero at the minimum.

    The conjugate of Omega at g is r*(g^2 / 2). Relative to the terms that make it up; a price that
    is an indicator allows slopes 1e-9 beyond its edge, so they are drawn inside before.
    """
    way = np.maximum(n - p, 0.0)
    inside = reg.dual_scale((way / step) ** 2)
    assert (1.0 - inside) * way.max() <= 1e-14 * n.max()
    slope = inside * way / step
    terms = reg.omega(p), reg.dual_penalty(slope**2), float(slope @ p)
    size = max(terms[0], terms[2], float(n @ n) / step)
    return abs(terms[0] + terms[1] - terms[2]) / size if size > 0 else 0.0


def assert_stationary(reg: Regularizer, n: np.ndarray, step: float, p: np.ndarray) -> None:
    """The slope of Omega is p / d with the best weights d, so n = p + step p / d."""
    seen = p > 1e-250 * p.max()  # smaller numbers have fewer digits
    d = reg.weights_from_norms(p)
    np.testing.assert_allclose(p[seen] + step * p[seen] / d[seen], n[seen], rtol=1e-12)


@every_regularizer
def test_the_flag_tells_who_has_a_norm_prox(reg: Regularizer) -> None:
    assert reg.proximal == (type(reg).norm_prox is not Regularizer.norm_prox)
    if not reg.proximal:
        with pytest.raises(NotImplementedError, match="no norm_prox"):
            reg.norm_prox(np.ones(3), 1.0)


def test_the_convex_family_is_proximal() -> None:
    family = {"simplex", "lp_ball", "l1", "squared_lp", "elastic_net", "block_norm"}
    assert family <= {r.name for r in PROXIMAL}


@every_proximal
@pytest.mark.parametrize("m", [1, 2, 90])
def test_shrunken_norms_are_optimal_at_every_scale(reg: Regularizer, m: int) -> None:
    reg = bound(reg, m)
    for scale in (1e-8, 1e-2, 1.0, 1e8):
        for step in (1e-8, 0.1, 1.0, 1e8):
            n = scale * np.maximum(norms_of(m, seed=m), 1e-3 * (m == 1))
            p = reg.norm_prox(n, step).norms
            assert np.all(p >= 0)
            assert np.all(p <= n)
            assert gap(reg, n, step, p) < 3e-14, (scale, step)


@every_proximal
def test_shrunken_norms_are_exact_to_rounding(reg: Regularizer) -> None:
    reg, rng = bound(reg, 50), np.random.default_rng(0)
    for scale in (1e-8, 1.0, 1e8):
        for step in (1e-8, 1e-4, 0.1, 1.0, 1e4, 1e8):
            n = scale * rng.gamma(0.5, size=50)
            assert_stationary(reg, n, step, reg.norm_prox(n, step).norms)


@every_proximal
def test_no_other_norms_are_better(reg: Regularizer) -> None:
    # Does not go by `dual_penalty`, but only sees errors of 1e-5.
    reg, rng = bound(reg, 6), np.random.default_rng(0)
    for step in (0.05, 0.7):
        n = norms_of(6, seed=3)

        def objective(p: np.ndarray, n: np.ndarray = n, step: float = step) -> float:
            return 0.5 * float((p - n) @ (p - n)) + step * reg.omega(p)

        p = reg.norm_prox(n, step).norms
        least = objective(p)
        for size in (1e-5, 1e-3, 1e-1):
            for other in np.maximum(p + size * rng.normal(size=(40, 6)), 0.0):
                # Strongly convex: away from the minimum it rises at least so much.
                rise = 0.5 * float((other - p) @ (other - p))
                assert objective(other) >= least + 0.999 * rise - 1e-15


def omega_again(reg: Regularizer, p: cp.Variable) -> tuple[cp.Expression, list[cp.Constraint]]:
    """Omega, written down a second time for a general convex solver."""
    s, q = getattr(reg, "weight", 1.0), getattr(reg, "p", 1.0)
    r = 2 * q / (q + 1)
    if isinstance(reg, L1):
        return np.sqrt(2 * s) * cp.sum(p), []
    if isinstance(reg, Simplex | LpBall):
        return 0.5 * cp.square(cp.pnorm(p, r, approx=False)), []
    if isinstance(reg, SquaredLp):
        power = cp.power(cp.pnorm(p, r, approx=False), 4 / 3, approx=False)
        return 1.5 * s ** (1 / 3) * 2 ** (-2 / 3) * power, []
    if isinstance(reg, BlockNorm):
        kernels = np.arange(p.size)
        labels = kernels % 3 if reg.groups == "columns" else kernels // reg.groups
        norms = [cp.pnorm(p[np.flatnonzero(labels == g)], r, approx=False) for g in set(labels)]
        return np.sqrt(2 * s) * sum(norms), []
    if isinstance(reg, ElasticNet):
        d = cp.Variable(p.size, nonneg=True)
        price = s * reg.l1_ratio * cp.sum(d) + 0.5 * s * (1 - reg.l1_ratio) * cp.sum_squares(d)
        return sum(0.5 * cp.quad_over_lin(p[k], d[k]) for k in range(p.size)) + price, []
    pytest.skip(f"no second definition of {reg!r}")


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("reg", [r for r in REGULARIZERS if r.proximal], ids=repr)
def test_shrunken_norms_agree_with_a_conic_solver(reg: Regularizer) -> None:
    n, p = norms_of(6, seed=1) + 0.3, cp.Variable(6, nonneg=True)
    omega, within = omega_again(reg, p)
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(p - n) + 0.4 * omega), within)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    np.testing.assert_allclose(bound(reg, 6).norm_prox(n, 0.4).norms, p.value, atol=2e-5)


@every_proximal
@pytest.mark.parametrize(("m", "scale"), [(1, 1.0), (2, 1e6), (7, 1e-6), (7, 1.0)])
def test_jacobian_agrees_with_differences(reg: Regularizer, m: int, scale: float) -> None:
    reg = bound(reg, m)
    for step in (0.03, 10.0):
        n = scale * np.maximum(norms_of(m, seed=5 + m), 0.3 * (m == 1))
        shrunk = reg.norm_prox(n, step)
        J, p = jacobian(shrunk), shrunk.norms
        for k in shrunk.active:
            h = 1e-6 * n[k] * np.eye(m)[k]
            after, before = (reg.norm_prox(n + side * h, step) for side in (1.0, -1.0))
            if np.array_equal(after.active, before.active):
                slope = (after.norms - before.norms) / (2.0 * h[k])
                # Differences see the rounding of p, and curvature that grows with the power.
                error = 1e-6 * np.abs(slope).max() + 1e-13 * p.max() / h[k]
                np.testing.assert_allclose(J[:, k], slope, rtol=1e-6, atol=error)


@every_proximal
@pytest.mark.parametrize("m", [1, 40])
def test_jacobian_is_symmetric_and_no_expansion(reg: Regularizer, m: int) -> None:
    reg = bound(reg, m)
    for scale in (1e-8, 1.0, 1e8):
        for step in (1e-8, 0.1, 1e8):
            shrunk = reg.norm_prox(scale * norms_of(m, seed=m), step)
            assert np.array_equal(shrunk.active, np.flatnonzero(shrunk.norms > 0))
            assert shrunk.slopes.shape == shrunk.active.shape
            assert shrunk.coupling.shape == (len(shrunk.active), len(shrunk.signs))
            assert np.all(np.abs(shrunk.signs) == 1.0)
            J = jacobian(shrunk)
            assert np.array_equal(J, J.T)
            eigenvalues = np.linalg.eigvalsh(J)
            assert eigenvalues[0] >= -1e-12
            assert eigenvalues[-1] <= 1.0 + 1e-12


@every_proximal
@pytest.mark.parametrize("m", [1, 5])
def test_norms_of_zero_stay_zero(reg: Regularizer, m: int) -> None:
    reg = bound(reg, m)
    nothing = reg.norm_prox(np.zeros(m), 0.5)
    assert not np.any(nothing.norms)
    assert nothing.active.size == nothing.slopes.size == nothing.coupling.size == 0
    n = 100.0 * np.ones(m)
    n[:1] = 0.0
    # Nothing is asked of the order of kernels, nor of others that are zero.
    assert reg.norm_prox(n, 1e-3).active.tolist() == list(range(1, m))


@every_proximal
def test_equal_norms_stay_equal_and_larger_ones_larger(reg: Regularizer) -> None:
    n = np.tile([0.4, 2.0, 1.0], 4)  # kernels of one column, and neighbours, are alike
    p = bound(reg, 12).norm_prox(n, 0.1).norms
    if not isinstance(reg, BlockNorm):
        np.testing.assert_allclose(p, np.tile(p[:3], 4), rtol=1e-12)
        assert p[0] <= p[2] <= p[1]
    same = bound(reg, 12).norm_prox(np.full(12, 2.0), 0.1).norms
    np.testing.assert_allclose(same, same[0], rtol=1e-12)


@every_proximal
def test_all_norms_vanish_up_to_the_entry_scale_and_not_beyond(reg: Regularizer) -> None:
    # p = 0 if and only if n / step is a slope of Omega at zero.
    reg, q, step = bound(reg, 7), norms_of(7, seed=2) ** 2, 0.3
    scale = reg.entry_scale(q)
    if scale == 0.0:
        assert np.any(reg.norm_prox(1e-6 * np.sqrt(q), step).norms)
        return
    edge = step * scale * np.sqrt(q)
    assert not np.any(reg.norm_prox((1.0 - 1e-12) * edge, step).norms)
    p = reg.norm_prox((1.0 + 1e-9) * edge, step).norms
    assert 0.0 < p.max() < 1e-7


@pytest.mark.parametrize("reg", [r for r in REGULARIZERS if r.convex], ids=repr)
def test_entry_scale_is_where_the_dual_penalty_begins(reg: Regularizer) -> None:
    reg, q = bound(reg, 7), norms_of(7, seed=4) ** 2
    scale = reg.entry_scale(q)
    least = reg.dual_penalty(0.0 * q)  # not zero where a price is never zero
    assert reg.dual_penalty(((1.0 + 1e-6) * scale + 1e-3 * (scale == 0)) ** 2 * q) > least
    if scale > 0:
        assert reg.dual_penalty(((1.0 - 1e-6) * scale) ** 2 * q) == least
        assert reg.entry_scale(4.0 * q) == pytest.approx(0.5 * scale, rel=1e-13)
        assert reg.entry_scale(0.0 * q) == np.inf


def test_who_can_leave_out_every_kernel() -> None:
    q = np.array([1.0, 8.0])
    assert L1(weight=1.0).entry_scale(q) == 0.5
    assert ElasticNet(weight=2.0, l1_ratio=0.5).entry_scale(q) == 0.5
    assert BlockNorm(1, weight=1.0).entry_scale(q) == 0.5
    for reg in (ElasticNet(l1_ratio=0.0), Simplex(), LpBall(2.0), SquaredLp()):
        assert reg.entry_scale(q) == 0.0


def same_answer(left: NormProx, right: NormProx, tolerance: float) -> None:
    size = float(left.norms.max())
    np.testing.assert_allclose(left.norms, right.norms, atol=tolerance * size)
    np.testing.assert_allclose(jacobian(left), jacobian(right), atol=100 * tolerance)


@pytest.mark.parametrize("step", [1e-3, 0.2, 50.0])
def test_special_cases_are_one_another(step: float) -> None:
    n = norms_of(40, seed=8)
    same_answer(LpBall(1.0).norm_prox(n, step), Simplex().norm_prox(n, step), 1e-15)
    l1 = L1(0.3).norm_prox(0.3 * n + step, step)
    for reg in (BlockNorm(1, 3.0, 0.3), BlockNorm(5, 1.0, 0.3)):
        same_answer(reg.norm_prox(0.3 * n + step, step), l1, 1e-13)
    assert BlockNorm(1, 3.0, 0.3).norm_prox(n, step).coupling.shape[1] == 0
    same_answer(LpBall(1.0 + 1e-10).norm_prox(n, step), Simplex().norm_prox(n, step), 1e-7)
    same_answer(SquaredLp(1.0 + 1e-10).norm_prox(n, step), SquaredLp(1.0).norm_prox(n, step), 1e-7)
    # With an exponent without end, Omega is that of equal weights 1.
    np.testing.assert_allclose(LpBall(1e15).norm_prox(n, step).norms, n / (1 + step), rtol=1e-12)


def test_groups_in_any_order_are_solved_as_each_would_be_alone() -> None:
    rng = np.random.default_rng(0)
    n, labels = 3.0 * norms_of(300, seed=9), rng.integers(0, 40, 300)
    labels[0] = 99  # a group of one kernel
    together = BlockNorm(labels.tolist(), 1.7, 0.4).norm_prox(n, 1.1)
    J = jacobian(together)
    used = 0
    for g in np.unique(labels):
        of = np.flatnonzero(labels == g)
        alone = BlockNorm([0] * len(of), 1.7, 0.4).norm_prox(n[of], 1.1)
        np.testing.assert_allclose(together.norms[of], alone.norms, rtol=1e-12)
        np.testing.assert_allclose(J[np.ix_(of, of)], jacobian(alone), atol=1e-12)
        J[np.ix_(of, of)] = 0.0
        used += np.count_nonzero(alone.norms) > 1
    assert not np.any(J)
    # Some groups are left out as a whole; those of one kernel need no column.
    assert 0 < used < 40
    assert together.coupling.shape[1] == used


def test_a_power_of_4_thirds_of_its_own_norm_couples_nothing() -> None:
    # r = 4/3 for p = 2: Omega is a sum over kernels.
    assert SquaredLp(2.0).norm_prox(norms_of(9), 0.3).coupling.shape[1] == 0
    assert SquaredLp(2.1).norm_prox(norms_of(9), 0.3).coupling.shape[1] == 1


@every_proximal
def test_many_kernels_of_very_different_norms(reg: Regularizer) -> None:
    reg = bound(reg, 3000)
    n = np.exp(6.0 * np.random.default_rng(0).normal(size=3000))
    for step in (1e-4, 1.0, 1e4):
        p = reg.norm_prox(n, step).norms
        assert gap(reg, n, step, p) < 1e-13
        assert_stationary(reg, n, step, p)


PAIRED = [LpBall(1.3), LpBall(5.0), SquaredLp(1.5), BlockNorm(2, 2.5), ElasticNet(), Simplex()]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    arrays(np.float64, 6, elements=st.one_of(st.just(0.0), st.floats(1e-9, 1e9))),
    st.floats(1e-6, 1e6),
    st.sampled_from(PAIRED),
)
def test_any_norms_and_steps(n: np.ndarray, step: float, reg: Regularizer) -> None:
    shrunk = reg.norm_prox(n, step)
    assert gap(reg, n, step, shrunk.norms) < 3e-14
    assert np.all(np.isfinite(jacobian(shrunk)))
