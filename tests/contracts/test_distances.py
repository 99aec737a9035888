"""Distances for products of kernels: tiles against brute force, banks, prediction, refusals."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from same_numbers import assert_same_numbers
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler

from kernelweave.errors import InvalidInputError
from kernelweave.kernels import (
    RBF,
    Distance,
    Kernel,
    Linear,
    Pair,
    Polynomial,
    Precomputed,
    Samples,
    feature_distances,
    resolve,
    sample_ids,
)
from kernelweave.kernels.algebra import Product
from kernelweave.operators import DistanceOperator

N = 40


def squared(A):
    return cdist(A, A, "sqeuclidean")


def table(seed=0, n=N):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)) * [1.0, 2.0, 0.5, 1.0]
    return np.column_stack([X, np.arange(n)])


def given_matrix():
    points = np.random.default_rng(9).normal(size=(N, 2))
    return cdist(points, points, "cityblock")


def every_form(X):
    """Kernels of every form with an exponent, and their distances by definition."""
    Z = StandardScaler().fit_transform(X)
    G = given_matrix()
    half = G.astype(np.float32)
    city = cdist(X[:, 1:4], X[:, 1:4], "cityblock")
    part = StandardScaler().fit_transform(X[:, [2, 0, 3]])[:, [1, 0]]
    return [
        (RBF(gamma=0.3).on([0, 1, 2, 3]), 0.3 * squared(X[:, :4])),
        (RBF(width=2).on([0, 2]), squared(X[:, [0, 2]]) / 8),
        (RBF(gamma=0.7).on([2, 0]), 0.7 * squared(X[:, [0, 2]])),
        (RBF(gamma=1).on(1, StandardScaler()), squared(Z[:, [1]])),
        (RBF(gamma=0.5).on([1, 0]).on([2, 0, 3], StandardScaler()), 0.5 * squared(part)),
        (Distance("sqeuclidean", scale=3.0).on([0, 1]), squared(X[:, :2]) / 3),
        (Distance("cityblock").on(slice(1, 4)), city / city.mean()),
        (Distance(G, scale=2.0).on(4), G / 2),
        (Distance(half).on(4), half / half.mean(dtype=np.float64)),
        (
            RBF(gamma=1).on(0) * Distance("euclidean", scale=0.5).on([1, 2]),
            squared(X[:, [0]]) + 2 * np.sqrt(squared(X[:, [1, 2]])),
        ),
        ((RBF(gamma=1) * RBF(gamma=2)).on([0, 1]), 3 * squared(X[:, :2])),
        (RBF(gamma=0.5).on([0, 0]), squared(X[:, [0]])),
        # So many columns that a fit keeps the matrix, and another kernel on the same.
        (RBF(gamma=0.01).on([0, 2] * 32), 0.32 * squared(X[:, [0, 2]])),
        (RBF(gamma=0.03).on([2, 0] * 32), 0.96 * squared(X[:, [0, 2]])),
    ]


def check_tile(tile, D, dtype):
    """Compare all answers of a tile with a stack of distances (m, q, s)."""
    rng = np.random.default_rng(1)
    tol = 1e-12 if dtype == np.float64 else 2e-6
    assert (tile.m, *tile.shape) == D.shape
    stack = tile.block()
    assert stack.dtype == dtype
    np.testing.assert_allclose(stack, D, rtol=tol, atol=tol * D.max())
    np.testing.assert_array_equal(tile.block(kernels=[2, 0]), stack[[2, 0]])
    M = rng.normal(size=tile.shape)
    expected = np.einsum("ij,kij->k", M, D)
    size = np.einsum("ij,kij->k", np.abs(M), D + D.mean())
    found = tile.contract(M)
    assert found.dtype == np.float64
    assert np.all(np.abs(found - expected) <= tol * size)
    for d in (rng.random(tile.m), np.eye(tile.m)[1], np.eye(tile.m)[-1], np.zeros(tile.m)):
        total = tile.weighted(d)
        expected = np.tensordot(d, D, axes=1)
        assert total.dtype == dtype
        assert total.min() >= 0
        np.testing.assert_allclose(total, expected, rtol=tol, atol=tol * (1 + expected.max()))
    signs = rng.normal(size=tile.m)
    expected = np.tensordot(signs, D, axes=1)
    np.testing.assert_allclose(tile.weighted(signs), expected, atol=tol * np.abs(expected).max())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("stored", [None, "float32", "float64"])
@pytest.mark.parametrize("order", ["consecutive", "shuffled"])
def test_tiles_of_every_form(dtype, stored, order):
    X = table()
    forms = every_form(X)
    D = np.array([values for _, values in forms])
    distances = DistanceOperator.build([kernel for kernel, _ in forms], X)
    bank = distances.keep(cache_mb=1e-9) if stored is None else distances.keep(dtype=stored)
    if order == "consecutive":
        rows, columns = np.arange(3, 20), np.arange(10, 33)
    else:
        rng = np.random.default_rng(2)
        rows, columns = rng.permutation(N)[:17], rng.integers(0, N, size=23)
    check_tile(bank.part(rows, columns, dtype), D[:, rows][:, :, columns], dtype)
    check_tile(bank.part(rows, None, dtype), D[:, rows], dtype)
    check_tile(bank.part(np.arange(N), None, dtype), D, dtype)


@pytest.mark.parametrize("stored", [False, True])
def test_more_distances_than_are_computed_at_a_time(stored):
    """Two blocks of rows, from the columns and from kept matrices."""
    n = 1300
    X = np.random.default_rng(0).normal(size=(n, 2))
    city = cdist(X, X, "cityblock")
    kernels = [
        RBF(gamma=0.5).on([0]),
        Distance("cityblock", scale=2.0),
        Distance("euclidean", scale=3.0).on([1]),
    ]
    D = np.array([0.5 * squared(X[:, :1]), city / 2, np.sqrt(squared(X[:, 1:])) / 3])
    bank = DistanceOperator.build(kernels, X)
    check_tile(bank.keep(dtype="float64") if stored else bank, D, np.float64)


def test_more_samples_far_away_than_are_repaired_at_a_time():
    n = 2100
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(n, 1)) * 1024) / 1024
    X[::2] += 2e7
    X[1::2] -= 2e7
    found = DistanceOperator.build([RBF(gamma=1.0)], X).against(X).weighted([1.0])
    np.testing.assert_allclose(found, squared(X), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_take_and_select(dtype):
    X = table()
    forms = every_form(X)
    D = np.array([values for _, values in forms])
    bank = DistanceOperator.build([kernel for kernel, _ in forms], X).keep()
    assert (bank.n, bank.m, len(bank.names)) == (N, len(forms), len(forms))
    assert len(bank._matrices) > 3
    idx = np.array([30, 2, 17, 18, 5])
    chosen = np.array([9, 0, 7, 3])
    few = bank.take(idx)
    assert (few.n, few.names) == (5, bank.names)
    check_tile(few.part(np.arange(5), None, dtype), D[:, idx][:, :, idx], dtype)
    check_tile(few.take([4, 0]).part([1, 0]), D[:, idx[[0, 4]]][:, :, idx[[4, 0]]], np.float64)
    some = bank.select(chosen)
    assert list(some.names) == [bank.names[k] for k in chosen]
    check_tile(some.part(idx), D[chosen][:, idx], np.float64)
    check_tile(some.take(idx).part(np.arange(5)), D[chosen][:, idx][:, :, idx], np.float64)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_new_samples(dtype):
    X = table()
    forms = every_form(X)
    distances = DistanceOperator.build([kernel for kernel, _ in forms], X[:30])
    bound = [kernel.bind(Samples(X[:30])) for kernel, _ in forms]

    def exact(A, B):
        pair = Pair(Samples(A), Samples(B))
        terms = [list(kernel.leaves(Product)) for kernel in bound]
        return np.array(
            [sum(leaf.exponent(pair.through(path)) for path, leaf in own) for own in terms]
        )

    check_tile(distances.against(X[30:]).part(None, None, dtype), exact(X[30:], X[:30]), dtype)
    idx = np.array([4, 29, 0])
    check_tile(distances.against(X[30:]).part(None, idx, dtype), exact(X[30:], X[idx]), dtype)
    check_tile(
        distances.between(X[30:], X[25:32]).part(None, None, dtype), exact(X[30:], X[25:32]), dtype
    )
    check_tile(
        distances.between(X[30:], X[30:]).part(None, None, dtype), exact(X[30:], X[30:]), dtype
    )
    copy = pickle.loads(pickle.dumps(distances))
    assert_same_numbers(
        copy.against(X[30:]).part().weighted(np.ones(len(forms))),
        distances.against(X[30:]).part().weighted(np.ones(len(forms))),
    )


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_prediction_gives_the_numbers_of_training(dtype):
    X = table()
    kernels = [kernel for kernel, _ in every_form(X)]
    distances = DistanceOperator.build(kernels, X)
    bank = distances.keep(dtype=np.dtype(dtype).name)
    d = np.random.default_rng(3).random(bank.m)
    train = bank.part(np.arange(N), None, dtype).weighted(d)
    # In float32 a few units of the largest.
    tol = 1e-12 if dtype == np.float64 else 2e-7 * train.max()
    np.testing.assert_allclose(
        distances.against(X).part(None, None, dtype).weighted(d), train, atol=tol
    )
    np.testing.assert_allclose(train, train.T, atol=tol)
    assert not train.diagonal().any()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sparse_samples(dtype):
    rng = np.random.default_rng(4)
    X = sparse.random(30, 8, density=0.3, random_state=5, format="csr")
    A = X.toarray()
    scaled = A / StandardScaler(with_mean=False).fit(A).scale_
    one_hot = RBF(gamma=0.5).on([0, 3], StandardScaler(with_mean=False))
    forms = [
        (RBF(gamma=0.3), 0.3 * squared(A)),
        (RBF(gamma=2).on([1, 4, 7]), 2 * squared(A[:, [1, 4, 7]])),
        (one_hot, 0.5 * squared(scaled[:, [0, 3]])),
        (Distance("cityblock", scale=2.0), cdist(A, A, "cityblock") / 2),
    ]
    D = np.array([values for _, values in forms])
    distances = DistanceOperator.build([kernel for kernel, _ in forms], X)
    bank = distances.keep()
    rows = rng.permutation(30)[:11]
    check_tile(bank.part(rows, None, dtype), D[:, rows], dtype)
    check_tile(bank.part(rows, rows, dtype), D[:, rows][:, :, rows], dtype)
    # New samples may come dense.
    for new in (X[:7], A[:7]):
        check_tile(distances.against(new).part(None, rows, dtype), D[:, :7][:, :, rows], dtype)
    named = DistanceOperator.build("features", X)
    check_tile(
        named.against(X).part(None, None, dtype),
        np.array([squared(c[:, None]) for c in scaled.T]),
        dtype,
    )


def test_dense_and_sparse_columns_together():
    frame = pd.DataFrame({"x": [0.0, 1.0, 3.0, 1.0], "kind": ["a", "b", "a", "c"]})
    kinds = RBF(gamma=0.5).on("kind", OneHotEncoder())
    distances = DistanceOperator.build([RBF(gamma=1).on("x"), kinds], frame)
    x = frame[["x"]].to_numpy()
    other = np.not_equal.outer(frame["kind"].to_numpy(), frame["kind"].to_numpy())
    D = np.array([squared(x), other.astype(float), squared(x)])
    tile = distances.keep().part(np.arange(4))
    np.testing.assert_allclose(tile.weighted([2.0, 5.0]), 2 * D[0] + 5 * D[1], atol=1e-12)
    np.testing.assert_allclose(tile.contract(np.ones((4, 4))), D[:2].sum(axis=(1, 2)))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames(frame):
    X = table()
    columns = dict(zip("abcd", X[:, :4].T, strict=True))
    train = frame(columns)
    distances = DistanceOperator.build([feature_distances(), RBF(gamma=0.1).on(["d", "b"])], train)
    assert distances.names == ["a", "b", "c", "d", "rbf(gamma=0.1) on d, b"]
    Z = StandardScaler().fit_transform(X[:, :4])
    D = np.array([*(squared(z[:, None]) for z in Z.T), 0.1 * squared(X[:, [1, 3]])])
    check_tile(distances.against(train).part(), D, np.float64)
    # A kernel on named columns finds them wherever they are.
    named = DistanceOperator.build([RBF(gamma=0.1).on(["d", "b"]), RBF(gamma=1).on("a")], train)
    turned = frame({name: columns[name] for name in "dcba"})
    moved = named.against(turned).part().weighted([1.0, 2.0])
    np.testing.assert_allclose(moved, D[4] + 2 * squared(X[:, [0]]), atol=1e-12)


def test_given_matrices_on_sample_ids():
    D1, D2 = given_matrix(), given_matrix() ** 2
    ids = sample_ids(N)
    train, test = np.r_[5:35], np.r_[0:5, 35:40]
    kernels = [Distance(D1, scale=1.0, name="one"), Distance(D2, scale=4.0, name="two")]
    for chosen in (train, train[::-1]):
        distances = DistanceOperator.build(kernels, ids[chosen])
        bank = distances.keep()
        expected = D1 + 0.5 * D2 / 4
        total = bank.part(np.arange(30)).weighted([1.0, 0.5])
        np.testing.assert_allclose(total, expected[np.ix_(chosen, chosen)], atol=1e-12)
        total = distances.against(ids[test]).part(None, np.array([3, 1])).weighted([1.0, 0.5])
        np.testing.assert_allclose(total, expected[np.ix_(test, chosen[[3, 1]])], atol=1e-12)
        needed = distances.sample_ids_of([3, 1], kernels=[1])
        assert list(needed) == ["two"]
        np.testing.assert_array_equal(needed["two"], chosen[[3, 1]])
    # Consecutive ids of matrices in the bank's type: nothing is copied.
    single = Distance(D1.astype(np.float32), scale=1.0)
    bank = DistanceOperator.build(single, ids[5:35]).keep(cache_mb=1e-9)
    assert np.shares_memory(bank._matrices[0], single.bind(Samples(ids)).given.matrix)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_given_matrices_at_odd_addresses(dtype):
    """As a message brings them; some processors end a process that reads them as BLAS does."""
    D = given_matrix().astype(dtype)
    memory = np.zeros(D.nbytes + 1, np.uint8)
    odd = np.frombuffer(memory.data, dtype, D.size, 1).reshape(D.shape)
    odd[...] = D
    assert not odd.flags.aligned
    kernels = [Distance(odd, scale=scale) for scale in (1.0, 2.0, 4.0)]
    bank = DistanceOperator.build(kernels, sample_ids(N)).keep(dtype=np.dtype(dtype).name)
    expected = np.array([D / scale for scale in (1.0, 2.0, 4.0)], dtype=np.float64)
    check_tile(bank.part(np.arange(N), dtype=dtype), expected, dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_large_means_do_not_cancel(dtype):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(50, 6))
    shift = np.array([1e6, -1e5, 0, 1e7, 3.0, 1e6])
    # Exactly representable, so that both sets have the same distances.
    X = np.round(X * 2**10) / 2**10
    kernels = [RBF(gamma=1.0).on(j) for j in range(6)]
    near = DistanceOperator.build(kernels, X).against(X).part(None, None, dtype)
    far = DistanceOperator.build(kernels, X + shift).against(X + shift).part(None, None, dtype)
    d = rng.random(6)
    tol = 1e-12 if dtype == np.float64 else 1e-5
    np.testing.assert_allclose(far.weighted(d), near.weighted(d), atol=tol)
    M = rng.normal(size=(50, 50))
    np.testing.assert_allclose(far.contract(M), near.contract(M), atol=100 * tol)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_one_outlier_does_not_spoil_the_others(dtype):
    rng = np.random.default_rng(7)
    X = rng.normal(size=(60, 3))
    X[7] = 1e9
    tile = (
        DistanceOperator.build([RBF(gamma=1.0).on(j) for j in range(3)], X)
        .against(X)
        .part(None, None, dtype)
    )
    keep = np.delete(np.arange(60), 7)
    expected = squared(X[keep])
    tol = 1e-12 if dtype == np.float64 else 1e-5
    found = tile.weighted(np.ones(3))
    np.testing.assert_allclose(found[np.ix_(keep, keep)], expected, atol=tol)
    assert found[7, 0] == pytest.approx(3e18, rel=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_tight_clusters_far_apart(dtype):
    rng = np.random.default_rng(8)
    centres = rng.normal(size=(5, 4)) * (1e6 if dtype == np.float64 else 1e3)
    X = np.repeat(centres, 12, axis=0) + np.round(rng.normal(size=(60, 4)) * 64) / 64
    X = X.astype(np.float32).astype(np.float64)
    tile = (
        DistanceOperator.build([RBF(gamma=0.5).on([j]) for j in range(4)], X)
        .against(X)
        .part(None, None, dtype)
    )
    expected = 0.5 * squared(X)
    found = tile.weighted(np.ones(4))
    # What counts is exp(-D): without repair its error here would be of the order of 1.
    np.testing.assert_allclose(np.exp(-found), np.exp(-expected), atol=3e-3)
    near = expected < 30
    np.testing.assert_allclose(found[near], expected[near], rtol=3e-3, atol=1e-9)
    assert near.sum() > 60


def test_the_derivative_of_a_narrow_kernel_in_single_precision():
    rng = np.random.default_rng(11)
    X = rng.normal(size=(300, 5))
    bank = DistanceOperator.build("features", X).keep()
    a = rng.normal(size=300)
    exact = bank.part(np.arange(300)).block()
    # Nearly the identity: the diagonal is all of M but its distances are zero.
    M = np.outer(a, a) * np.exp(-20 * exact.sum(axis=0))
    expected = np.einsum("ij,kij->k", M, exact)
    for rows in (np.arange(300), rng.permutation(300)):
        found = bank.part(rows, None, np.float32).contract(M[rows])
        np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_huge_weights_in_single_precision():
    X = np.array([[0.0], [1.0], [1.0]])
    tile = DistanceOperator.build([RBF(gamma=1e30)], X).against(X).part(None, None, np.float32)
    D = tile.weighted([1e15])
    np.testing.assert_array_equal(np.exp(-D), [[1, 0, 0], [0, 1, 1], [0, 1, 1]])
    assert np.isfinite(D).all()
    wide = DistanceOperator.build([RBF(gamma=1.0)], 1e25 * X)
    assert wide.against(1e25 * X).part(None, None, np.float32).contract(np.ones((3, 3)))[
        0
    ] == pytest.approx(4e50)
    with pytest.raises(InvalidInputError, match="too large for double precision"):
        DistanceOperator.build([RBF(gamma=1e300)], 1e9 * X).against(X).part().weighted([1.0])


def test_the_feature_family():
    X = table()[:, :4]
    X[:, 2] = 5.0
    distances = DistanceOperator.build("default", X)
    assert distances.names == ["column 0", "column 1", "column 2", "column 3"]
    assert repr(distances) == "DistanceOperator(n=40, m=4)"
    Z = StandardScaler().fit_transform(X)
    D = np.array([squared(z[:, None]) for z in Z.T])
    check_tile(distances.keep().part(np.arange(N)), D, np.float64)
    raw = DistanceOperator.build(feature_distances(scale=False), X)
    np.testing.assert_allclose(
        raw.against(X).part().weighted([1, 0, 0, 0]), squared(X[:, [0]]), atol=1e-12
    )
    kernels = resolve(["features", RBF(width=1)], Samples(X))
    assert [kernel.name for kernel in kernels[3:]] == ["column 3", "rbf(width=1)"]
    np.testing.assert_allclose(kernels[1](X), np.exp(-D[1]), atol=1e-12)
    assert feature_distances() == feature_distances()
    assert repr(feature_distances()) == "feature_distances(scale=True)"
    view = DistanceOperator.build(feature_distances().on([3, 0], MinMaxScaler()), X)
    assert len(set(view.names)) == view.m == 2


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (Linear(), "linear"),
        (Polynomial(2).on(0), "polynomial(degree=2) on column 0"),
        (RBF(width=1) + RBF(width=2), "rbf(width=1) + rbf(width=2)"),
        (RBF(width=1) * Linear(), "rbf(width=1) * linear"),
        (Precomputed(np.eye(N), "given").on(4), "given"),
    ],
)
def test_kernels_without_an_exponent_are_refused(kernel, name):
    X = table()
    with pytest.raises(InvalidInputError) as caught:
        DistanceOperator.build([RBF(width=1), kernel], X)
    assert f"kernel '{name}' is not of the form exp(-distance)" in str(caught.value)
    assert "Allowed are RBF, Distance" in str(caught.value)


def test_other_refusals():
    X = table()
    for normalize in ("trace", "diagonal", None, ("diagonal", "trace")):
        DistanceOperator.build(RBF(width=1), X, normalize)
    with pytest.raises(InvalidInputError, match="not centred; got normalize=\\('center', 'trace'"):
        DistanceOperator.build(RBF(width=1), X, ("center", "trace"))
    distances = DistanceOperator.build(RBF(width=1), X)
    with pytest.raises(InvalidInputError, match="X has 2 columns, but the kernels were bound to 5"):
        distances.against(X[:, :2]).part()
    with pytest.raises(InvalidInputError, match="float64 or float32; got int64"):
        distances.against(X).part(None, None, np.int64)
    with pytest.raises(InvalidInputError, match="sample indices must be"):
        distances.against(X).part(None, [40])
    with pytest.raises(InvalidInputError, match="contains NaN in column 1"):
        distances.against(np.where(np.arange(5) == 1, np.nan, X)).weighted([1.0])


def test_a_kernel_of_ones_own():
    class Laplace(Kernel):
        """exp(-|x - x'|_1)."""

        name = "laplace"

        def evaluate(self, pair):
            return np.exp(-self.exponent(pair))

        def exponent(self, pair):
            return cdist(pair.left.array(), pair.right.array(), "cityblock").astype(pair.dtype)

        def diagonal(self, samples):
            return np.ones(samples.n)

    try:
        X = table()
        kernels = [Laplace().on([0, 1]), RBF(gamma=1).on(2)]
        D = np.array([cdist(X[:, :2], X[:, :2], "cityblock"), squared(X[:, [2]])])
        D = np.concatenate([D, D[:1] + D[1:]])
        distances = DistanceOperator.build([*kernels, kernels[0] * kernels[1]], X)
        for cache_mb in (1e-9, 100):
            bank = distances.keep(cache_mb)
            check_tile(bank.part(np.arange(9), None, np.float32), D[:, :9], np.float32)
    finally:
        Kernel.registry.remove(Laplace)


def test_distances_of_a_wide_block_are_kept_once():
    rng = np.random.default_rng(10)
    X = rng.normal(size=(30, 80))
    kernels = [RBF(width=w) for w in (5.0, 10.0, 20.0)] + [RBF(gamma=1).on(j) for j in range(3)]
    bank = DistanceOperator.build(kernels, X).keep()
    assert len(bank._matrices) == 1
    D = [squared(X) / (2 * w**2) for w in (5.0, 10.0, 20.0)]
    D += [squared(X[:, [j]]) for j in range(3)]
    check_tile(bank.part(np.arange(4, 9), None, np.float32), np.array(D)[:, 4:9], np.float32)
    assert not DistanceOperator.build(kernels, X).keep(cache_mb=1e-3)._matrices


def test_tiles_do_not_remember_other_weights():
    X = table()[:, :4]
    bank = DistanceOperator.build("features", X).keep()
    first, second = bank.part(np.arange(5)), bank.part(np.arange(5, 9), np.arange(2, 30))
    D = bank.part(np.arange(N)).block()
    d = np.array([1.0, 2.0, 0.0, 3.0])
    for _ in range(3):
        d = d[::-1].copy()
        expected = np.tensordot(d, D, axes=1)
        np.testing.assert_allclose(first.weighted(d), expected[:5], atol=1e-12)
        np.testing.assert_allclose(second.weighted(d), expected[5:9, 2:30], atol=1e-12)
    # An answer is the caller's to write into, and so are the weights.
    values = first.weighted(d)
    before = values.copy()
    values[:] = -1
    assert_same_numbers(first.weighted(d), before)
    d *= 2
    np.testing.assert_allclose(first.weighted(d), 2 * before, atol=1e-12)
