"""Inner products of centred kernels: every bank answers like plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from kernelweave.bank import (
    BatchBank,
    DenseBank,
    FactoredBank,
    LazyBank,
    PositionalBank,
    SparseBank,
    build_bank,
)
from kernelweave.compiled.threads import use_threads
from kernelweave.errors import MemoryBudgetError
from kernelweave.kernels import RBF, Linear, Polynomial, RBFBatch, WeightedDegree
from kernelweave.operators import ComputedOperator, StackedOperator, bind_kernels
from kernelweave.operators.centred import centred_products, centred_squares

N = 40


def numbers(normalize="trace"):
    # Far from zero: the kernels are constant for the most part.
    X = 3.0 + np.random.default_rng(0).normal(size=(N, 3))
    kernels = [RBF(width=1.0), RBF(width=4.0).on(0), Polynomial(3).on(1), Linear(), Linear().on(2)]
    return ComputedOperator.build(kernels, X, normalize=normalize)


def counts():
    X = np.random.default_rng(0).poisson(0.4, size=(N, 20)).astype(float)
    X[:, [0, 7, 15]] = 1.0
    kernels = [Linear(), Linear().on(slice(0, 8)), Linear().on(slice(7, 20))]
    return ComputedOperator.build(kernels, sparse.csr_array(X))


def sequences():
    letters = np.random.default_rng(0).choice(list("ACGT"), (N, 12))
    kernels = [WeightedDegree(3), WeightedDegree(2, positions=(2, 8)), WeightedDegree(1)]
    return ComputedOperator.build(kernels, ["".join(row) for row in letters])


def batch():
    columns = [[0, 1], [1, 2], [2, 0], [0, 2]]
    X = np.random.default_rng(0).normal(size=(N, 3))
    return bind_kernels(RBFBatch(columns, [0.5, 1.0, 2.0, 0.1]), X)


def stacked(kernels):
    parts = [[3], [0, 4], [2], [1]]
    plans = [LazyBank(dtype="float64"), DenseBank(), FactoredBank(1e-12), FactoredBank(1e-12)]
    banks = [plan.build(kernels.select(own)) for plan, own in zip(plans, parts, strict=True)]
    # A stack in a stack, as kernels of several kinds give.
    inner = StackedOperator(banks[:3], [[0], [3, 1], [2]])
    return StackedOperator([inner, banks[3]], [[3, 4, 2, 0], [1]])


CASES = {
    "dense": (numbers, lambda ks: DenseBank().build(ks), 1e-9),
    "dense32": (numbers, lambda ks: DenseBank("float32").build(ks), 1e-4),
    "lazy": (numbers, lambda ks: LazyBank(dtype="float64").build(ks), 1e-9),
    "lazy-small": (numbers, lambda ks: LazyBank(7 * 5 * N * 8 / 1e6, "float64").build(ks), 1e-9),
    "factored": (numbers, lambda ks: FactoredBank(1e-12).build(ks), 1e-6),
    "stacked": (numbers, stacked, 1e-6),
    "auto": (numbers, lambda ks: build_bank("auto", ks), 1e-3),
    "sparse": (counts, lambda ks: SparseBank().build(ks), 1e-9),
    "positional": (sequences, lambda ks: PositionalBank().build(ks), 1e-9),
    "batch": (batch, lambda ks: BatchBank("float64").build(ks), 1e-9),
}


def by_numpy(kernels):
    H = np.eye(kernels.n) - 1.0 / kernels.n
    Ks = [(H @ K @ H).ravel() for K in kernels.block(np.arange(kernels.n))]
    return np.array(Ks) @ np.array(Ks).T


@pytest.fixture(params=sorted(CASES))
def case(request):
    make, build, rtol = CASES[request.param]
    kernels = make()
    return build(kernels), by_numpy(kernels), rtol


def test_products_are_those_of_numpy(case):
    bank, M, rtol = case
    size = np.sqrt(M.diagonal())
    found = centred_products(bank)
    np.testing.assert_allclose(found / np.outer(size, size), M / np.outer(size, size), atol=rtol)
    np.testing.assert_allclose(found, found.T, rtol=1e-9, atol=1e-9)


def test_squares_are_those_of_numpy(case):
    bank, M, rtol = case
    np.testing.assert_allclose(centred_squares(bank), M.diagonal(), rtol=2 * rtol)


@pytest.mark.parametrize("plan", ["dense", "lazy", "factored", "stacked"])
def test_blocks_do_not_matter(plan):
    """Kernels, ranks and samples enough for several blocks of each."""
    X = np.random.default_rng(1).normal(size=(220, 4))
    thin = [Polynomial(2, coef0=0.1 * i).on([i % 4, (i + 1) % 4]) for i in range(1, 81)]
    wide = [RBF(width=1.0 + 0.1 * i).on([i % 4, (i + 2) % 4]) for i in range(20)]
    kernels = ComputedOperator.build(thin + wide, X)
    if plan == "stacked":
        members = [np.arange(80), np.arange(80, 100)]
        plans = [FactoredBank(1e-12), DenseBank()]
        parts = [p.build(kernels.select(own)) for p, own in zip(plans, members, strict=True)]
        bank = StackedOperator(parts, members)
    else:
        plans = {"dense": DenseBank(), "lazy": LazyBank(1.0, "float64")}
        bank = plans.get(plan, FactoredBank(1e-12)).build(kernels)
    M = by_numpy(kernels)
    size = np.sqrt(M.diagonal())
    found = centred_products(bank) / np.outer(size, size)
    np.testing.assert_allclose(found, M / np.outer(size, size), atol=1e-9)
    np.testing.assert_allclose(centred_squares(bank), M.diagonal(), rtol=1e-9)


@pytest.mark.parametrize("name", ["dense", "factored", "stacked"])
def test_the_number_of_threads_does_not_matter(name):
    make, build, _ = CASES[name]
    bank = build(make())
    with use_threads(1):
        alone = centred_products(bank)
    with use_threads(2):
        np.testing.assert_array_equal(centred_products(bank), alone)


@pytest.mark.parametrize("level", [1.0, 1e6])
@pytest.mark.parametrize("plan", [DenseBank(), FactoredBank(1e-12)], ids=["dense", "factored"])
def test_a_constant_kernel_has_exactly_nothing(plan, level):
    X = np.random.default_rng(0).normal(size=(N, 2))
    X[:, 0] = level * (0.1 + 1e-9 * X[:, 0])
    bank = plan.build(ComputedOperator.build([Linear().on(0), Linear().on(1)], X))
    squares, products = centred_squares(bank), centred_products(bank)
    assert squares[0] == 0 and squares[1] > 0
    assert not products[0].any() and not products[:, 0].any() and products[1, 1] > 0


def test_a_kernel_that_hardly_varies_is_kept():
    X = 3e2 + np.random.default_rng(0).normal(size=(N, 1))
    kernels = ComputedOperator.build([Linear()], X)
    M = by_numpy(kernels)
    assert np.sqrt(M[0, 0]) < 1e-4 * N
    bank = DenseBank().build(kernels)
    # Little is lost where nearly all of the kernel cancels.
    np.testing.assert_allclose(centred_squares(bank), M[0], rtol=1e-8)
    np.testing.assert_allclose(centred_products(bank), M, rtol=1e-8)


def test_a_kernel_of_zeros_has_nothing():
    bank = DenseBank().from_matrices([np.zeros((3, 3)), np.eye(3)])
    np.testing.assert_allclose(centred_squares(bank), [0.0, 2.0])


def test_too_many_kernels_are_refused(monkeypatch):
    monkeypatch.setattr("kernelweave.memory.available_bytes", lambda: 100.0)
    with pytest.raises(MemoryBudgetError, match="independent"):
        centred_products(DenseBank().from_matrices([np.eye(3)] * 3))
