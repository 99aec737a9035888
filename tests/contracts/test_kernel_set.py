"""Sets of kernels: normalisation learnt on training rows, values the same however asked for."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from same_numbers import assert_same_numbers
from scipy import sparse

from kernelweave.compiled.threads import use_threads
from kernelweave.errors import InvalidInputError
from kernelweave.kernels import (
    RBF,
    Distance,
    KernelSet,
    Linear,
    Normalization,
    Pair,
    Polynomial,
    Precomputed,
    Samples,
    evaluate,
    from_matrices,
    sample_ids,
    simplemkl_family,
)

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
    K = KernelSet([bound], both, None).rows(np.arange(both.n))[0]
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
    bank = KernelSet.build(KERNELS, X, spec)
    rows, diag, cross = bank.rows(np.arange(25)), bank.diag(), bank.cross(Z)
    assert rows.shape == (6, 25, 25) and diag.shape == (6, 25) and cross.shape == (6, 6, 25)
    for k, kernel in enumerate(KERNELS):
        train, new = reference(kernel, spec, X, Z)
        atol = 1e-12 * np.abs(train).max()
        np.testing.assert_allclose(rows[k], train, rtol=1e-10, atol=atol)
        np.testing.assert_allclose(diag[k], train.diagonal(), rtol=1e-10, atol=atol)
        np.testing.assert_allclose(cross[k], new, rtol=1e-10, atol=100 * atol)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_subsets_are_parts_of_the_whole(X, spec):
    whole = KernelSet.build(KERNELS, X, spec).rows(np.arange(25))
    bank = KernelSet.build(KERNELS, X, spec)
    idx, columns, chosen = [7, 2, 2], [24, 0, 2, 9], [4, 1]
    part = bank.rows(idx, kernels=chosen, columns=columns)
    np.testing.assert_allclose(part, whole[np.ix_(chosen, idx, columns)], atol=1e-11)
    np.testing.assert_allclose(bank.diag([5]), whole[5].diagonal()[None], atol=1e-11)
    cross = bank.cross(X[[3, 4]], idx=columns, kernels=chosen)
    np.testing.assert_allclose(cross, whole[np.ix_(chosen, [3, 4], columns)], atol=1e-11)
    single = bank.rows(idx, dtype=np.float32)
    assert single.dtype == np.float32
    scale = np.abs(whole).max(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(single / scale, whole[:, idx] / scale, atol=5e-6)


def test_what_each_normalisation_promises(X):
    traced = KernelSet.build(KERNELS, X, "trace")
    np.testing.assert_allclose(traced.diag().mean(axis=1), 1.0, rtol=1e-12)
    spherical = KernelSet.build(KERNELS, X, "diagonal")
    np.testing.assert_array_equal(spherical.diag(), 1.0)
    assert np.abs(spherical.rows(np.arange(25))).max() <= 1 + 1e-12
    centred = KernelSet.build(KERNELS, X, "center").rows(np.arange(25))
    np.testing.assert_allclose(centred.sum(axis=2), 0.0, atol=1e-10)
    both = KernelSet.build(KERNELS, X, ("center", "trace"))
    np.testing.assert_allclose(both.diag().mean(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(both.rows(np.arange(25)).sum(axis=2), 0.0, atol=1e-10)


def test_constants_come_from_the_training_rows(X):
    Z = X * 10
    bank = KernelSet.build(Linear(), X, "trace")
    scale = 25 / (X**2).sum()
    np.testing.assert_allclose(bank.cross(Z)[0], Z @ X.T * scale, rtol=1e-12)
    np.testing.assert_allclose(bank.scale, [scale])
    assert KernelSet.build(Linear(), X, "center").scale is None
    np.testing.assert_array_equal(KernelSet.build(KERNELS, X, None).scale, np.ones(6))


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_factors_and_residuals_are_normalised_alike(X, spec):
    bank = KernelSet.build([Polynomial(2)], X, spec)
    K = Polynomial(2)(X)
    values, vectors = np.linalg.eigh(K)
    F = vectors * np.sqrt(np.maximum(values, 0))
    normalised = bank.rows(np.arange(25))[0]
    G = bank.apply_to_factor(0, F)
    np.testing.assert_allclose(G @ G.T, normalised, atol=1e-10)
    kept = bank.apply_to_factor(0, F[:, -4:])
    residual = normalised - kept @ kept.T
    bound = bank.apply_to_residual(0, (F[:, :-4] ** 2).sum(axis=1))
    assert (residual.diagonal() <= bound + 1e-12).all()
    if "center" not in bank.normalization.names:
        np.testing.assert_allclose(residual.diagonal(), bound, atol=1e-10)


def test_same_bits_for_one_and_two_threads():
    X = np.random.default_rng(2).normal(size=(300, 4))
    bank = KernelSet.build(simplemkl_family(), X)
    results = []
    for threads in (1, 2):
        with use_threads(threads):
            results.append(bank.rows(np.arange(300)))
    np.testing.assert_array_equal(*results)
    np.testing.assert_allclose(results[0][:, [5]], bank.rows([5]), atol=1e-11)


def test_statistics_are_learnt_for_the_kernels_that_are_asked_for(X):
    zero = np.column_stack([X, np.zeros(25)])
    bank = KernelSet.build([Linear(), Linear().on(3)], zero, "trace")
    bank.rows([0], kernels=[0])
    with pytest.raises(ValueError, match="linear on column 3"):
        bank.rows([0])


def test_many_products_over_many_blocks_stay_right(monkeypatch):
    emptied = []
    clear = Pair.clear
    monkeypatch.setattr(Pair, "clear", lambda pair: emptied.append(len(pair)) or clear(pair))
    X = np.random.default_rng(3).normal(size=(20, 100))
    kernels = [RBF(width=1).on(j) * Linear().on((j + 1) % 100) for j in range(100)]
    values = KernelSet.build(kernels, X, None).rows([4])
    expected = np.exp(-((X[4] - X) ** 2) / 2) * np.roll(X[4] * X, -1, axis=1)
    np.testing.assert_allclose(values[:, 0], expected.T, rtol=1e-12)
    # Results for a hundred blocks are not kept at once.
    assert emptied and max(emptied) < 70


def test_sparse_and_precomputed_sets(X):
    dense = KernelSet.build([Linear(), RBF(width=2)], X, ("center", "trace"))
    csr = KernelSet.build([Linear(), RBF(width=2)], sparse.csr_matrix(X), ("center", "trace"))
    np.testing.assert_allclose(csr.rows([1, 2]), dense.rows([1, 2]), atol=1e-11)
    np.testing.assert_allclose(csr.cross(sparse.csr_matrix(X[:4])), dense.cross(X[:4]), atol=1e-11)
    matrices = [Linear()(X), RBF(width=2)(X)]
    train, test = np.arange(0, 25, 2), np.arange(1, 25, 2)
    ids = sample_ids(25)
    given = KernelSet.build(from_matrices(matrices), ids[train], ("center", "trace"))
    again = KernelSet.build([Linear(), RBF(width=2)], X[train], ("center", "trace"))
    np.testing.assert_allclose(given.cross(ids[test]), again.cross(X[test]), atol=1e-11)
    assert given.names == ["K1", "K2"]


def test_a_set_survives_pickling(X):
    bank = KernelSet.build(KERNELS, X, ("center", "trace"))
    values = bank.cross(X[:3])
    assert_same_numbers(pickle.loads(pickle.dumps(bank)).cross(X[:3]), values)


def test_two_samples_and_duplicates():
    X = np.array([[1.0, 2.0], [1.0, 2.0]])
    bank = KernelSet.build([RBF(width=1), Linear(), Polynomial(2)], X)
    np.testing.assert_allclose(bank.rows([0, 1]), 1.0)


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


@pytest.mark.parametrize("rows", [1, 2**18], ids=["in pieces", "at once"])
@pytest.mark.parametrize("few", [3, 20])
@pytest.mark.parametrize("spec", [None, "trace", "diagonal"], ids=str)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_weighted_sums_are_those_of_the_single_kernels(X, monkeypatch, rows, few, spec, dtype):
    monkeypatch.setattr(evaluate, "CACHED_ENTRIES", rows)
    monkeypatch.setattr(evaluate, "_CHUNK_ROWS", 2)
    kernels, table = given_kernels(X)
    fitted = KernelSet.build(kernels, table, spec)
    new = np.column_stack([X[::-1], np.arange(25)])
    d = np.linspace(0.5, 2.0, fitted.m)
    d[[1, 8]] = 0.0
    idx = np.arange(24, 24 - few, -1)
    expected = np.tensordot(d, fitted.cross(new, idx), axes=1)
    with use_threads(2):
        found = fitted.tile(new, idx, dtype).weighted(d)
    assert found.dtype == dtype
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max())
    everything = fitted.tile(new, None, dtype).weighted(0.0 * d)
    assert everything.shape == (25, 25) and not everything.any()


def test_a_weighted_sum_evaluates_no_kernel_without_weight(X, monkeypatch):
    fitted = KernelSet.build([Linear(), RBF(width=1)], X)
    monkeypatch.setattr(RBF, "evaluate_into", lambda *given: pytest.fail("has no weight"))
    found = fitted.tile(X).weighted([2.0, 0.0])
    np.testing.assert_allclose(found, 2.0 * fitted.cross(X, kernels=[0])[0])
    with pytest.raises(InvalidInputError, match="bound to 3"):
        fitted.tile(X[:, :2]).weighted([1.0, 0.0])
