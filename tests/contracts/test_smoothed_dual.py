"""The smoothed dual of SpicyMKL: its formula, its derivatives, every way to solve for a step."""

from __future__ import annotations

import numpy as np
import pytest
from thinned import thinned

import kernelweave.solvers.newton_system as newton_system
from kernelweave import sample_ids
from kernelweave.bank import DenseBank, FactoredBank
from kernelweave.combine import WeightedSum
from kernelweave.kernels import KernelSet, from_matrices
from kernelweave.linear_systems import cholesky, with_low_rank
from kernelweave.losses import get_loss
from kernelweave.problem import Problem
from kernelweave.regularizers import L1, BlockNorm, ElasticNet, LpBall, Simplex, SquaredLp
from kernelweave.root_search import zero_of_slope
from kernelweave.solvers.conjugate_terms import DirectTerm, SlackTerm, conjugate_term
from kernelweave.solvers.dual_model import DualModel
from kernelweave.solvers.newton_system import newton_direction
from kernelweave.solvers.smoothed_dual import Components, Place, SmoothedDual, _Segment

N, RANKS = 9, (1, 2, 3, 3, 2, 1)
GAMMA, LEVEL = 2.0, 0.7
REGULARIZERS = [
    Simplex(),
    L1(8.0),
    ElasticNet(8.0, 0.8),
    LpBall(1.2),
    SquaredLp(1.5, 0.8),
    BlockNorm(2, 2.0, 8.0),
    BlockNorm(3, 1.3, 8.0),
]
every_proximal = pytest.mark.parametrize("regularizer", REGULARIZERS, ids=repr)
DIRECT, SLACK = (
    ["logistic", "smooth_hinge", "squared"],
    ["hinge", "epsilon_insensitive", "squared_hinge"],
)
every_loss = pytest.mark.parametrize("name", [*DIRECT, *SLACK])
# Half of all combinations, with every pair of loss, regularizer and number of tasks.
every_setting = pytest.mark.parametrize(
    ("name", "regularizer", "T"), thinned([*DIRECT, *SLACK], REGULARIZERS, [1, 2]), ids=str
)


class Setting:
    """A smoothed dual in the middle of a fit, and phi written out for it (eq. 7)."""

    def __init__(self, name, regularizer, T):
        rng = np.random.default_rng(1)
        self.Ks = [F.T @ F for F in (rng.normal(size=(r, N)) for r in RANKS)]
        loss = get_loss(name)
        y = rng.normal(size=(T, N))
        if loss.task == "classification":
            y = np.sign(y)
        C = rng.uniform(0.5, 2.0, size=(T, N))
        bank = DenseBank().from_matrices(self.Ks)
        self.problem = Problem(bank, y, C, loss, regularizer, WeightedSum()).bound()
        # Components of the last outer step: kernels 1, 3 and 4 were in use.
        used = np.array([1, 3, 4])
        self.alpha = np.zeros((len(self.Ks), T, N))
        self.alpha[used] = 0.3 * rng.normal(size=(3, T, N))
        fitted = np.einsum("kij,ktj->kti", self.Ks, self.alpha)
        norms = np.sqrt(np.einsum("kti,kti->k", fitted, self.alpha))
        self.intercept = rng.normal(size=T)
        low, high = loss.domain(y, C)
        low, high = np.maximum(low, -2.0), np.minimum(high, 2.0)
        self.rho = low + rng.uniform(0.1, 0.9, size=(T, N)) * (high - low)
        z = rng.normal(size=(T, N))
        self.term = conjugate_term(self.problem, z, self.rho)
        if isinstance(self.term, SlackTerm):
            self.term = SlackTerm(self.problem, z, 0.9)
        components = Components(used, fitted[used], norms[used])
        kernels = np.arange(len(self.Ks))
        self.dual = SmoothedDual(
            self.problem, self.term, kernels, components, self.intercept, GAMMA, LEVEL
        )

    def place(self, rho):
        return Place(self.dual, rho, self.problem.bank.matvec(rho, self.dual.kernels))

    def square(self, v):
        return np.einsum("kti,kij,ktj->", v, self.Ks, v)

    def phi(self, rho, loss=None):
        v = self.alpha + GAMMA * rho
        norms = np.sqrt(np.einsum("kti,kij,ktj->k", v, self.Ks, v))
        omega = self.problem.regularizer
        p = omega.norm_prox(norms, GAMMA).norms
        kernels = (p @ norms - 0.5 * p @ p) / GAMMA - omega.omega(p)
        level = self.intercept + LEVEL * rho.sum(axis=1)
        loss = self.loss(rho) if loss is None else loss
        return loss + kernels + level @ level / (2 * LEVEL)

    def loss(self, rho):
        """The conjugate itself, or the maximum over decision values of section 3.3."""
        problem, term = self.problem, self.term
        if isinstance(term, DirectTerm):
            return problem.dual_loss(rho)
        grid = np.linspace(-8, 8, 40_001)[:, None]
        total = 0.0
        for t, i in np.ndindex(rho.shape):
            value = problem.loss.value(problem.y[t, i], grid, problem.C[t, i])
            near = (grid - term.centre[t, i]) ** 2 / (2 * term.penalty)
            total += float(np.max(-rho[t, i] * grid - value - near))
        return total


def differences(f, rho, h=1e-6):
    """Derivatives of f, one for each entry of rho, stacked last."""
    out = []
    for i in range(rho.size):
        step = np.zeros(rho.size)
        step[i] = h
        step = step.reshape(rho.shape)
        out.append((f(rho + step) - f(rho - step)) / (2 * h))
    return np.stack(out, axis=-1)


@every_proximal
@pytest.mark.parametrize("name", DIRECT)
def test_the_gradient_is_that_of_phi(name, regularizer):
    here = Setting(name, regularizer, 2)
    expected = differences(here.phi, here.rho)
    found = here.place(here.rho).gradient().ravel()
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("name", SLACK)
def test_the_gradient_with_slack_variables(name):
    """But for the error of a maximum over a grid."""
    here = Setting(name, Simplex(), 1)
    expected = differences(here.phi, here.rho, 1e-2)
    found = here.place(here.rho).gradient().ravel()
    np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max())


@every_proximal
@pytest.mark.parametrize("name", ["logistic", "hinge"])
def test_values_and_slopes_along_a_segment(name, regularizer):
    setting = Setting(name, regularizer, 2)
    rng = np.random.default_rng(2)
    here = setting.place(setting.rho)
    delta = 0.05 * rng.normal(size=here.rho.shape)
    segment = _Segment(here, delta, setting.problem.bank.matvec(delta, setting.dual.kernels))
    for t in (0.0, 0.4, 1.0):
        slope = (segment.value(t + 1e-6) - segment.value(t - 1e-6)) / 2e-6
        assert segment.slope(t) == pytest.approx(slope, rel=1e-5, abs=1e-6)
        there = setting.place(here.rho + t * delta)
        assert segment.slope(t) == pytest.approx(float(np.sum(there.gradient() * delta)))
        if name == "logistic":
            assert segment.value(t) == pytest.approx(setting.phi(there.rho))
    assert segment.slope(0.0) <= segment.slope(0.4) <= segment.slope(1.0)


@every_setting
def test_the_newton_direction_undoes_the_gradient(name, regularizer, T):
    """Against differences of the gradient: H delta = -gradient, whatever H is made of."""
    setting = Setting(name, regularizer, T)
    here = setting.place(setting.rho)
    H = differences(lambda rho: setting.place(rho).gradient().ravel(), setting.rho)
    np.testing.assert_allclose(H, H.T, atol=1e-5 * np.abs(H).max())
    gradient = here.gradient()
    # Samples in a corner of the loss have no curvature of their own: some for all of them.
    D = setting.term.curvature(here.rho, here.z) + 0.1
    H += 0.1 * np.eye(len(H))
    delta = newton_direction(setting.problem.bank, D, here.active(), gradient)
    np.testing.assert_allclose(
        H @ delta.ravel(), -gradient.ravel(), atol=2e-4 * np.abs(gradient).max()
    )


@pytest.mark.parametrize(
    ("name", "regularizer", "T", "route"),
    thinned(["logistic", "hinge"], REGULARIZERS, [1, 2], ["products", "many products", "factors"]),
    ids=str,
)
def test_every_route_gives_the_dense_direction(monkeypatch, name, regularizer, T, route):
    setting = Setting(name, regularizer, T)
    here = setting.place(setting.rho)
    # A sample of weight zero cannot move.
    D = setting.term.curvature(here.rho, here.z) + 0.01
    D[0, 3] = np.inf
    gradient, bank = here.gradient(), setting.problem.bank
    dense = newton_direction(bank, D, here.active(), gradient)
    assert dense[0, 3] == 0.0 and np.all(dense[0, :3] != 0.0)
    if route == "factors":
        monkeypatch.setattr(newton_system, "_LOW_RANK", 10.0)
        kernels = KernelSet.build(from_matrices(setting.Ks), sample_ids(N), None)
        bank = FactoredBank(1e-12).build(kernels)
    else:
        monkeypatch.setattr(newton_system, "CHOLESKY_LIMIT", 0)
        bank.matrix_limit = 0 if route == "many products" else 1000
    other = newton_direction(bank, D, here.active(), gradient)
    np.testing.assert_allclose(other, dense, atol=1e-3 * np.abs(dense).max())
    assert other[0, 3] == 0.0


@every_setting
def test_the_model_with_corners_starts_with_the_newton_direction(name, regularizer, T):
    """It is phi to second order."""
    setting = Setting(name, regularizer, T)
    here = setting.place(setting.rho)
    D = setting.term.curvature(here.rho, here.z) + 0.1
    gradient = here.gradient()
    expected = newton_direction(setting.problem.bank, D, here.active(), gradient)
    found = DualModel(here)._newton(D.ravel(), here.prox, gradient.ravel())
    np.testing.assert_allclose(found, expected.ravel(), atol=1e-4 * np.abs(expected).max())


@every_setting
def test_steps_reach_the_minimum(name, regularizer, T):
    """What comes back are the next components (Table 1), and their proximal objective proves it."""
    setting = Setting(name, regularizer, T)
    term, accuracy = setting.term, 1e-8
    found = setting.dual.minimise(setting.rho, accuracy, 40)
    assert found.converged
    kernels, p = found.components.kernels, found.components.norms
    v = (setting.alpha + GAMMA * found.rho)[kernels]
    K = np.array(setting.Ks)[kernels]
    length = np.sqrt(np.einsum("kti,kij,ktj->k", v, K, v))
    new = np.zeros_like(setting.alpha)
    new[kernels] = (p / length)[:, None, None] * v
    fitted = np.einsum("kij,ktj->kti", setting.Ks, new)
    np.testing.assert_allclose(found.components.fitted, fitted[kernels])
    np.testing.assert_allclose(found.intercept, setting.intercept + LEVEL * found.rho.sum(axis=1))
    norms = np.zeros(len(setting.Ks))
    norms[kernels] = p
    primal = (
        term.primal(fitted.sum(axis=0) + found.intercept[:, None])
        + setting.problem.regularizer.omega(norms)
        + setting.square(new - setting.alpha) / (2 * GAMMA)
        + np.sum((found.intercept - setting.intercept) ** 2) / (2 * LEVEL)
    )
    constant = setting.square(setting.alpha) / (
        2 * GAMMA
    ) + setting.intercept @ setting.intercept / (2 * LEVEL)
    dual = constant - setting.phi(found.rho, term.value(found.rho))
    assert -1e-10 <= primal - dual <= 2 * accuracy


def test_preconditioners_are_inverses():
    """Conjugate gradients would hide a bad one, but not what it costs."""
    rng = np.random.default_rng(0)
    base, V, v = rng.uniform(0.5, 2.0, N), rng.normal(size=(3, N)), rng.normal(size=N)
    s = np.array([2.0, -0.05, 0.0])
    exact = np.linalg.solve(np.diag(base) + (V.T * s) @ V, v)
    solve = with_low_rank(lambda x: (x.T / base).T, V, s)
    np.testing.assert_allclose(solve(v), exact)
    K = V.T @ V
    exact = np.linalg.solve(K + np.diag(base), v)
    np.testing.assert_allclose(cholesky(K.copy(), base)(v), exact, rtol=1e-9)


@every_loss
def test_the_gap_of_a_term_is_never_negative_and_zero_at_its_own_decision(name):
    setting = Setting(name, Simplex(), 2)
    z = setting.term.decision(setting.rho)
    assert setting.term.gap(setting.rho, z) == pytest.approx(0.0, abs=1e-9)
    rng = np.random.default_rng(0)
    for _ in range(20):
        assert setting.term.gap(setting.rho, z + rng.normal(size=z.shape)) > 0


def test_steep_losses_keep_their_steps_inside():
    setting = Setting("logistic", Simplex(), 1)
    term, y, C = setting.term, setting.problem.y, setting.problem.C
    assert isinstance(term, DirectTerm)
    rho = 0.5 * C * y
    t = term.reach(rho, C * y)
    assert 0.45 < t < 0.5 and np.isfinite(term.value(rho + t * C * y))
    assert term.reach(rho, 1e-3 * C * y) == 1.0
    ends = term.inside(C * y)
    assert np.all(np.isfinite(term.decision(ends))) and np.all(np.abs(ends) < C)
    free = Setting("squared", Simplex(), 1).term
    assert free.reach(rho, 1e9 * C) == 1.0


def test_the_search_finds_the_zero_of_a_rising_slope():
    for zero in (0.003, 0.2, 0.77):
        t = zero_of_slope(lambda t, zero=zero: np.sinh(t - zero), -np.sinh(zero), lambda t: True)
        assert abs(np.sinh(t - zero)) <= 0.1 * np.sinh(zero)
    assert zero_of_slope(lambda t: -1.0, -1.0, lambda t: True, 0.4) == 0.4
    # A corner at 0.25: only before it has the function fallen.
    corner = zero_of_slope(lambda t: -1.0 if t < 0.25 else 0.05, -1.0, lambda t: t < 0.2500001, 1.0)
    assert corner == pytest.approx(0.25, abs=1e-5)
