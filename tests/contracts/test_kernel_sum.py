"""The sum of kernels in a Newton step: systems whose samples are hard or easy, in every form."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

from kernelweave import MKLClassifier, sample_ids
from kernelweave.bank import DenseBank, FactoredBank
from kernelweave.kernels import RBF, from_matrices
from kernelweave.operators import ComputedOperator
from kernelweave.solvers.kernel_sum import formed_sum, kernel_sum, product_sum

N = 120
EVERY_KIND = pytest.mark.parametrize("kind", ["corners", "all hard", "all easy"])


def parts(T=1, seed=0):
    """A smooth kernel, rows of low rank of very different sizes, a right-hand side."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 2))
    K = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(axis=2)) + 1e-3 * np.eye(N)
    V, s = rng.normal(size=(3, T * N)), np.array([1e5, -1e-3, 0.0])
    return K, V, s, rng.normal(size=T * N)


def curvatures(kind, T=1, seed=1):
    rng = np.random.default_rng(seed)
    if kind == "corners":
        return np.where(rng.random(T * N) < 0.3, 0.0, 20.0)
    if kind == "all hard":
        return rng.uniform(0.01, 0.3, T * N)
    return rng.uniform(4.0, 50.0, T * N)


def dense_answer(K, D, V, s, g):
    return -np.linalg.solve(np.kron(np.eye(len(g) // N), K) + np.diag(D) + (V.T * s) @ V, g)


class Counted:
    """A sum that counts its products."""

    def __init__(self, matrix, **settings):
        formed = formed_sum(matrix, **settings)
        self.products = 0

        def times(v):
            self.products += 1
            return formed.times(v)

        self.sum = replace(formed, times=times)
        self.solve, self.product = self.sum.solve, self.sum.product


@pytest.mark.parametrize("T", [1, 3])
@EVERY_KIND
def test_the_dense_answer_in_a_few_products(kind, T):
    K, V, s, g = parts(T)
    D = curvatures(kind, T)
    exact, size = dense_answer(K, D, V, s, g), np.linalg.norm(g)
    system = Counted(K)
    found = system.solve(D, V, s, g)
    left = (found - exact) * D + system.product(found - exact) + (s * (V @ (found - exact))) @ V
    assert np.linalg.norm(left) <= 2e-3 * size
    assert system.products <= {"corners": 10, "all hard": 5, "all easy": 12}[kind]


def test_more_hard_samples_than_a_factor_takes():
    K, V, s, g = parts()
    D = curvatures("all hard")
    system = Counted(K, most_hard=40)
    exact, found = dense_answer(K, D, V, s, g), system.solve(D, V, s, g, 1e-9)
    np.testing.assert_allclose(found, exact, atol=1e-5 * np.abs(exact).max())
    assert system.products <= N


@pytest.mark.parametrize("T", [1, 2])
@EVERY_KIND
def test_factors_and_products_give_the_answer_of_the_matrix(kind, T):
    """Of these kernels the last has no low rank, so that two are solved through factors."""
    rng = np.random.default_rng(2)
    Ks = [F.T @ F for F in rng.normal(size=(2, 3, N))] + [parts()[0]]
    dense = DenseBank().from_matrices(Ks)
    factored = FactoredBank(1e-12).build(
        ComputedOperator.build(from_matrices(Ks), sample_ids(N), normalize=None)
    )
    weights = np.array([0.5, 2.0])
    _, V, s, g = parts(T)
    D = curvatures(kind, T) + 0.1
    exact = dense_answer(np.tensordot(weights, Ks[:2], axes=1), D, V, s, g)
    two, forms = np.array([0, 1]), {}
    forms["matrix"] = kernel_sum(dense, two, weights, T)
    forms["factors"] = kernel_sum(factored, two, weights, T)
    forms["products"] = product_sum(dense, two, weights)
    assert forms["matrix"].matrix is not None and forms["factors"].matrix is None
    assert kernel_sum(factored, np.arange(3), np.ones(3), T).matrix is not None
    for form in forms.values():
        found = form.solve(D, V, s, g, 1e-9)
        np.testing.assert_allclose(found, exact, atol=1e-5 * np.abs(exact).max())


def test_no_kernel_in_use():
    """What is left are the curvatures and the parts of low rank."""
    _, V, s, g = parts()
    nothing = kernel_sum(
        DenseBank().from_matrices([np.eye(N)]), np.zeros(0, dtype=np.intp), np.zeros(0), 1
    )
    D = curvatures("all easy")
    exact = dense_answer(np.zeros((N, N)), D, V, s, g)
    np.testing.assert_allclose(nothing.solve(D, V, s, g), exact, atol=1e-2 * np.abs(exact).max())
    assert np.all(np.isfinite(nothing.solve(np.zeros(N), V, s, g)))


def test_a_matrix_is_formed_where_there_is_room_for_it():
    bank, one = DenseBank().from_matrices([np.eye(4)]), (np.array([0]), np.ones(1))
    bank.weighted = lambda d: np.eye(4)
    bank.diagonal = lambda kernels: np.ones((1, 4))

    def formed(n_tasks=1):
        return kernel_sum(bank, *one, n_tasks).matrix is not None

    bank.n = 6400
    bank.work_bytes = 2e9
    assert formed() and not formed(n_tasks=8)
    bank.work_bytes = 0.5e9
    assert not formed()
    bank.n = 3000
    assert formed()


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_beyond_the_samples_of_one_factor_spicy_takes_no_more_steps(monkeypatch, loss):
    """From weights of a part of the samples, as for thousands of them, and by hard parts."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1100, 6))
    y = np.where(X[:, 0] * X[:, 1] + X[:, 2] + 0.5 * rng.normal(size=1100) > 0, 1, -1)
    kernels = [RBF(width=w).on([j, (j + 1) % 6]) for j in range(6) for w in (0.5, 2.0)]
    model = MKLClassifier(kernels, loss=loss, bank="dense", tol=1e-4)
    exact = model.set_params(solver="silp").fit(X, y).objective_
    for name, value in (("_MANY_SAMPLES", 200), ("_FEWEST_SAMPLES", 40)):
        monkeypatch.setattr(import_module("kernelweave.solvers.solve"), name, value)
    model.set_params(solver="spicy").fit(X, y)
    assert model.converged_ and model.objective_ == pytest.approx(exact, rel=2e-4)
    assert model.history_[-1].inner_iterations <= 40 and model.n_iter_ <= 8
