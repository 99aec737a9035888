"""The bank of aligned sequences: which kernels share a walk, and what it is asked at the edges."""

from __future__ import annotations

import numpy as np
import pytest
from naive_strings import random_texts

from kernelweave.bank import PositionalBank, build_bank
from kernelweave.cluster.team import pickled_bytes
from kernelweave.errors import InvalidInputError
from kernelweave.kernels import RBF, Linear, RBFBatch, Samples, Spectrum, WeightedDegree
from kernelweave.kernels.strings.positions import PositionWeights
from kernelweave.operators import (
    ComputedOperator,
    DenseOperator,
    SequenceOperator,
    StackedOperator,
    bind_kernels,
)

X = random_texts(40, 15, np.random.default_rng(0))
CLEAN = random_texts(40, 15, np.random.default_rng(1), often=0.0)


def build(kernels, data=None, normalize="trace"):
    kernels = ComputedOperator.build(kernels, X if data is None else data, normalize=normalize)
    return PositionalBank().build(kernels), kernels.block(np.arange(kernels.n))


def check(bank, truth):
    rng = np.random.default_rng(2)
    n, m = bank.n, bank.m
    scale = np.abs(truth).max()
    v = rng.normal(size=(2, n)) * (rng.random((2, n)) < 0.7)
    d = rng.random(m)
    d[m // 2] = 0.0
    np.testing.assert_allclose(bank.apply(v), v @ truth, atol=1e-12 * n * scale)
    quad = np.einsum("ti,kij,tj->k", v, truth, v)
    np.testing.assert_allclose(bank.quad(v), quad, atol=1e-12 * n**2 * scale)
    np.testing.assert_allclose(bank.block(np.arange(n)), truth, atol=1e-12 * scale)
    combined = np.tensordot(d, truth, axes=1)
    np.testing.assert_allclose(bank.weighted(d), combined, atol=1e-12 * m * scale)
    np.testing.assert_allclose(bank.diagonal(), np.einsum("kii->ki", truth), atol=1e-12 * scale)
    found, product = bank.quad_and_product(v, d)
    np.testing.assert_allclose(found, quad, atol=1e-12 * n**2 * scale)
    np.testing.assert_allclose(product, v @ combined, atol=1e-12 * n * m * scale)


FAMILIES = {
    "lengths": WeightedDegree(5).by_length(),
    "positions": WeightedDegree(5).by_position(),
    "windows": WeightedDegree(5, shift=1).by_position(4),
    "both": WeightedDegree(4).by_length().by_position(3),
    "both with shift": WeightedDegree(3, shift=2).by_length().by_position(4),
    "both strands": WeightedDegree(3, reverse_complement=True).by_length().by_position(5),
}


@pytest.mark.parametrize("normalize", ["trace", None, "diagonal", ("center", "trace")], ids=str)
@pytest.mark.parametrize("family", list(FAMILIES))
def test_all_parts_of_a_kernel(family, normalize):
    # Without ambiguous letters every part has a diagonal that is not zero.
    bank, truth = build(FAMILIES[family], CLEAN, normalize)
    check(bank, truth)
    chosen = np.arange(bank.m)[::-2]
    check(bank.select(chosen), truth[chosen])
    idx = np.array([31, 2, 2, 17, 5])
    check(bank.take(idx), truth[:, idx][:, :, idx])
    check(bank.take(idx).select(chosen), truth[chosen][:, idx][:, :, idx])


@pytest.mark.parametrize(
    "normalize",
    [
        ("trace", "diagonal"),
        ("diagonal", "diagonal"),
        ("center", "diagonal"),
        ("center", "trace", "center"),
        ("diagonal", "center", "trace"),
    ],
    ids=str,
)
def test_several_steps_of_normalisation(normalize):
    kernels = [WeightedDegree(3), WeightedDegree(4, shift=1), WeightedDegree(3, normalize=True)]
    check(*build(kernels, X, normalize))


def test_samples_without_kmers_are_similar_to_none():
    data = ["N" * 15, *X[:20], "N" * 15]
    kernels = [
        WeightedDegree(3),
        WeightedDegree(3, normalize=True),
        WeightedDegree(3, normalize=True, shift=1, positions=(2, 9)),
    ]
    for normalize in ("trace", None, ("center", "trace")):
        bank, truth = build(kernels, data, normalize)
        assert np.all(np.isfinite(truth))
        check(bank, truth)


def test_one_walk_for_all_lengths_and_positions(monkeypatch):
    calls = []
    products = PositionWeights.products

    def counted(self, *args):
        calls.append(self.n_windows)
        return products(self, *args)

    monkeypatch.setattr(PositionWeights, "products", counted)
    v = np.linspace(-1, 1, 40)
    for normalize in ("trace", None, ("center", "trace")):
        bank, _ = build(WeightedDegree(4).by_length().by_position(3), CLEAN, normalize)
        calls.clear()
        bank.apply(v)
        assert calls == [5]
    bank.apply(np.stack([v, v]))
    assert len(calls) == 3
    # Kernels that overlap, or differ in more than window and length, need walks of their own.
    several = [
        WeightedDegree(3),
        WeightedDegree(3, positions=(0, 4)),
        WeightedDegree(3, positions=(4, 15)),
        WeightedDegree(4),
        WeightedDegree(3, shift=1),
        WeightedDegree(3, lengths=(2, 3)),
        WeightedDegree(3, lengths=(1, 2)),
        WeightedDegree(3, reverse_complement=True),
        WeightedDegree(3),
    ]
    bank, truth = build(several, CLEAN)
    calls.clear()
    bank.apply(v)
    assert len(calls) == 6
    check(bank, truth)
    calls.clear()
    bank.apply(v, np.array([8, 0]))
    assert len(calls) == 1


def test_sequences_are_held_once():
    bank, _ = build(WeightedDegree(4).by_length().by_position(3), CLEAN, None)
    one, _ = build(WeightedDegree(4), CLEAN, None)
    assert pickled_bytes(bank) < 1.5 * pickled_bytes(one) + 5000
    assert pickled_bytes(one) < 40 * (15 + 8 * 3) + 4000


def test_nothing_asked_nothing_given():
    bank, _ = build([WeightedDegree(3), WeightedDegree(2, shift=1)])
    none = np.empty(0, np.int64)
    v = np.ones((2, 40))
    assert bank.apply(v, None, none).shape == (2, 2, 0)
    assert bank.block(none).shape == (2, 0, 40)
    assert bank.block(np.array([3]), none).shape == (2, 1, 0)
    assert bank.apply(v, none).shape == (0, 2, 40)
    assert bank.weighted(np.ones(2), none, none).shape == (0, 0)
    assert np.abs(bank.apply(np.zeros(40))).max() < 1e-300
    np.testing.assert_array_equal(bank.quad(np.zeros((3, 40))), [0.0, 0.0])
    np.testing.assert_array_equal(bank.weighted(np.zeros(2)), np.zeros((40, 40)))
    assert bank.select(none).m == 0


def test_one_sample():
    bank, truth = build([WeightedDegree(3), WeightedDegree(3, normalize=True)], ["ACGTN"])
    check(bank, truth)


def test_several_columns_of_sequences():
    proteins = random_texts(40, 9, np.random.default_rng(3), "ACDEFGHIK", "X")
    table = np.array([X, proteins, CLEAN], dtype=object).T
    kernels = [
        WeightedDegree(3).on(2),
        WeightedDegree(3).on(0),
        WeightedDegree(3, alphabet="protein").on(1),
        WeightedDegree(3).by_length().on(0),
        WeightedDegree(3, alphabet="protein").by_position(3).on(1),
    ]
    bank, truth = build(kernels, table)
    assert bank.m == 9
    check(bank, truth)


def test_rows_of_samples_share_their_sequences():
    """Also where the samples are some of a larger set."""
    some = Samples(CLEAN).take(np.arange(5, 35))
    kernels = ComputedOperator.build(WeightedDegree(3).by_length(), some)
    bank = PositionalBank().build(kernels)
    check(bank, kernels.block(np.arange(30)))
    assert len({id(kernel.aligned) for kernel in bank._kernels}) == 1


class TestChoice:
    def test_auto_keeps_sequences(self):
        kernels = ComputedOperator.build(WeightedDegree(3).by_length(), X)
        for tol in (1e-2, 1e-8):
            assert isinstance(build_bank("auto", kernels, tol=tol), SequenceOperator)
        assert isinstance(build_bank("positional", kernels), SequenceOperator)
        assert isinstance(build_bank("dense", kernels), DenseOperator)

    def test_auto_puts_other_kernels_beside_them(self):
        numbers = np.random.default_rng(4).normal(size=40)
        table = [[text, number] for text, number in zip(X, numbers.tolist(), strict=True)]
        kernels = ComputedOperator.build(
            [RBF(width=0.1).on(1), WeightedDegree(3).on(0), Spectrum(4).on(0), Linear().on(1)],
            table,
        )
        bank = build_bank("auto", kernels)
        assert isinstance(bank, StackedOperator)
        assert [type(part) for part in bank.parts].count(SequenceOperator) == 1
        assert list(bank.names) == kernels.names

    def test_other_kernels_are_named(self):
        message = r"'spectrum\(k=3\)' does not compare aligned sequences.*bank='auto'"
        with pytest.raises(InvalidInputError, match=message):
            build_bank("positional", ComputedOperator.build([WeightedDegree(3), Spectrum(3)], X))
        with pytest.raises(InvalidInputError, match=r"'rbf.*does not compare aligned"):
            build_bank("positional", bind_kernels(RBFBatch([[0], [1]], [1.0, 2.0]), np.eye(4)))
        with pytest.raises(InvalidInputError, match=r"'weighted degree.*has no sparse features"):
            build_bank("sparse", ComputedOperator.build([WeightedDegree(3)], X))

    def test_sums_and_products_of_string_kernels(self):
        """These have no walk; some other bank takes them."""
        kernels = ComputedOperator.build([WeightedDegree(3) * Spectrum(2), WeightedDegree(2)], X)
        bank = build_bank("auto", kernels, tol=1e-8)
        truth = kernels.block(np.arange(40))
        v = np.random.default_rng(5).normal(size=40)
        np.testing.assert_allclose(bank.apply(v), truth @ v, atol=1e-8)
