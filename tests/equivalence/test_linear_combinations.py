"""Combinations that are linear in the weights are solved by every solver for what they are."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from kernelweave import MKLClassifier
from kernelweave.bank import DenseBank, FactoredBank, LazyBank
from kernelweave.combine import Combination, CombinedOperator, PolynomialMixture, WeightedSum
from kernelweave.errors import InvalidInputError
from kernelweave.kernels import RBF, Linear
from kernelweave.losses import get_loss
from kernelweave.operators import ComputedOperator, DenseOperator
from kernelweave.problem import Problem
from kernelweave.regularizers import L1, Fixed, LpBall, Simplex
from kernelweave.solvers import (
    MWU,
    PGD,
    SILP,
    SPG,
    ActiveSet,
    Align,
    Limits,
    SILPChunking,
    Spicy,
    Uniform,
    get_solver,
    recompute,
    solve,
)
from kernelweave.solvers.path import entry_factor

N = 60
# Kernels are scaled by these; their order of alignment with the targets changes with it.
SCALES = np.array([4.0, 0.05, 1.0, 0.3, 2.0])


class Half(Combination):
    """K(d) = 1/2 sum_k d_k K_k."""

    linear = True

    def values(self, tile, d):
        return 0.5 * tile.weighted(d)

    def derivative(self, tile, d, M):
        return 0.5 * tile.contract(M)


class Scaled(Combination):
    """K(d) = sum_k s_k d_k K_k."""

    linear = True

    def values(self, tile, d):
        return tile.weighted(SCALES * d)

    def derivative(self, tile, d, M):
        return SCALES * tile.contract(M)


class Mixed(Combination):
    """K(d) = sum_k (A d)_k K_k: each weight has a kernel and half of the next one."""

    linear = True

    def values(self, tile, d):
        return tile.weighted(d + 0.5 * np.roll(d, 1))

    def derivative(self, tile, d, M):
        parts = tile.contract(M)
        return parts + 0.5 * np.roll(parts, -1)


class Squares(Combination):
    """K(d) = sum_k d_k K_k^2, entry by entry: linear in d, though not in the kernels."""

    linear = True

    def values(self, tile, d):
        return np.tensordot(d, tile.block() ** 2, axes=1)

    def derivative(self, tile, d, M):
        return np.einsum("kij,ij->k", tile.block() ** 2, M)


class Affine(Half):
    """K(d) = K_0 + 1/2 sum_k d_k K_k, which is not linear."""

    def values(self, tile, d):
        return 1.0 + super().values(tile, d)


MATRICES = {
    Half: lambda Ks: [0.5 * K for K in Ks],
    Scaled: lambda Ks: [s * K for s, K in zip(SCALES, Ks, strict=True)],
    Mixed: lambda Ks: [K + 0.5 * nxt for K, nxt in zip(Ks, [*Ks[1:], Ks[0]], strict=True)],
    Squares: lambda Ks: [K**2 for K in Ks],
}
ANY = [ActiveSet(), PGD(), SILP(), SPG(), Spicy()]
CASES = [
    *((solver, "hinge", Simplex()) for solver in [*ANY, MWU(), SILPChunking()]),
    *((solver, "logistic", L1(0.5)) for solver in ANY),
    *((solver, "hinge", LpBall(2.0)) for solver in (SILP(), SPG(), Spicy(), SILPChunking())),
    *((solver, "hinge", Simplex()) for solver in (Align(), Align("independent"), Uniform())),
    (MWU(), "squared_hinge", LpBall(1.0)),
    (MWU(), "hinge", Fixed(np.full(5, 0.2))),
    (MWU(0.3, "paper"), "squared_hinge", Simplex()),
]


def kernels():
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)[:N, :6]
    parts = [RBF(width=w).on(slice(i, i + 3)) for w in (1.0, 3.0) for i in (0, 3)] + [Linear()]
    return ComputedOperator.build(parts, X), np.where(y[:N] > 0, 1.0, -1.0)[None]


def pair_of_problems(combination, loss, regularizer, bank=None):
    """The problem under the combination, and under a sum of the matrices it stands for."""
    made, y = kernels()
    exact = DenseBank().build(made)
    Ks = list(exact.block(np.arange(N)))
    plain = DenseBank().from_matrices(MATRICES[type(combination)](Ks))
    C = np.full(y.shape, 2.0)
    rest = (y, C, get_loss(loss), regularizer)
    return (
        Problem(exact if bank is None else bank.build(made), *rest, combination),
        Problem(plain, *rest, WeightedSum()),
    )


@pytest.mark.parametrize(("solver", "loss", "regularizer"), CASES, ids=repr)
@pytest.mark.parametrize("combination", [Half(), Scaled(), Mixed(), Squares()], ids=repr)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_solver_agrees_with_the_matrices_it_stands_for(
    combination, solver, loss, regularizer
):
    mine, plain = pair_of_problems(combination, loss, regularizer)
    limits = Limits(tol=1e-4, max_iter=5000)
    result, expected = solve(mine, solver, limits), solve(plain, solver, limits)
    assert result.converged == expected.converged
    assert result.converged or solver == MWU(0.3, "paper")
    assert result.certificate.kind == "duality"
    low, high = expected.certificate.dual, expected.certificate.primal
    assert result.certificate.primal >= low - 1e-9 * abs(low)
    assert result.certificate.dual <= high + 1e-9 * abs(high)
    if result.converged:
        # The certificate is that of the same weights and dual variables on the matrices.
        truth = solver.prepare(plain.bound())
        again, _ = recompute(truth, result.d, result.alpha, result.intercept)
        assert result.certificate.primal == pytest.approx(again.primal, rel=1e-9)
        assert again.dual <= result.certificate.dual + 1e-9 * abs(again.dual)


@pytest.mark.parametrize(
    "bank",
    [FactoredBank(1e-3), LazyBank(), DenseBank(dtype="float32")],
    ids=["factored", "lazy", "float32"],
)
def test_inexact_banks_do_not_spoil_the_certificate(bank):
    mine, plain = pair_of_problems(Scaled(), "hinge", Simplex(), bank)
    result = solve(mine, SILP(), Limits(tol=1e-6))
    assert result.converged
    again, _ = recompute(plain.bound(), result.d, result.alpha, result.intercept)
    assert result.certificate.primal == pytest.approx(again.primal, rel=1e-9)
    assert solve(plain, SILP(), Limits(tol=1e-6)).certificate.primal == pytest.approx(
        again.primal, rel=1e-5
    )


def test_a_path_starts_where_the_scaled_kernels_enter():
    mine, plain = pair_of_problems(Scaled(), "logistic", L1(0.5))
    assert entry_factor(mine) == pytest.approx(entry_factor(plain), rel=1e-12)


@pytest.mark.parametrize("regularizer", [Simplex(), L1(0.5), LpBall(2.0), LpBall(1.0)], ids=repr)
def test_auto_chooses_as_for_a_sum(regularizer):
    mine, plain = pair_of_problems(Half(), "hinge", regularizer)
    assert get_solver("auto", mine) == get_solver("auto", plain)


def test_an_estimator_predicts_with_the_combination():
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)[:, :6]
    parts = [RBF(width=w).on(slice(i, i + 3)) for w in (1.0, 3.0) for i in (0, 3)] + [Linear()]
    model = MKLClassifier(parts, combination=Half(), C=2.0, tol=1e-6).fit(X[:100], y[:100])
    twice = MKLClassifier(parts, C=1.0, tol=1e-6).fit(X[:100], y[:100])
    # On the simplex, kernels of half the size are loss weights of half the size, twice the alpha.
    np.testing.assert_allclose(model.weights_, twice.weights_, atol=2e-3)
    np.testing.assert_allclose(
        model.decision_function(X[100:]), twice.decision_function(X[100:]), atol=1e-2
    )


@pytest.mark.parametrize("solver", [*ANY, MWU(), SILPChunking(), Align(), Uniform()], ids=repr)
def test_what_is_not_linear_is_refused(solver):
    made, y = kernels()
    bank = DenseBank().build(made)
    rest = (y, np.ones(y.shape), get_loss("hinge"), Simplex())
    with pytest.raises(InvalidInputError, match=r"Affine\(\).*linear = True.*K\(0\) is not zero"):
        solve(Problem(bank, *rest, Affine()), solver, Limits())
    if isinstance(solver, SPG | Uniform):  # They take all combinations.
        return
    with pytest.raises(InvalidInputError, match=r"sums? of kernels.*PolynomialMixture"):
        solve(Problem(bank, *rest, PolynomialMixture()), solver, Limits())


def test_a_bank_that_cannot_be_made_exact_is_refused():
    class Rough(DenseOperator):
        def error(self, v, d):
            bound = super().error(v, d)
            return type(bound)(bound.quad_missing + 1e-3, bound.product)

    bank = DenseBank().from_matrices([np.eye(4), np.ones((4, 4))])
    bank.__class__ = Rough
    with pytest.raises(InvalidInputError, match=r"Half\(\) needs exact matrices.*Rough"):
        CombinedOperator.of_linear(Half(), bank)


@pytest.mark.parametrize("combination", [Half(), Scaled(), Mixed(), Squares()], ids=repr)
def test_the_bank_answers_as_a_dense_one(combination):
    mine, plain = pair_of_problems(combination, "hinge", Simplex())
    bank, dense = mine.as_sum().bank, plain.bank
    rng = np.random.default_rng(0)
    d, idx, some = rng.random(5), np.array([3, 17, 40]), np.array([4, 1])
    out = np.empty((3, N))
    for v in (rng.normal(size=N) * (rng.random(N) < 0.5), rng.normal(size=(2, N)), np.zeros(N)):
        for chosen in (None, some):
            for ask in (
                lambda b: b.apply(v, chosen),  # noqa: B023
                lambda b: b.quad(v, chosen),  # noqa: B023
                lambda b: b.apply(v, chosen, idx),  # noqa: B023
                lambda b: b.block(idx, some, chosen),  # noqa: B023
                lambda b: b.diagonal(chosen),  # noqa: B023
            ):
                np.testing.assert_allclose(ask(bank), ask(dense), rtol=1e-11, atol=1e-11)
    for ask in (
        lambda b: b.weighted(d),
        lambda b: b.weighted(d, idx, idx),
        lambda b: b.weighted(d, idx, None, out).copy(),
        lambda b: b.select(some).weighted(d[:2]),
        lambda b: b.take(idx).weighted(d),
        lambda b: b.select(some).quad(np.ones(N)),
        lambda b: b.part(idx, some).weighted(d),
        lambda b: np.asarray(b.select(some).diagonal()),
    ):
        np.testing.assert_allclose(ask(bank), ask(dense), rtol=1e-11, atol=1e-11)
    assert (bank.n, bank.m, len(bank.select(some).names)) == (N, 5, 2)
