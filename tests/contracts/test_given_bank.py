"""Precomputed matrices over more samples than those of a fit: read in place, cut out if it pays."""

from __future__ import annotations

import numpy as np
import pytest

from kernelweave import MKLClassifier
from kernelweave.bank import DenseBank, build_bank
from kernelweave.kernels import Linear, Precomputed, from_matrices, sample_ids
from kernelweave.operators import ComputedOperator, StackedOperator, given
from kernelweave.operators.given import GivenOperator

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
    return GivenOperator.of(kernel_set())


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
def test_answers_in_place_are_those_of_a_cut(name, bank, truth):
    v = np.random.default_rng(2).normal(size=(2, N)) * (np.arange(N) % 3 > 0)
    cut = DenseBank().from_matrices(list(truth))
    expected = ANSWERS[name](cut, v)
    found = ANSWERS[name](bank, v)
    assert bank._cut is None
    size = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, atol=(1e-6 if "32" in name else 1e-12) * size)


@pytest.mark.parametrize("pass_over", ["combine", "matvec", "quad"])
def test_after_many_passes_the_matrices_are_cut_out(pass_over, bank, truth):
    ask = {
        "combine": lambda: bank.weighted(D),
        "matvec": lambda: bank.apply(np.ones(N)),
        "quad": lambda: bank.quad(np.ones(N)),
    }[pass_over]
    first = ask()
    for _ in range(40):
        found = ask()
        if bank._cut is not None:
            break
    assert bank._cut is not None
    np.testing.assert_allclose(ask(), first, rtol=1e-12)
    np.testing.assert_allclose(found, first, rtol=1e-12)
    assert bank.nbytes == M * 8 * (ALL**2 + N**2)
    np.testing.assert_allclose(
        bank.select(np.array([2])).weighted(np.ones(1)), truth[2], rtol=1e-12
    )


def test_who_is_read_in_place(monkeypatch):
    def in_place(**settings):
        return GivenOperator.of(kernel_set(**settings)) is not None

    assert in_place()
    assert in_place(normalize=None)
    assert not in_place(normalize="diagonal")
    # Of far more samples than those of the fit a cut is small.
    assert not in_place(ids=IDS[:20])
    # Whole matrices are taken as they are by a dense bank.
    assert not in_place(ids=np.arange(ALL))
    assert in_place(ids=np.arange(ALL)[::-1])
    assert not in_place(given_matrices=[np.asfortranarray(K) for K in matrices()])


def test_kernels_on_other_ids_are_cut_out():
    columns = np.column_stack([IDS, IDS[::-1]])
    kernels = [Precomputed(K).on(c) for K, c in zip(matrices(), [0, 1, 0, 0, 1, 0], strict=True)]
    mixed = ComputedOperator.build(kernels, columns)
    assert GivenOperator.of(mixed) is None
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
    assert isinstance(bank, StackedOperator)
    assert any(isinstance(part, GivenOperator) for part in bank.parts)
    d = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(bank.weighted(d), np.tensordot(d, both.block(np.arange(N)), axes=1))


def test_a_fit_in_place_is_that_on_a_cut(monkeypatch):
    y = np.arange(ALL) % 2
    train = np.random.default_rng(4).permutation(ALL)[:N]
    model = MKLClassifier(from_matrices(matrices()), solver="uniform", tol=1e-8)
    never = model.fit(sample_ids(ALL)[train], y[train]).decision_function(sample_ids(ALL))
    monkeypatch.setattr(given, "_MOST_SHARE", 0.0)
    at_once = model.fit(sample_ids(ALL)[train], y[train]).decision_function(sample_ids(ALL))
    np.testing.assert_allclose(never, at_once, atol=1e-3 * np.abs(at_once).max())
