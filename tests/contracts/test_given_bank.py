"""Precomputed matrices over more samples than those of a fit."""

from __future__ import annotations

import numpy as np
import pytest

from kernelweave.bank import DenseBank, build_bank
from kernelweave.kernels import Linear, Precomputed, from_matrices, sample_ids
from kernelweave.operators import ComputedOperator

ALL, N, M = 50, 40, 6
# In disorder, and one of them twice.
IDS = np.random.default_rng(0).permutation(ALL)[:N]
IDS[7] = IDS[30]
D = np.array([0.5, 0.0, 2.0, 1.0, 0.3, 0.1])


def matrices():
    rng = np.random.default_rng(1)
    return [A @ A.T for A in rng.normal(size=(M, ALL, 8))]


def kernel_set(normalize="trace", ids=IDS, given_matrices=None):
    kernels = from_matrices(given_matrices or matrices())
    return ComputedOperator.build(kernels, sample_ids(ALL)[ids], normalize=normalize)


@pytest.fixture
def truth():
    return kernel_set().block(np.arange(N))


@pytest.fixture
def bank():
    return build_bank("auto", kernel_set())


ANSWERS = {
    "matvec": lambda bank, v: bank.apply(v),
    "matvec of one": lambda bank, v: bank.apply(v[1], np.array([4, 0])),
    "quad": lambda bank, v: bank.quad(v),
    "quad of some": lambda bank, v: bank.quad(v, np.array([4, 0])),
    "combine": lambda bank, v: bank.weighted(D),
    "combine32": lambda bank, v: bank.weighted(D, out=np.empty((N, N), np.float32)).astype(float),
    "combine_block": lambda bank, v: bank.weighted(D, np.array([7, 30, 2]), np.array([7, 30, 2])),
    "diag": lambda bank, v: bank.diagonal(np.array([3, 1])),
    "product": lambda bank, v: bank.quad_and_product(v, D)[1],
    "take": lambda bank, v: bank.take(np.array([7, 30, 2])).weighted(D),
    "select": lambda bank, v: bank.select(np.array([2, 0])).apply(v),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_are_those_of_the_kernels(name, bank, truth):
    v = np.random.default_rng(2).normal(size=(2, N)) * (np.arange(N) % 3 > 0)
    cut = DenseBank().from_matrices(list(truth))
    expected = ANSWERS[name](cut, v)
    found = ANSWERS[name](bank, v)
    size = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, atol=(1e-6 if "32" in name else 1e-12) * size)


@pytest.mark.parametrize("normalize", ["trace", None, "diagonal"])
@pytest.mark.parametrize("form", [np.ascontiguousarray, np.asfortranarray, np.float32])
@pytest.mark.parametrize("ids", [IDS, np.arange(ALL), np.arange(ALL)[::-1]])
def test_matrices_of_any_form_are_cut(normalize, form, ids):
    kernels = kernel_set(normalize, ids, [form(K) for K in matrices()])
    bank = build_bank("auto", kernels, tol=1e-8)
    np.testing.assert_allclose(bank.block(), kernels.block(), rtol=1e-6, atol=1e-6)
    assert not bank.error(np.ones(bank.n), D).quad_missing.any()


def test_whole_matrices_are_used_where_they_are():
    whole = matrices()
    bank = build_bank("auto", kernel_set(None, np.arange(ALL), whole))
    before = bank.quad(np.ones(ALL))
    whole[2][:] *= 2.0
    np.testing.assert_allclose(bank.quad(np.ones(ALL))[2], 2.0 * before[2])


def test_kernels_on_other_ids_are_cut_out():
    columns = np.column_stack([IDS, IDS[::-1]])
    kernels = [Precomputed(K).on(c) for K, c in zip(matrices(), [0, 1, 0, 0, 1, 0], strict=True)]
    mixed = ComputedOperator.build(kernels, columns)
    bank = build_bank("auto", mixed)
    np.testing.assert_allclose(bank.weighted(D), np.tensordot(D, mixed.block(np.arange(N)), axes=1))


def test_beside_computed_kernels():
    table = np.column_stack([IDS, np.random.default_rng(3).normal(size=(N, 2))])
    kernels = [
        Precomputed(matrices()[0]).on(0),
        Linear().on([1, 2]),
        Precomputed(matrices()[1]).on(0),
    ]
    both = ComputedOperator.build(kernels, table)
    bank = build_bank("auto", both)
    d = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(bank.weighted(d), np.tensordot(d, both.block(np.arange(N)), axes=1))
