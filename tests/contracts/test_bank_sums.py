"""Sums over the kernels of a bank: products with a vector each, and squares."""

from __future__ import annotations

import numpy as np

from kernelweave import sample_ids
from kernelweave.bank import DenseBank, FactoredBank
from kernelweave.bayes.sums import square_factor, square_sum, sum_products
from kernelweave.kernels import RBF, Polynomial, Precomputed
from kernelweave.operators import ComputedOperator, StackedOperator

N = 60


def test_matrices_that_are_held_already_are_scaled_in_every_sum():
    n = 63  # Not a multiple of the rows that a pass takes at a time.
    X = np.random.default_rng(0).normal(size=(n, 4))
    matrices = [X @ X.T, 3.0 * np.exp(X @ X.T)]
    kernels = ComputedOperator.build(
        [Precomputed(K) for K in matrices], sample_ids(n), normalize="trace"
    )
    bank = DenseBank().build(kernels)
    assert np.shares_memory(bank._matrices[1], matrices[1])
    truth = kernels.block(np.arange(n))
    V = np.random.default_rng(1).normal(size=(2, 2, n))
    np.testing.assert_allclose(bank.apply(V[0]), V[0] @ truth, atol=1e-12 * n)
    np.testing.assert_allclose(sum_products(bank, V), np.sum(V @ truth, axis=0), atol=1e-12 * n)
    np.testing.assert_allclose(square_sum(bank), np.sum(truth @ truth, axis=0), atol=1e-12 * n)


def test_squares_have_a_factor_where_the_ranks_add_up_to_less_than_n():
    X = np.random.default_rng(0).normal(size=(N, 12))
    thin = ComputedOperator.build([Polynomial(3).on(j) for j in range(12)], X)
    bank = FactoredBank().build(thin)  # rank 4 each
    factor = square_factor(bank)
    assert factor.shape == (48, N)
    np.testing.assert_allclose(factor.T @ factor, square_sum(bank), atol=1e-12 * N**2)
    # Kernels that are next to constant: a factor near singular, where rounding shows.
    flat = FactoredBank(1e-15).build(
        ComputedOperator.build([RBF(width=1e3).on(j) for j in (0, 1)], X)
    )
    exact = sum(K @ K for K in flat.block(np.arange(N)))
    factor = square_factor(flat)
    np.testing.assert_allclose(factor.T @ factor, exact, atol=1e-13 * N**2)
    np.testing.assert_allclose(square_sum(flat), exact, atol=1e-13 * N**2)
    # Two samples over and over: FF' is singular, with eigenvalues that rounding takes below zero.
    twice = bank.take(np.arange(N) % 2)
    factor = square_factor(twice)
    np.testing.assert_allclose(factor.T @ factor, square_sum(twice), atol=1e-12 * N**2)
    halves = [thin.select(np.arange(6)), thin.select(np.arange(6, 12))]
    members = [np.arange(6), np.arange(6, 12)]
    parts = [FactoredBank().build(half) for half in halves]
    assert square_factor(StackedOperator(parts, members)).shape == (48, N)
    # Not if one part has none, and not if all of them together come to n.
    dense = DenseBank().build(halves[1])
    assert square_factor(StackedOperator([parts[0], dense], members)) is None
    few = bank.take(np.arange(40))
    assert square_factor(few) is None
    halved = [part.take(np.arange(40)) for part in parts]
    assert square_factor(halved[0]).shape == (24, 40)
    assert square_factor(StackedOperator(halved, members)) is None
