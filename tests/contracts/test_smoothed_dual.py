"""The smoothed dual of SpicyMKL: its formula, its derivatives, every way to solve for a step."""

from __future__ import annotations

import numpy as np
import pytest
from thinned import thinned

import kernelweave.linear_systems as linear_systems
from kernelweave.bank import DenseBank
from kernelweave.combine import WeightedSum
from kernelweave.losses import get_loss
from kernelweave.problem import Problem
from kernelweave.regularizers import L1, BlockNorm, ElasticNet, LpBall, Simplex, SquaredLp
from kernelweave.root_search import zero_of_slope
from kernelweave.solvers.smoothed_dual import (
    Components,
    DualModel,
    Place,
    SmoothedDual,
    SmoothedLoss,
)

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
LOSSES = ["logistic", "smooth_hinge", "squared", "hinge", "epsilon_insensitive", "squared_hinge"]
every_loss = pytest.mark.parametrize("name", LOSSES)
# Half of all combinations, with every pair of loss, regularizer and number of tasks.
every_setting = pytest.mark.parametrize(
    ("name", "regularizer", "T"), thinned(LOSSES, REGULARIZERS, [1, 2]), ids=str
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
        self.term = SmoothedLoss(self.problem, z, 0.9)
        components = Components(used, fitted[used], norms[used])
        kernels = np.arange(len(self.Ks))
        self.dual = SmoothedDual(
            self.problem, self.term, kernels, components, self.intercept, GAMMA, LEVEL
        )

    def place(self, rho):
        return Place(self.dual, rho, self.problem.bank.apply(rho, self.dual.kernels))

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
        """The maximum over decision values of section 3.3."""
        problem, term = self.problem, self.term
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


@every_loss
def test_the_smoothed_loss_is_the_maximum_over_decision_values(name):
    """But for the error of a maximum over a grid; and its slopes are the decision values."""
    here = Setting(name, Simplex(), 1)
    assert here.term.value(here.rho) == pytest.approx(here.loss(here.rho), abs=1e-3)
    slopes = differences(here.term.value, here.rho)
    np.testing.assert_allclose(-here.term.decision(here.rho).ravel(), slopes, atol=1e-5)


@every_setting
def test_the_gradient_is_that_of_phi(name, regularizer, T):
    here = Setting(name, regularizer, T)
    expected = differences(lambda rho: here.phi(rho, here.term.value(rho)), here.rho)
    found = here.place(here.rho).gradient().ravel()
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


@every_proximal
@pytest.mark.parametrize("name", ["logistic", "hinge"])
def test_slopes_along_a_segment(name, regularizer):
    setting = Setting(name, regularizer, 2)
    rng = np.random.default_rng(2)
    here = setting.place(setting.rho)
    delta = 0.05 * rng.normal(size=here.rho.shape)
    slope = here.slope_along(delta, setting.problem.bank.apply(delta, setting.dual.kernels))
    for t in (0.0, 0.4, 1.0):
        there = setting.place(here.rho + t * delta)
        assert slope(t) == pytest.approx(float(np.sum(there.gradient() * delta)))
    assert slope(0.0) <= slope(0.4) <= slope(1.0)


@every_setting
def test_the_newton_direction_undoes_the_gradient(name, regularizer, T):
    """Against differences of the gradient: H delta = -gradient, whatever H is made of."""
    setting = Setting(name, regularizer, T)
    here = setting.place(setting.rho)
    H = differences(lambda rho: setting.place(rho).gradient().ravel(), setting.rho)
    np.testing.assert_allclose(H, H.T, atol=1e-5 * np.abs(H).max())
    gradient = here.gradient().ravel()
    # Samples in a corner of the loss have no curvature of their own: some for all of them.
    D = setting.term.curvature(here.rho, here.z).ravel() + 0.1
    H += 0.1 * np.eye(len(H))
    delta = DualModel(here)._newton(D, here.prox, gradient)
    # To what conjugate gradients leave, a thousandth.
    np.testing.assert_allclose(H @ delta, -gradient, atol=1.1e-3 * np.linalg.norm(gradient))


@every_setting
def test_steps_reach_the_minimum(name, regularizer, T):
    """What comes back are the next components (Table 1), and their proximal objective proves it."""
    setting = Setting(name, regularizer, T)
    term, accuracy = setting.term, 1e-8
    found, _, gap = setting.dual.minimise(setting.rho, accuracy, 40)
    assert gap <= accuracy
    components = found.components()
    kernels, p = components.kernels, components.norms
    v = (setting.alpha + GAMMA * found.rho)[kernels]
    K = np.array(setting.Ks)[kernels]
    length = np.sqrt(np.einsum("kti,kij,ktj->k", v, K, v))
    new = np.zeros_like(setting.alpha)
    new[kernels] = (p / length)[:, None, None] * v
    fitted = np.einsum("kij,ktj->kti", setting.Ks, new)
    np.testing.assert_allclose(components.fitted, fitted[kernels])
    np.testing.assert_allclose(found.level, setting.intercept + LEVEL * found.rho.sum(axis=1))
    norms = np.zeros(len(setting.Ks))
    norms[kernels] = p
    primal = (
        term.primal(fitted.sum(axis=0) + found.level[:, None])
        + setting.problem.regularizer.omega(norms)
        + setting.square(new - setting.alpha) / (2 * GAMMA)
        + np.sum((found.level - setting.intercept) ** 2) / (2 * LEVEL)
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
    solve = linear_systems.with_low_rank(lambda x: (x.T / base).T, V, s)
    np.testing.assert_allclose(solve(v), exact)
    K = V.T @ V
    exact = np.linalg.solve(K + np.diag(base), v)
    np.testing.assert_allclose(linear_systems.cholesky(K.copy(), base)(v), exact, rtol=1e-9)


@every_loss
def test_the_gap_of_a_term_is_never_negative_and_zero_at_its_own_decision(name):
    setting = Setting(name, Simplex(), 2)
    z = setting.term.decision(setting.rho)
    assert setting.term.gap(setting.rho, z) == pytest.approx(0.0, abs=1e-9)
    rng = np.random.default_rng(0)
    for _ in range(20):
        assert setting.term.gap(setting.rho, z + rng.normal(size=z.shape)) > 0


def test_the_search_finds_the_zero_of_a_rising_slope():
    for zero in (0.003, 0.2, 0.77):
        t = zero_of_slope(lambda t, zero=zero: np.sinh(t - zero), -np.sinh(zero))
        assert abs(np.sinh(t - zero)) <= 0.1 * np.sinh(zero)
    assert zero_of_slope(lambda t: -1.0, -1.0) == 1.0
    # A small slope uphill all the way after a corner at 0.01: the end is above the beginning.
    for up in (0.02, 0.05):
        corner = zero_of_slope(lambda t, up=up: -1.0 if t < 0.01 else up, -1.0)
        assert 0.0 < corner <= 0.01 + 0.01 / up
