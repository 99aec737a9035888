"""Sets of kernels: normalisation learnt on training rows, values the same however asked for."""

from __future__ import annotations

import pickle
from weakref import WeakSet

import numpy as np
import pytest
from same_numbers import assert_same_numbers
from scipy import sparse

from kernelweave.compiled.threads import use_threads
from kernelweave.errors import InvalidInputError
from kernelweave.kernels import (
    RBF,
    Distance,
    Linear,
    Normalization,
    Pair,
    Polynomial,
    Precomputed,
    Samples,
    from_matrices,
    sample_ids,
    simplemkl_family,
)
from kernelweave.operators import ComputedOperator
from kernelweave.operators.factors import Pivots

SPECS = [
    None,
    "trace",
    "diagonal",
    "center",
    ("center", "trace"),
    ("diagonal", "center"),
    ("center", "diagonal"),
    ("trace", "center", "diagonal"),
]
KERNELS = [
    Linear(),
    Polynomial(3),
    RBF(width=2),
    RBF(width=1).on(1),
    Distance("cityblock").on([0, 2]),
    RBF(width=1).on(0) * (Linear() + Polynomial(2).on(2)),
]


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(25, 3)) + 0.5


def reference(kernel, spec, X, Z):
    """Normalised values of Z against X by the textbook: normalise the whole joint matrix."""
    n = len(X)
    samples = Samples(X)
    bound = kernel.bind(samples)
    both = Samples(np.vstack([X, Z]))
    K = ComputedOperator([bound], both, None).block(np.arange(both.n))[0]
    for step in () if spec is None else (spec,) if isinstance(spec, str) else spec:
        if step == "trace":
            K = K * n / np.trace(K[:n, :n])
        elif step == "diagonal":
            root = np.sqrt(K.diagonal())
            K = K / root / root[:, None]
        else:
            H = np.eye(len(K))
            H[:, :n] -= 1 / n
            K = H @ K @ H.T
    return K[:n, :n], K[n:, :n]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_values_follow_the_textbook(X, spec):
    Z = np.random.default_rng(1).normal(size=(6, 3))
    bank = ComputedOperator.build(KERNELS, X, spec)
    rows, diag, cross = bank.block(np.arange(25)), bank.diagonal(), bank.against(Z).block()
    assert rows.shape == (6, 25, 25) and diag.shape == (6, 25) and cross.shape == (6, 6, 25)
    for k, kernel in enumerate(KERNELS):
        train, new = reference(kernel, spec, X, Z)
        atol = 1e-12 * np.abs(train).max()
        np.testing.assert_allclose(rows[k], train, rtol=1e-10, atol=atol)
        np.testing.assert_allclose(diag[k], train.diagonal(), rtol=1e-10, atol=atol)
        np.testing.assert_allclose(cross[k], new, rtol=1e-10, atol=100 * atol)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_subsets_are_parts_of_the_whole(X, spec):
    whole = ComputedOperator.build(KERNELS, X, spec).block(np.arange(25))
    bank = ComputedOperator.build(KERNELS, X, spec)
    idx, columns, chosen = [7, 2, 2], [24, 0, 2, 9], [4, 1]
    part = bank.block(idx, columns, chosen)
    np.testing.assert_allclose(part, whole[np.ix_(chosen, idx, columns)], atol=1e-11)
    np.testing.assert_allclose(bank.diagonal([5]), whole[5].diagonal()[None], atol=1e-11)
    cross = bank.against(X[[3, 4]]).block(columns=columns, kernels=chosen)
    np.testing.assert_allclose(cross, whole[np.ix_(chosen, [3, 4], columns)], atol=1e-11)
    single = bank.in_type("float32").block(idx)
    assert single.dtype == np.float32
    scale = np.abs(whole).max(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(single / scale, whole[:, idx] / scale, atol=5e-6)


def test_what_each_normalisation_promises(X):
    traced = ComputedOperator.build(KERNELS, X, "trace")
    np.testing.assert_allclose(traced.diagonal().mean(axis=1), 1.0, rtol=1e-12)
    spherical = ComputedOperator.build(KERNELS, X, "diagonal")
    np.testing.assert_allclose(spherical.diagonal(), 1.0, rtol=1e-15)
    assert np.abs(spherical.block(np.arange(25))).max() <= 1 + 1e-12
    centred = ComputedOperator.build(KERNELS, X, "center").block(np.arange(25))
    np.testing.assert_allclose(centred.sum(axis=2), 0.0, atol=1e-10)
    both = ComputedOperator.build(KERNELS, X, ("center", "trace"))
    np.testing.assert_allclose(both.diagonal().mean(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(both.block(np.arange(25)).sum(axis=2), 0.0, atol=1e-10)


def test_constants_come_from_the_training_rows(X):
    Z = X * 10
    bank = ComputedOperator.build(Linear(), X, "trace")
    scale = 25 / (X**2).sum()
    np.testing.assert_allclose(bank.against(Z).block()[0], Z @ X.T * scale, rtol=1e-12)
    np.testing.assert_allclose(bank.scale([0]), [scale])
    plain = ComputedOperator.build(KERNELS, X, None)
    np.testing.assert_array_equal(plain.scale(list(range(6))), np.ones(6))


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_factors_and_residuals_are_normalised_alike(X, spec):
    bank = ComputedOperator.build([Polynomial(2)], X, spec)
    K = Polynomial(2)(X)
    values, vectors = np.linalg.eigh(K)
    F = vectors * np.sqrt(np.maximum(values, 0))
    normalised = bank.block(np.arange(25))[0]
    left_out = (F[:, :-4] ** 2).sum(axis=1)
    G = bank.normalised(0, Pivots(F.T, np.zeros(25))).factor
    np.testing.assert_allclose(G.T @ G, normalised, atol=1e-10)
    found = bank.normalised(0, Pivots(F[:, -4:].T, left_out))
    kept, bound = found.factor, found.residual
    residual = normalised - kept.T @ kept
    assert (residual.diagonal() <= bound + 1e-12).all()
    if "center" not in bank.normalization.names:
        np.testing.assert_allclose(residual.diagonal(), bound, atol=1e-10)


def test_same_bits_for_one_and_two_threads():
    X = np.random.default_rng(2).normal(size=(300, 4))
    bank = ComputedOperator.build(simplemkl_family(), X)
    results = []
    for threads in (1, 2):
        with use_threads(threads):
            results.append(bank.block(np.arange(300)))
    np.testing.assert_array_equal(*results)
    np.testing.assert_allclose(results[0][:, [5]], bank.block([5]), atol=1e-11)


def test_statistics_are_learnt_for_the_kernels_that_are_asked_for(X):
    zero = np.column_stack([X, np.zeros(25)])
    bank = ComputedOperator.build([Linear(), Linear().on(3)], zero, "trace")
    bank.block([0], None, [0])
    with pytest.raises(ValueError, match="linear on column 3"):
        bank.block([0])


def test_many_products_over_many_blocks_stay_right(monkeypatch):
    alive, most = WeakSet(), []
    made = Pair.__init__

    def spy(pair, *given):
        made(pair, *given)
        alive.add(pair)
        most.append(len(alive))

    monkeypatch.setattr(Pair, "__init__", spy)
    X = np.random.default_rng(3).normal(size=(20, 100))
    kernels = [RBF(width=1).on(j) * Linear().on((j + 1) % 100) for j in range(100)]
    values = ComputedOperator.build(kernels, X, None).block([4])
    expected = np.exp(-((X[4] - X) ** 2) / 2) * np.roll(X[4] * X, -1, axis=1)
    np.testing.assert_allclose(values[:, 0], expected.T, rtol=1e-12)
    # Results for a hundred blocks are not kept at once.
    assert 50 < max(most) < 75


def test_sparse_and_precomputed_sets(X):
    dense = ComputedOperator.build([Linear(), RBF(width=2)], X, ("center", "trace"))
    csr = ComputedOperator.build(
        [Linear(), RBF(width=2)], sparse.csr_matrix(X), ("center", "trace")
    )
    np.testing.assert_allclose(csr.block([1, 2]), dense.block([1, 2]), atol=1e-11)
    np.testing.assert_allclose(
        csr.against(sparse.csr_matrix(X[:4])).block(), dense.against(X[:4]).block(), atol=1e-11
    )
    matrices = [Linear()(X), RBF(width=2)(X)]
    train, test = np.arange(0, 25, 2), np.arange(1, 25, 2)
    ids = sample_ids(25)
    given = ComputedOperator.build(from_matrices(matrices), ids[train], ("center", "trace"))
    again = ComputedOperator.build([Linear(), RBF(width=2)], X[train], ("center", "trace"))
    np.testing.assert_allclose(
        given.against(ids[test]).block(), again.against(X[test]).block(), atol=1e-11
    )
    assert given.names == ["K1", "K2"]


def test_a_set_survives_pickling(X):
    bank = ComputedOperator.build(KERNELS, X, ("center", "trace"))
    values = bank.against(X[:3]).block()
    assert_same_numbers(pickle.loads(pickle.dumps(bank)).against(X[:3]).block(), values)


def test_two_samples_and_duplicates():
    X = np.array([[1.0, 2.0], [1.0, 2.0]])
    bank = ComputedOperator.build([RBF(width=1), Linear(), Polynomial(2)], X)
    np.testing.assert_allclose(bank.block([0, 1]), 1.0)


def test_normalisation_reads_names_and_tuples():
    assert Normalization.parse(["center", "trace"]) == Normalization("center", "trace")
    assert Normalization.parse(None).names == ()
    assert Normalization.parse("trace").pure_scaling
    assert not Normalization.parse(("trace", "center")).pure_scaling


def given_kernels(X):
    """Precomputed kernels on a column of ids, of two sizes and two layouts, beside others."""
    rng = np.random.default_rng(3)
    grams = [A @ A.T for A in rng.normal(size=(7, 40, 5))]
    larger = rng.normal(size=(60, 5))
    matrices = [*grams[:4], grams[4].astype(np.float32), np.asfortranarray(grams[5])]
    kernels = [Precomputed(K).on(3) for K in [*matrices, larger @ larger.T]]
    ids = rng.permutation(40)[: len(X)]
    return [*kernels, *(kernel.on([0, 1, 2]) for kernel in KERNELS[:4])], np.column_stack([X, ids])


@pytest.mark.parametrize("copies", [1, 500], ids=["at once", "in pieces"])
@pytest.mark.parametrize("few", [3, 20])
@pytest.mark.parametrize("spec", [None, "trace", "diagonal"], ids=str)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_weighted_sums_are_those_of_the_single_kernels(X, copies, few, spec, dtype):
    kernels, table = given_kernels(X)
    fitted = ComputedOperator.build(kernels, table, spec)
    new = np.tile(np.column_stack([X[::-1], np.arange(25)]), (copies, 1))
    d = np.linspace(0.5, 2.0, fitted.m)
    d[[1, 8]] = 0.0
    idx = np.arange(24, 24 - few, -1)
    expected = np.tensordot(d, fitted.against(new).block(columns=idx), axes=1)
    with use_threads(2):
        found = fitted.against(new).part(None, idx, dtype).weighted(d)
    assert found.dtype == dtype
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max())
    everything = fitted.against(new).part(None, None, dtype).weighted(0.0 * d)
    assert everything.shape == (25 * copies, 25) and not everything.any()


def test_a_weighted_sum_evaluates_no_kernel_without_weight(X, monkeypatch):
    fitted = ComputedOperator.build([Linear(), RBF(width=1)], X)
    written, write = [], Pair.write
    monkeypatch.setattr(Pair, "write", lambda *given: written.append(given[1]) or write(*given))
    found = fitted.against(X).weighted([2.0, 0.0])
    assert written and all(isinstance(kernel, Linear) for kernel in written)
    np.testing.assert_allclose(found, 2.0 * fitted.against(X).block(kernels=[0])[0])
    with pytest.raises(InvalidInputError, match="bound to 3"):
        fitted.against(X[:, :2])


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_rectangular_operator_answers_as_its_values_say(X, spec):
    Z = np.random.default_rng(5).normal(size=(6, 3))
    training = ComputedOperator.build(KERNELS, X, spec)
    v = np.random.default_rng(6).normal(size=(2, 25)) * (np.arange(25) % 3 > 0)
    d = np.array([0.5, 0.0, 2.0, 1.0, 0.3, 0.1])
    for operator, right in ((training.against(Z), 25), (training.between(Z, X[:4]), 4)):
        values = operator.block()
        size = 25 * np.abs(values).max() * np.abs(v).max()
        assert operator.shape == (6, right)
        w, M = v[:, :right], np.outer(np.arange(6.0), np.arange(right))
        np.testing.assert_allclose(
            operator.apply(w), w @ values.transpose(0, 2, 1), atol=1e-12 * size
        )
        np.testing.assert_allclose(
            operator.weighted(d), np.tensordot(d, values, axes=1), atol=1e-12 * size
        )
        np.testing.assert_allclose(
            operator.contract(M), np.sum(values * M, axis=(1, 2)), atol=1e-10 * size
        )
        few = operator.select([4, 1]).part([5, 0], [1, 3])
        np.testing.assert_allclose(
            few.block(), values[np.ix_([4, 1], [5, 0], [1, 3])], atol=1e-12 * size
        )
