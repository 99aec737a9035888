"""The sparse bank: what it stores, how it cuts its work, and when it is chosen."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from same_numbers import assert_same_numbers
from scipy import sparse

import kernelweave.operators.features as module
from kernelweave.bank import DenseBank, SparseBank, build_bank
from kernelweave.compiled.threads import use_threads
from kernelweave.errors import InvalidInputError
from kernelweave.kernels import RBF, Kernel, Linear, Polynomial, RBFBatch, Samples
from kernelweave.kernels.evaluate import Plan
from kernelweave.kernels.normalize import ScaledFactor
from kernelweave.operators import (
    ComputedOperator,
    DenseOperator,
    FeatureOperator,
    StackedOperator,
    bind_kernels,
)
from kernelweave.operators.features import FeatureRows

N = 50


def table(n=N, p=30, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * (rng.random((n, p)) < 0.2)
    X[:, 0] = 1.0 + rng.random(n)
    return X


def with_features():
    return [
        Linear(),
        Linear().on([0, 7, 3]),
        Polynomial(1, coef0=0.3, gamma=2.0),
        Polynomial(1, coef0=0),
        Linear() + Polynomial(1).on([0, 5]),
        (Linear().on([0, 2]) + Linear()).on(slice(0, 9)),
    ]


# Features


def features(bound, samples):
    return bound.core.features(samples.through(bound.path))


def test_features_of_every_kernel_give_its_values():
    classes = [
        cls
        for cls in Kernel.registry
        if cls.__module__.startswith("kernelweave.") and not inspect.isabstract(cls)
    ]
    for cls in classes:
        for kernel in cls.examples():
            samples = Samples(cls.example_data(np.random.default_rng(1)))
            F = features(kernel.bind(samples), samples)
            if isinstance(F, ScaledFactor):
                K = np.array([F.product(unit) for unit in np.eye(samples.n)])
                np.testing.assert_allclose(K, kernel(samples), atol=1e-12)
            elif F is not None:
                K = F @ F.T
                K = K if isinstance(K, np.ndarray) else K.toarray()
                np.testing.assert_allclose(K, kernel(samples), atol=1e-12)


@pytest.mark.parametrize("kernel", with_features(), ids=lambda kernel: kernel.name)
def test_features_of_new_samples_have_the_same_columns(kernel):
    X, Z = table(), table(9, seed=1)
    train = Samples(sparse.csr_array(X))
    bound = kernel.bind(train)
    F, G = features(bound, train), features(bound, Samples(sparse.csr_array(Z)))
    np.testing.assert_allclose((F @ F.T).toarray(), kernel(X), atol=1e-12)
    np.testing.assert_allclose((G @ F.T).toarray(), kernel(Z, X), atol=1e-12)
    some = features(bound, train.take([7, 2]))
    np.testing.assert_array_equal(some.toarray(), F[[7, 2]].toarray())


def test_kernels_without_sparse_features():
    X = table()
    rows = Samples(sparse.csr_array(X))
    for kernel in (RBF(width=1), Polynomial(2), Linear() * Linear(), Linear() + RBF(gamma=1)):
        assert features(kernel.bind(rows), rows) is None
    for kernel in with_features():
        dense = Samples(X)
        assert not sparse.issparse(features(kernel.bind(dense), dense))


def test_a_transformer_may_make_the_features():
    pd = pytest.importorskip("pandas")
    from sklearn.preprocessing import OneHotEncoder

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"colour": rng.choice(list("rgb"), N), "size": rng.normal(size=N)})
    kernels = ComputedOperator.build([Linear().on("colour", OneHotEncoder())], frame)
    bank = SparseBank().build(kernels)
    np.testing.assert_allclose(bank.block(np.arange(N)), kernels.block(np.arange(N)), atol=1e-14)
    assert bank._kernels[0].values.size == 0 and bank._kernels[0].width == 3


# Normalisation: truth is computed from the same numbers in a dense array


@pytest.mark.parametrize(
    "normalize",
    [
        "center",
        ("center", "diagonal"),
        ("diagonal", "center", "trace"),
        ("center", "diagonal", "center"),
        ("trace", "center", "trace"),
    ],
    ids=str,
)
def test_every_sequence_of_steps(normalize):
    X = table()
    truth = ComputedOperator.build(with_features(), X, normalize=normalize).block(np.arange(N))
    bank = SparseBank().build(
        ComputedOperator.build(with_features(), sparse.csr_array(X), normalize)
    )
    v = np.random.default_rng(1).normal(size=N)
    atol = 1e-11 * np.abs(truth).max()
    np.testing.assert_allclose(bank.block(np.arange(N)), truth, atol=atol)
    np.testing.assert_allclose(bank.apply(v), truth @ v, atol=100 * atol)
    np.testing.assert_allclose(bank.quad(v), (truth @ v) @ v, atol=1000 * atol)
    np.testing.assert_allclose(bank.diagonal(), np.einsum("kii->ki", truth), atol=atol)
    d, idx = np.linspace(0.5, 2, len(truth)), np.array([40, 3, 17])
    total = np.tensordot(d, truth, axes=1)
    np.testing.assert_allclose(bank.weighted(d, idx, idx), total[np.ix_(idx, idx)], atol=9 * atol)
    part = bank.take(idx)
    np.testing.assert_allclose(part.apply(v[:3]), truth[:, idx][:, :, idx] @ v[:3], atol=9 * atol)


def test_centring_beside_kernels_without_features():
    X = table()
    kernels = [RBF(gamma=0.1), Linear(), RBF(gamma=0.3), Linear().on([0, 3])]
    truth = ComputedOperator.build(kernels, X, ("center", "trace")).block(np.arange(N))
    mixed = ComputedOperator.build(kernels, sparse.csr_array(X), ("center", "trace"))
    np.testing.assert_allclose(mixed.block(np.arange(N)), truth, atol=1e-12)


def test_centring_never_goes_through_all_pairs(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("values of all pairs were computed")

    X = sparse.csr_array(table())
    kernels = ComputedOperator.build(with_features(), X, ("diagonal", "center"))
    monkeypatch.setattr(Plan, "evaluate", refuse)
    centred = SparseBank().build(kernels).apply(np.ones(N))
    np.testing.assert_allclose(centred, 0.0, atol=1e-10)


# Storage


def bank_of(*matrices):
    factors = [FeatureRows.of(sparse.csr_array(M)) for M in matrices]
    return FeatureOperator(factors, [f"kernel {k}" for k in range(len(matrices))])


def test_values_are_kept_as_short_as_they_are_exact():
    X = table()
    counts = np.round(3 * np.abs(X))
    numbers, whole, equal, big = bank_of(X, counts, -2.5 * (X != 0), X * 1e200)._kernels
    assert numbers.values.dtype == np.float64 and big.values.dtype == np.float64
    assert whole.values.dtype == np.float32
    assert equal.values.size == 0 and equal.scaling.scale == -2.5
    bank = bank_of(X, counts, -2.5 * (X != 0))
    v = np.random.default_rng(1).normal(size=N)
    for k, M in enumerate((X, counts, -2.5 * (X != 0))):
        np.testing.assert_allclose(bank.apply(v)[k], M @ (M.T @ v), rtol=1e-12)
    assert bank.error(v, np.ones(3)).quad_missing.max() == 0
    assert bank.refined() is None


def test_columns_are_numbered_by_frequency_and_may_be_far_apart():
    rows = np.array([0, 0, 1, 1, 2, 2])
    columns = np.array([5, 2**40, 2**40, 7, 2**40, 7])
    F = sparse.csr_array((np.arange(1.0, 7.0), (rows, columns)), shape=(3, 2**41))
    kernel = FeatureRows.of(F)
    assert kernel.width == 3 and kernel.indices.dtype == np.uint16
    assert kernel.indices.tolist() == [2, 0, 1, 0, 1, 0]
    wide = FeatureRows.of(sparse.eye_array(70_000, format="csr"))
    assert wide.width == 70_000 and wide.indices.dtype == np.uint32
    few = wide.take(np.array([3, 69_999, 3]), {})
    assert few.width == 2 and few.indices.dtype == np.uint16
    assert few.indices.tolist() == [0, 1, 0]


def test_zeros_duplicates_and_empty_rows():
    F = sparse.csr_array(
        (np.array([0.0, 1.0, 2.0, 3.0, 0.0]), np.array([2, 1, 1, 0, 0]), np.array([0, 3, 3, 5, 5])),
        shape=(4, 3),
    )
    before = F.data.copy()
    bank = FeatureOperator([FeatureRows.of(F)], ["k"])
    M = np.array([[0.0, 3, 0], [0, 0, 0], [3, 0, 0], [0, 0, 0]])
    np.testing.assert_allclose(bank.block(np.arange(4))[0], M @ M.T)
    np.testing.assert_allclose(bank.weighted(np.ones(1)), M @ M.T)
    np.testing.assert_allclose(bank.quad(np.arange(4.0)), np.sum((M.T @ np.arange(4.0)) ** 2))
    np.testing.assert_allclose(bank.diagonal()[0], [9.0, 0.0, 9.0, 0.0])
    np.testing.assert_array_equal(F.data, before)
    assert bank._kernels[0].nnz == 2


def test_a_kernel_without_any_feature_is_zero():
    bank = bank_of(np.zeros((4, 3)), np.eye(4))
    v = np.ones(4)
    np.testing.assert_array_equal(bank.apply(v), [np.zeros(4), np.ones(4)])
    np.testing.assert_array_equal(bank.quad(v), [0.0, 4.0])
    np.testing.assert_array_equal(bank.weighted(np.ones(2)), np.eye(4))


def test_kernels_with_rows_of_equal_length_share_their_pointers():
    a, b = np.eye(6), np.roll(np.eye(6), 1, axis=1)
    bank = bank_of(a, b, np.tri(6))
    first, second, third = bank._kernels
    assert first.indptr is second.indptr and third.indptr is not first.indptr
    first, second, _ = bank.take(np.array([2, 0, 5]))._kernels
    assert first.indptr is second.indptr
    assert bank.select(np.array([2, 0]))._kernels[1] is bank._kernels[0]


# Work


IDX, MANY = np.array([90, 4, 31]), np.arange(90, 24_000, 96)


def answers(bank, v):
    d = np.linspace(1, 2, bank.m)
    return [
        bank.apply(v),
        bank.quad(v),
        bank.apply(v, None, IDX),
        bank.block(IDX),
        bank.weighted(d, MANY),
        bank.weighted(d, IDX, IDX),
    ]


def by_hand(F, normalize):
    """Some rows of a linear kernel on these columns, scaled to mean one or centred to cosines."""
    if normalize == "trace":
        F = F * np.sqrt(len(F) / np.sum(F**2))
    else:
        F = F - F.mean(axis=0)
        F = F / np.linalg.norm(F, axis=1, keepdims=True)
    return F[IDX] @ F.T


@pytest.mark.parametrize("normalize", ["trace", ("center", "diagonal")], ids=str)
@pytest.mark.parametrize(("m", "width"), [(3, 50), (12, 4)], ids=["by samples", "by kernels"])
def test_same_bits_however_the_work_is_cut(normalize, m, width):
    """So many features that threads share out those of one kernel, or the kernels."""
    n = 24_000
    X = np.random.default_rng(0).normal(size=(n, 60))
    kernels = [Linear().on(np.arange(k, k + width)) for k in range(m)]
    bank = SparseBank().build(ComputedOperator.build(kernels, sparse.csr_array(X), normalize))
    v = np.random.default_rng(1).normal(size=(2, n))
    with use_threads(1):
        one = answers(bank, v)
    with use_threads(2):
        two = answers(bank, v)
    for a, b in zip(one, two, strict=True):
        assert np.array_equal(a, b)
    truth = np.array([by_hand(X[:, k : k + width], normalize) for k in range(m)])
    np.testing.assert_allclose(one[3], truth, atol=1e-9)
    np.testing.assert_allclose(one[2], v @ truth.transpose(0, 2, 1), atol=1e-6)
    np.testing.assert_allclose(one[0][:, :, IDX], one[2], atol=1e-6)
    quad = np.einsum("ktn,tn->k", one[0], v)
    np.testing.assert_allclose(one[1], quad, rtol=1e-9)
    combined = np.tensordot(np.linspace(1, 2, m), truth, axes=1)
    np.testing.assert_allclose(one[5], combined[:, IDX], atol=1e-9)
    np.testing.assert_allclose(one[4][0], combined[0], atol=1e-9)
    # A kernel's answer does not depend on how many others are asked beside it.
    for k in range(m):
        assert np.array_equal(bank.apply(v, np.array([k]))[0], one[0][k])
        assert bank.quad(v, np.array([k]))[0] == one[1][k]


def test_few_samples_on_very_many_columns(monkeypatch):
    rng = np.random.default_rng(0)
    F = sparse.random_array((300, 20_000), density=1e-3, random_state=rng, format="csr")
    bank = FeatureOperator([FeatureRows.of(F)], ["k"])
    v = np.zeros(300)
    v[[5, 250]] = 1.5, -0.5
    w = F.T @ v
    for _ in range(2):  # Nothing is left of the first time.
        np.testing.assert_allclose(bank.quad(v), w @ w, rtol=1e-12)
        np.testing.assert_allclose(bank.apply(v)[0], F @ w, rtol=1e-12, atol=1e-14)
        full = F @ (F.T @ np.ones(300))
        np.testing.assert_allclose(bank.apply(np.ones(300))[0], full, rtol=1e-12, atol=1e-14)


def test_an_interrupted_pass_leaves_nothing_behind(monkeypatch):
    X = table()
    bank = bank_of(X)
    v = np.random.default_rng(1).normal(size=N)
    before = bank.apply(v)

    def interrupted(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "dot_rows", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bank.apply(v)
    assert_same_numbers(bank.apply(v), before)


# Choice


class TestChoice:
    def wide(self, n=400, per_row=6, p=5000):
        return sparse.random_array(
            (n, p), density=per_row / p, random_state=np.random.default_rng(0), format="csr"
        )

    def test_auto_takes_sparse_features_where_they_are_few(self):
        kernels = ComputedOperator.build([Linear(), Linear().on(slice(0, 2000))], self.wide())
        bank = build_bank("auto", kernels)
        assert isinstance(bank, FeatureOperator)
        assert list(bank.names) == kernels.names

    def test_auto_puts_other_kernels_beside_them(self):
        X = self.wide()
        kernels = ComputedOperator.build([RBF(gamma=1.0), Linear(), Polynomial(2)], X)
        bank = build_bank("auto", kernels)
        assert isinstance(bank, StackedOperator)
        assert [type(part) for part in bank.parts] == [FeatureOperator, DenseOperator]
        assert list(bank.names) == kernels.names
        v = np.random.default_rng(1).normal(size=400)
        np.testing.assert_allclose(bank.quad(v), DenseBank().build(kernels).quad(v), rtol=1e-4)

    def test_auto_keeps_matrices_where_features_are_many(self):
        X = self.wide(100, 60, 300)  # 6000 features against 10000 entries
        assert isinstance(build_bank("auto", ComputedOperator.build([Linear()], X)), DenseOperator)

    def test_auto_prefers_many_features_to_rows_on_demand(self):
        X = self.wide(300, 100, 300)
        kernels = ComputedOperator.build([Linear(), RBF(gamma=1.0)], X)
        bank = build_bank("auto", kernels, cache_mb=0.1)
        assert [type(part) for part in bank.parts] == [FeatureOperator, ComputedOperator]

    def test_a_kernel_without_features_is_named(self):
        X = self.wide(30)
        with pytest.raises(InvalidInputError, match=r"'rbf\(gamma=1\)' has no sparse features"):
            build_bank("sparse", ComputedOperator.build([Linear(), RBF(gamma=1)], X))
        with pytest.raises(InvalidInputError, match=r"'linear' has no .*csr_array\(X\)"):
            build_bank("sparse", ComputedOperator.build([Linear()], X.toarray()))
        with pytest.raises(InvalidInputError, match=r"'rbf.* has no sparse features"):
            build_bank("sparse", bind_kernels(RBFBatch([[0], [1]], [1.0, 2.0]), np.eye(4)))
