"""Systems whose samples are hard or easy: the answer, and what it takes."""

from __future__ import annotations

import numpy as np
import pytest

from kernelweave import MKLClassifier
from kernelweave.bank import DenseBank
from kernelweave.kernels import RBF
from kernelweave.solvers import coarse, dual_model, split_system
from kernelweave.solvers.dual_model import model_serves
from kernelweave.solvers.split_system import SplitSystem

N = 120


def parts(seed=0):
    """A smooth kernel, rows of low rank of very different sizes, a right-hand side."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 2))
    B = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(axis=2)) + 1e-3 * np.eye(N)
    V, s = rng.normal(size=(3, N)), np.array([1e5, -1e-3, 0.0])
    return B, V, s, rng.normal(size=N)


def curvatures(kind, seed=1):
    rng = np.random.default_rng(seed)
    if kind == "corners":
        return np.where(rng.random(N) < 0.3, 0.0, 20.0)
    if kind == "all hard":
        return rng.uniform(0.01, 0.3, N)
    return rng.uniform(4.0, 50.0, N)


@pytest.fixture
def products(monkeypatch):
    """Counts products with the whole matrix, by the conjugate gradients that take them."""
    counts, iterate = [], split_system.solve_by_products

    def watched(product, *args):
        counts.append(0)

        def counted(v):
            counts[-1] += 1
            return product(v)

        return iterate(counted, *args)

    monkeypatch.setattr(split_system, "solve_by_products", watched)
    return counts


@pytest.mark.parametrize("kind", ["corners", "all hard", "all easy"])
def test_the_dense_answer_in_a_few_products(kind, products, monkeypatch):
    monkeypatch.setattr(split_system, "_TOL", 1e-9)
    B, V, s, g = parts()
    D = curvatures(kind)
    found = SplitSystem(B).solve(D, V, s, g)
    exact = -np.linalg.solve(B + np.diag(D) + (V.T * s) @ V, g)
    np.testing.assert_allclose(found, exact, atol=1e-5 * np.abs(exact).max())
    assert products[0] <= {"corners": 12, "all hard": 4, "all easy": 25}[kind]


def test_samples_that_cannot_move_stay(monkeypatch):
    monkeypatch.setattr(split_system, "_TOL", 1e-9)
    B, V, s, g = parts()
    for kind in ("corners", "all hard", "all easy"):
        D = curvatures(kind)
        D[[3, 50]] = np.inf
        found = SplitSystem(B).solve(D, V, s, g)
        free = np.flatnonzero(np.isfinite(D))
        H = (B + (V.T * s) @ V)[np.ix_(free, free)] + np.diag(D[free])
        exact = -np.linalg.solve(H, g[free])
        np.testing.assert_allclose(found[free], exact, atol=1e-5 * np.abs(exact).max())
        assert not found[[3, 50]].any()


def test_a_factor_serves_similar_curvatures(monkeypatch):
    made, factor = [], split_system.cholesky
    monkeypatch.setattr(
        split_system, "cholesky", lambda *args: made.append(len(args[1])) or factor(*args)
    )
    B, V, s, g = parts()
    D = curvatures("all hard")
    system = SplitSystem(B)
    for scale in (1.0, 1.5, 0.8):
        system.solve(scale * D, V, s, g)
    assert made == [N]
    system.solve(curvatures("corners"), V, s, g)
    assert len(made) == 2 and made[1] < N


def test_more_hard_samples_than_a_factor_takes(monkeypatch, products):
    monkeypatch.setattr(split_system, "_MOST_HARD", 40)
    monkeypatch.setattr(split_system, "_TOL", 1e-9)
    B, V, s, g = parts()
    D = curvatures("all hard")
    found = SplitSystem(B).solve(D, V, s, g)
    exact = -np.linalg.solve(B + np.diag(D) + (V.T * s) @ V, g)
    np.testing.assert_allclose(found, exact, atol=1e-5 * np.abs(exact).max())
    assert products[0] <= N


def test_a_model_is_formed_where_there_is_room_for_it():
    bank, kernels = DenseBank().from_matrices([np.eye(4)]), np.array([0])
    bank.n = 6400
    bank.work_bytes = 4e9
    assert model_serves(bank, 1, kernels) and not model_serves(bank, 4, kernels)
    bank.work_bytes = 0.5e9
    assert not model_serves(bank, 1, kernels)
    bank.n = 3000
    assert model_serves(bank, 1, kernels)


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_beyond_the_samples_of_one_factor_spicy_takes_no_more_steps(monkeypatch, loss):
    """From weights of a part of the samples, as for thousands of them, and by hard parts."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 6))
    y = np.where(X[:, 0] * X[:, 1] + X[:, 2] + 0.5 * rng.normal(size=240) > 0, 1, -1)
    kernels = [RBF(width=w).on([j, (j + 1) % 6]) for j in range(6) for w in (0.5, 2.0)]
    model = MKLClassifier(kernels, solver="spicy", loss=loss, bank="dense", tol=1e-4)
    whole = model.fit(X, y).objective_
    for module, name, value in (
        (coarse, "_MANY_SAMPLES", 200),
        (coarse, "_FEWEST_SAMPLES", 40),
        (dual_model, "WHOLE_LIMIT", 20),
        (dual_model, "CHOLESKY_LIMIT", 20),
    ):
        monkeypatch.setattr(module, name, value)
    model.fit(X, y)
    assert model.converged_ and model.objective_ == pytest.approx(whole, rel=2e-4)
    assert model.history_[-1].inner_iterations <= 40 and model.n_iter_ <= 8
