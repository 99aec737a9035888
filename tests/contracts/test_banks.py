"""Every bank answers like the dense one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.preprocessing import StandardScaler

from kernelweave.bank import (
    DaskBank,
    DenseBank,
    FactoredBank,
    LazyBank,
    PositionalBank,
    SparseBank,
    build_bank,
)
from kernelweave.bayes.sums import square_factor, square_sum, sum_products
from kernelweave.compiled.threads import use_threads
from kernelweave.errors import InvalidInputError, MemoryBudgetError
from kernelweave.kernels import (
    RBF,
    Linear,
    Polynomial,
    Spectrum,
    WeightedDegree,
    from_matrices,
    sample_ids,
)
from kernelweave.operators import (
    ComputedOperator,
    DenseOperator,
    FactorOperator,
    GaussianOperator,
    StackedOperator,
)
from kernelweave.operators.row_cache import RowCache

N = 60


def kernel_set(normalize="trace", n=N):
    X = np.random.default_rng(0).normal(size=(n, 3))
    kernels = [
        RBF(width=1.0),
        RBF(width=4.0).on(0),
        Polynomial(3).on(1),
        Linear(),
        RBF(gamma=0.3).on([1, 2]) * Linear().on(0),
    ]
    return ComputedOperator.build(kernels, X, normalize=normalize)


def sparse_set(normalize="trace", n=N):
    """Five kernels with sparse features: counts, ones, and numbers of both signs."""
    rng = np.random.default_rng(0)
    X = rng.poisson(0.3, size=(n, 40)).astype(float)
    X[:, :8] = rng.random((n, 8)) < 0.3
    X[:, 30:] *= rng.normal(size=(n, 10))
    X[:, 39] = 0.0
    X[:, [0, 20, 30]] = 1.0  # No sample is all zero in any kernel's columns.
    kernels = [
        Linear(),
        Linear().on(slice(0, 8)),
        Polynomial(1, 0.5, 2.0).on(slice(8, 30)),
        Linear().on([38, 30, 39]),
        Linear().on(slice(0, 25)) + Linear().on([20, 35, 36]),
    ]
    return ComputedOperator.build(kernels, sparse.csr_array(X), normalize=normalize)


def sequences(n=N, length=18):
    """Aligned DNA with ambiguous letters, but never where a kernel would have nothing left."""
    letters = np.random.default_rng(0).choice(
        list("ACGTN"), (n, length), p=[0.4, 0.3, 0.2, 0.05, 0.05]
    )
    letters[:, [0, 1, 6, 7]] = np.where(letters == "N", "C", letters)[:, [0, 1, 6, 7]]
    return ["".join(row) for row in letters]


def positional_set(normalize="trace", n=N):
    """Five weighted degree kernels: parts that share a walk, one that overlaps, and others."""
    kernels = [
        WeightedDegree(4, lengths=(2, 2), positions=(0, 6)),
        WeightedDegree(3, shift=2, normalize=True),
        WeightedDegree(4, lengths=(1, 3), positions=(6, 14)),
        WeightedDegree(3, reverse_complement=True),
        WeightedDegree(4, lengths=(1, 1), positions=(3, 9)),
    ]
    return ComputedOperator.build(kernels, sequences(n), normalize=normalize)


def mixed_set(normalize="trace", n=N):
    """Sequences and numbers in one table."""
    numbers = np.random.default_rng(1).normal(size=n)
    table = [[text, number] for text, number in zip(sequences(n), numbers.tolist(), strict=True)]
    kernels = [
        WeightedDegree(3).on(0),
        RBF(width=1.0).on(1),
        WeightedDegree(3, positions=(4, 9), shift=1).on(0),
        Spectrum((1, 3)).on(0),
        Polynomial(2).on(1),
    ]
    return ComputedOperator.build(kernels, table, normalize=normalize)


def given_set(normalize="trace", n=N):
    """Precomputed matrices over more samples than those of the fit, which are in disorder."""
    rng = np.random.default_rng(0)
    factors = [rng.normal(size=(n + 25, rank)) for rank in (2, 5, 30, 70, 90)]
    matrices = [2.0 + A @ A.T for A in factors]
    matrices[3] = matrices[3].astype(np.float32)
    ids = sample_ids(n + 25)[rng.permutation(n + 25)[:n]]
    return ComputedOperator.build(from_matrices(matrices), ids, normalize=normalize)


def gaussian_set(normalize="trace", n=N):
    """Gaussian kernels, some on the same columns but not side by side, and a scaled one."""
    X = 7.0 + np.random.default_rng(0).normal(size=(n, 6))
    kernels = [
        RBF(width=1.0),
        RBF(width=2.0).on([4, 1]),
        RBF(width=5.0),
        RBF(gamma=0.3).on([1, 2], StandardScaler()),
        RBF(gamma=1e-3).on([4, 1]),
    ]
    return ComputedOperator.build(kernels, X, normalize=normalize)


SETS = {
    "gaussian": gaussian_set,
    "given": given_set,
    "sparse": sparse_set,
    "positional": positional_set,
    "mixed": mixed_set,
}


def stacked(kernels):
    parts = [[3, 0], [1, 4], [2]]
    plans = [LazyBank(dtype="float64"), DenseBank(), FactoredBank(1e-12)]
    banks = [plan.build(kernels.select(own)) for plan, own in zip(plans, parts, strict=True)]
    return StackedOperator(banks, parts)


BANKS = {
    "dense": (lambda ks: DenseBank().build(ks), 1e-12),
    "dense32": (lambda ks: DenseBank("float32").build(ks), 1e-5),
    "lazy": (lambda ks: LazyBank(dtype="float64").build(ks), 1e-12),
    "lazy32": (lambda ks: LazyBank().build(ks), 1e-5),
    # Room for seven rows only: every pass throws rows out and computes them again.
    "lazy-small": (lambda ks: LazyBank(7 * 5 * N * 8 / 1e6, "float64").build(ks), 1e-12),
    "factored": (lambda ks: FactoredBank(1e-12).build(ks), 1e-7),
    "stacked": (stacked, 1e-7),
    "auto": (lambda ks: build_bank("auto", ks), 1e-4),
    "sparse": (lambda ks: SparseBank().build(ks), 1e-12),
    "gaussian": (lambda ks: GaussianOperator.of(ks), 1e-12),
    "gaussian-32": (lambda ks: GaussianOperator.of(ks).in_type("float32"), 1e-5),
    "gaussian-auto": (lambda ks: build_bank("auto", ks), 1e-4),
    "sparse-auto": (lambda ks: build_bank("auto", ks), 1e-4),
    "positional": (lambda ks: PositionalBank().build(ks), 1e-12),
    "positional-auto": (lambda ks: build_bank("auto", ks), 1e-12),
    "mixed-auto": (lambda ks: build_bank("auto", ks), 1e-4),
    "given-dense": (lambda ks: DenseBank().build(ks), 1e-6),
    "given-auto": (lambda ks: build_bank("auto", ks), 1e-4),
    "remote-points": (lambda ks: DaskBank(client(), "points").build(ks), 1e-12),
    "remote-kernels": (lambda ks: DaskBank(client(), "kernels").build(ks), 1e-12),
}


def client():
    """The client of the cluster that `dask_client` has started."""
    return pytest.importorskip("distributed").default_client()


# Built once: no test changes them.
@pytest.fixture(scope="module", params=["trace", "diagonal", ("center", "trace"), None], ids=str)
def normalize(request):
    return request.param


@pytest.fixture(scope="module")
def kernels(normalize):
    return kernel_set(normalize)


@pytest.fixture(scope="module", params=list(BANKS))
def named_case(request, normalize):
    build, atol = BANKS[request.param]
    if request.param in ("gaussian", "gaussian-32") and "center" in str(normalize):
        pytest.skip("centred kernels are not computed so")
    if request.param.startswith("remote"):
        request.getfixturevalue("dask_client")
    kernels = SETS.get(request.param.split("-")[0], kernel_set)(normalize)
    truth = kernels.block(np.arange(kernels.n))
    return build(kernels), truth, atol * np.abs(truth).max(), kernels.names


@pytest.fixture(scope="module")
def case(named_case):
    return named_case[:3]


@pytest.fixture
def v():
    rng = np.random.default_rng(1)
    return rng.normal(size=(2, N)) * (rng.random(N) < 0.6)


def test_names_and_sizes(named_case):
    bank, _, _, names = named_case
    assert (bank.n, bank.m) == (N, 5)
    assert list(bank.names) == list(names)


@pytest.mark.parametrize("chosen", [None, np.array([4, 0, 2])], ids=["all", "some"])
def test_rows(case, chosen):
    bank, truth, atol = case
    idx, columns = np.array([3, 50, 7]), np.array([9, 1])
    expected = truth if chosen is None else truth[chosen]
    np.testing.assert_allclose(bank.block(idx, None, chosen), expected[:, idx], atol=atol)
    block = bank.block(idx, columns, chosen)
    np.testing.assert_allclose(block, expected[:, idx][:, :, columns], atol=atol)


@pytest.mark.parametrize("chosen", [None, np.array([4, 0, 2])], ids=["all", "some"])
def test_products_and_quadratic_forms(case, v, chosen):
    bank, truth, atol = case
    expected = truth if chosen is None else truth[chosen]
    scale = N * np.abs(v).max()
    np.testing.assert_allclose(bank.apply(v, chosen), v @ expected, atol=atol * scale)
    np.testing.assert_allclose(bank.apply(v[0], chosen), expected @ v[0], atol=atol * scale)
    full = np.where(v == 0, 0.5, v)
    np.testing.assert_allclose(bank.apply(full, chosen), full @ expected, atol=atol * scale)
    quad = np.einsum("ti,kij,tj->k", v, expected, v)
    np.testing.assert_allclose(bank.quad(v, chosen), quad, atol=atol * scale**2)
    np.testing.assert_allclose(
        bank.quad(v[0], chosen), (expected @ v[0]) @ v[0], atol=atol * scale**2
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_quadratic_forms_of_tasks_with_few_and_with_many_samples(dtype):
    """Rows come in blocks of 256, of which a task with few samples has fewer."""
    n = 600
    bank = DenseBank(dtype).build(kernel_set(n=n))
    truth = bank.apply(np.eye(n)).transpose(0, 2, 1)
    v = np.random.default_rng(1).normal(size=(3, n))
    v[1, 19:] = 0.0
    v[2, ::7] = 0.0
    np.testing.assert_allclose(
        bank.quad(v),
        np.einsum("ti,kij,tj->k", v, truth, v),
        rtol=1e-5 if dtype == "float32" else 1e-12,
    )


@pytest.mark.parametrize("chosen", [None, np.array([4, 0, 2])], ids=["all", "some"])
def test_products_at_some_samples(case, v, chosen):
    bank, truth, atol = case
    idx = np.array([40, 2, 3])
    expected = truth if chosen is None else truth[chosen]
    scale = N * np.abs(v).max()
    np.testing.assert_allclose(
        bank.apply(v, chosen, idx), (v @ expected)[:, :, idx], atol=atol * scale
    )
    np.testing.assert_allclose(
        bank.apply(v[1], chosen, idx), (expected @ v[1])[:, idx], atol=atol * scale
    )


def test_tiles(case):
    bank, truth, atol = case
    rows, columns = np.array([3, 50, 7]), np.array([9, 1])
    d = np.array([0.5, 0.0, 2.0, 1.0, 0.3])
    M = np.random.default_rng(2).normal(size=(3, 2))
    part = truth[:, rows][:, :, columns]
    tile = bank.part(rows, columns)
    assert (tile.shape, tile.m) == ((3, 2), 5)
    np.testing.assert_allclose(tile.weighted(d), np.tensordot(d, part, axes=1), atol=4 * atol)
    np.testing.assert_allclose(tile.contract(M), np.sum(part * M, axis=(1, 2)), atol=6 * atol)
    np.testing.assert_allclose(tile.block(kernels=np.array([4, 1])), part[[4, 1]], atol=atol)
    w = np.array([[1.0, -2.0], [0.0, 3.0]])
    np.testing.assert_allclose(tile.apply(w), w @ part.transpose(0, 2, 1), atol=6 * atol)
    np.testing.assert_allclose(tile.apply(w[0], np.array([3])), part[[3]] @ w[0], atol=6 * atol)
    np.testing.assert_allclose(
        tile.apply(w, None, [2, 0]), w @ part[:, [2, 0]].transpose(0, 2, 1), atol=6 * atol
    )
    np.testing.assert_allclose(tile.part([1], [1]).block(), part[:, 1:2, 1:2], atol=atol)
    whole = bank.part(rows).weighted(d)
    np.testing.assert_allclose(whole, np.tensordot(d, truth[:, rows], axes=1), atol=4 * atol)


def test_quadratic_forms_and_one_product_in_one_pass(case, v):
    bank, truth, atol = case
    d = np.array([0.5, 0.0, 2.0, 1.0, 0.3])
    scale = N * np.abs(v).max()
    quad, product = bank.quad_and_product(v, d)
    np.testing.assert_allclose(quad, bank.quad(v), atol=atol * scale**2)
    np.testing.assert_allclose(product, v @ np.tensordot(d, truth, axes=1), atol=4 * atol * scale)


def test_vectors_beyond_the_range_of_float32(case, v):
    """Dual variables are as large as C is; a power of two only changes their exponents."""
    bank, _, _ = case
    d, unit = np.array([0.5, 0.0, 2.0, 1.0, 0.3]), 2.0**150
    quad, product = bank.quad_and_product(v, d)
    large_quad, large_product = bank.quad_and_product(unit * v, d)
    np.testing.assert_allclose(large_quad / unit**2, quad, rtol=1e-6)
    np.testing.assert_allclose(large_product / unit, product, atol=1e-6 * np.abs(product).max())
    np.testing.assert_allclose(bank.quad(unit * v) / unit**2, bank.quad(v), rtol=1e-6)
    products = bank.apply(v)
    atol = 1e-6 * np.abs(products).max()
    np.testing.assert_allclose(bank.apply(unit * v) / unit, products, atol=atol)


@pytest.mark.parametrize(
    "plan", [LazyBank(dtype="float64"), DenseBank(), FactoredBank(1e-12)], ids=repr
)
def test_sums_over_more_values_than_are_held_at_a_time(plan):
    """Six kernels on 1000 samples, and factors of many ranks: both are added up in pieces."""
    n, m = 1000, 6
    X = np.random.default_rng(0).normal(size=(n, 3))
    kernels = ComputedOperator.build([RBF(width=0.2 + 0.02 * k) for k in range(m)], X)
    truth, bank = kernels.block(), plan.build(kernels)
    V = np.random.default_rng(3).normal(size=(m, 2, n))
    expected = np.einsum("ktj,kji->ti", V, truth, optimize=True)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(sum_products(bank, V), expected, atol=1e-7 * scale)
    squares = np.sum(truth @ truth, axis=0)
    np.testing.assert_allclose(square_sum(bank), squares, atol=1e-7 * np.abs(squares).max())


def test_sums_of_products_and_of_squares(case):
    bank, truth, atol = case
    V = np.random.default_rng(3).normal(size=(5, 2, N))
    scale = 5 * N * np.abs(V).max()
    expected = np.einsum("ktj,kji->ti", V, truth)
    np.testing.assert_allclose(sum_products(bank, V), expected, atol=atol * scale)
    # One vector of each kernel, and memory in another order.
    np.testing.assert_allclose(sum_products(bank, V[:, 1:]), expected[1:], atol=atol * scale)
    turned = np.asfortranarray(V)
    np.testing.assert_allclose(sum_products(bank, turned), expected, atol=atol * scale)
    squares = np.sum(truth @ truth, axis=0)
    atol *= 5 * N * np.abs(truth).max()
    found = square_sum(bank)
    assert found.dtype == np.float64
    assert np.array_equal(found, found.T)
    np.testing.assert_allclose(found, squares, atol=atol)
    factor = square_factor(bank)
    if factor is not None:
        assert len(factor) < N
        np.testing.assert_allclose(factor.T @ factor, squares, atol=atol)


def test_the_bound_on_centred_eigenvalues(case):
    bank, truth, _ = case
    centre = np.eye(N) - 1.0 / N
    tops = np.array([np.linalg.eigvalsh(centre @ K @ centre)[-1] for K in truth])
    traces = np.einsum("kii->k", truth)
    bounds = bank.eigenvalue_bound()
    assert np.all(tops <= bounds + 1e-9 * traces)
    assert np.all(bounds <= traces * (1 + 1e-2))


def test_a_part_of_the_samples(case, v):
    bank, truth, atol = case
    idx = np.array([40, 2, 3, 17])
    part = bank.take(idx)
    assert (part.n, part.m, list(part.names)) == (4, 5, list(bank.names))
    expected = truth[:, idx][:, :, idx]
    np.testing.assert_allclose(part.block(np.arange(4)), expected, atol=atol)
    quad = np.einsum("ti,kij,tj->k", v[:, idx], expected, v[:, idx])
    np.testing.assert_allclose(part.quad(v[:, idx]), quad, atol=atol * 100)


@pytest.mark.parametrize("chosen", [[4, 0, 2], [2, 3, 4], [1]], ids=str)
def test_a_part_of_the_kernels(case, v, chosen):
    bank, truth, atol = case
    part = bank.select(np.array(chosen))
    expected = truth[chosen]
    assert (part.n, part.m) == (N, len(chosen))
    assert list(part.names) == [bank.names[k] for k in chosen]
    np.testing.assert_allclose(part.block(np.arange(N)), expected, atol=atol)
    np.testing.assert_allclose(part.diagonal(), np.einsum("kii->ki", expected), atol=atol)
    scale = N * np.abs(v).max()
    quad = np.einsum("ti,kij,tj->k", v, expected, v)
    np.testing.assert_allclose(part.quad(v), quad, atol=atol * scale**2)
    d = np.linspace(0.5, 1.5, len(chosen))
    combined = np.tensordot(d, expected, axes=1)
    np.testing.assert_allclose(part.weighted(d), combined, atol=5 * atol)
    whole, d_whole = bank.error(v, np.zeros(5)), np.zeros(5)
    d_whole[chosen] = d
    bound = part.error(v, d)
    np.testing.assert_allclose(bound.quad_missing, whole.quad_missing[chosen], rtol=1e-12)
    product = np.zeros_like(v) + bank.error(v, d_whole).product
    np.testing.assert_allclose(np.zeros_like(v) + bound.product, product, rtol=1e-12)
    # The chosen kernels can still be refined, and their samples taken.
    finer = part.refined()
    if finer is not None:
        assert (finer.m, list(finer.names)) == (part.m, list(part.names))
    again = part.select(np.array([len(chosen) - 1])).take(np.array([5, 1]))
    np.testing.assert_allclose(
        again.block(np.arange(2)), expected[-1:, [5, 1]][:, :, [5, 1]], atol=atol
    )


def test_selected_kernels_share_what_is_stored():
    kernels = kernel_set()
    dense = DenseBank().build(kernels)
    assert dense.select(np.array([3, 1]))._matrices[0] is dense._matrices[3]
    factored = FactoredBank().build(kernels)
    part = factored.select(np.array([1, 2, 3]))
    assert np.shares_memory(part._factors, factored._factors)
    lazy = LazyBank(3).build(kernels)
    fresh = lazy.select(np.array([2]))
    assert fresh.cache_mb == 3


def test_combinations(case):
    bank, truth, atol = case
    d = np.array([0.5, 0.0, 2.0, 0.1, 0.4])
    idx = np.array([5, 0, 33])
    expected = np.tensordot(d, truth, axes=1)
    np.testing.assert_allclose(bank.weighted(d), expected, atol=5 * atol)
    single = bank.weighted(d, out=np.empty((N, N), np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, atol=5 * atol + 1e-5 * np.abs(expected).max())
    np.testing.assert_allclose(
        bank.weighted(d, idx, idx), expected[np.ix_(idx, idx)], atol=5 * atol
    )
    for dtype in (np.float64, np.float32):
        rows = np.full((3, N), np.nan, dtype)
        assert bank.weighted(d, idx, None, rows) is rows
        rounding = 1e-5 * np.abs(expected).max() if dtype == np.float32 else 0.0
        np.testing.assert_allclose(rows, expected[idx], atol=5 * atol + rounding)


def test_diagonals(case):
    bank, truth, atol = case
    np.testing.assert_allclose(bank.diagonal(), np.einsum("kii->ki", truth), atol=atol)
    np.testing.assert_allclose(
        bank.diagonal(np.array([2])), np.einsum("kii->ki", truth[2:3]), atol=atol
    )


def test_the_stated_error_covers_the_real_one(kernels, v):
    truth = kernels.block(np.arange(kernels.n))
    quad = np.einsum("ti,kij,tj->k", v, truth, v)
    d = np.array([0.5, 0.0, 2.0, 0.1, 0.4])
    product = v @ np.tensordot(d, truth, axes=1)
    for bank in (
        FactoredBank(1e-2).build(kernels),
        FactoredBank(1e-5).build(kernels),
        DenseBank("float32").build(kernels),
        LazyBank().build(kernels),
        build_bank("auto", kernels),
    ):
        bound = bank.error(v, d)
        slack = 1e-10 * np.abs(quad).max()
        assert np.all(quad <= bank.quad(v) + bound.quad_missing + slack)
        # Factors are never above the exact kernels; float32 is off by the same bound both ways.
        assert np.all(quad >= bank.quad(v) - bound.quad_missing - slack)
        if not isinstance(bank, FactorOperator | StackedOperator):
            mine = np.tensordot(d, bank.apply(v), axes=1)
            assert np.all(np.abs(mine - product) <= bound.product + 1e-9)


def test_a_coarse_factor_has_a_real_error_and_refines_away(kernels, v):
    coarse = FactoredBank(1e-2).build(kernels)
    assert coarse.error(v, np.ones(5)).quad_missing.max() > 1e-3
    fine = coarse.refined()
    assert fine.rtol == pytest.approx(1e-4)
    assert np.all(fine.ranks >= coarse.ranks) and fine.ranks.sum() > coarse.ranks.sum()
    assert FactoredBank(1e-12).build(kernels).refined() is None


def test_refined_float32_is_float64(kernels):
    for bank in (DenseBank("float32").build(kernels), LazyBank().build(kernels)):
        fine = bank.refined()
        assert fine.dtype == "float64"
        assert fine.refined() is None


def test_an_indefinite_kernel_is_named():
    K = np.ones((4, 4)) - 2 * np.eye(4) + 2 * np.diag([1.0, 1, 1, 1])
    K[0, 1] = K[1, 0] = 3.0
    bank = DenseBank().from_matrices([np.eye(4), K], ["good", "sigmoid"])
    v = np.array([1.0, -1.0, 0.0, 0.0])
    assert bank.quad(v, np.array([0])) == pytest.approx(2.0)
    with pytest.raises(InvalidInputError, match=r"'sigmoid' is not positive.*nearest_psd"):
        bank.quad(v)
    # Rounding just below zero is not an accusation.
    flat = DenseBank().from_matrices([np.ones((4, 4)) - 1e-15 * np.eye(4)])
    assert flat.quad(v) == 0.0


def test_same_bits_for_one_and_two_threads():
    n = 1300  # Several blocks of rows and of columns, and enough work for threads.
    rng = np.random.default_rng(0)
    A = rng.normal(size=(4, n, 50))
    v = rng.normal(size=(2, n)) * (rng.random(n) < 0.4)
    matrices = [B @ B.T for B in A]
    X = rng.normal(size=(n, 40))
    thin = ComputedOperator.build([Polynomial(3).on(j) for j in range(40)], X)
    counts = sparse.random_array((n, 200), density=0.5, random_state=0, format="csr")
    wide = ComputedOperator.build([RBF(width=2.0), Linear(), RBF(width=5.0)], X)
    for build in (
        lambda: DenseBank().from_matrices(matrices),
        lambda: DenseBank("float32").build(wide),
        lambda: FactoredBank().build(thin),
        lambda: LazyBank(10).build(wide),
        lambda: SparseBank().build(ComputedOperator.build([Linear(), Linear().on([0, 7])], counts)),
        lambda: PositionalBank().build(positional_set(("center", "trace"), n)),
    ):
        answers = []
        for threads in (1, 2):
            with use_threads(threads):
                bank = build()
                d = np.linspace(1, 2, bank.m)
                V = np.random.default_rng(1).normal(size=(bank.m, *v.shape))
                answers.append(
                    (
                        bank.apply(v),
                        bank.apply(v + 1.0),
                        bank.quad(v),
                        bank.weighted(d),
                        sum_products(bank, V),
                        square_sum(bank),
                    )
                )
        for one, two in zip(*answers, strict=True):
            assert np.array_equal(one, two)


def test_degree_three_polynomial_of_one_column_has_rank_four():
    X = np.random.default_rng(0).normal(size=(80, 2))
    bank = FactoredBank().build(ComputedOperator.build([Polynomial(3).on(0)], X))
    assert bank.ranks.tolist() == [4]


def test_factors_respect_the_trace_error():
    kernels = kernel_set("trace")
    bank = FactoredBank(1e-3).build(kernels)
    missing = np.einsum("kii->ki", kernels.block(np.arange(N))) - bank.diagonal()
    assert np.all(missing >= -1e-12)
    assert np.all(missing.sum(axis=1) <= 1e-3 * N + 1e-9)


class TestChoice:
    def test_auto_factors_thin_kernels_and_keeps_the_rest_dense(self):
        X = np.random.default_rng(0).normal(size=(100, 20))
        kernels = ComputedOperator.build([Polynomial(2).on(0), RBF(width=0.5)], X)
        bank = build_bank("auto", kernels)
        assert [type(part) for part in bank.parts] == [FactorOperator, DenseOperator]

    def test_auto_computes_gaussian_kernels_that_share_columns(self):
        X = np.random.default_rng(0).normal(size=(100, 20))
        widths = [RBF(width=width) for width in (1.0, 2.0, 4.0)]
        both = [*widths, *(kernel.on(0) for kernel in widths)]
        order = [0, 3, 1, 4, 2, 5]
        kernels = ComputedOperator.build([both[k] for k in order], X)
        bank = build_bank("auto", kernels)
        assert [type(part) for part in bank.parts] == [GaussianOperator]
        assert list(bank.names) == kernels.names
        d = np.arange(6.0)
        np.testing.assert_allclose(bank.weighted(d), kernels.weighted(d), rtol=1e-5)
        # As few matrices as these stay in the cache.
        assert type(build_bank("auto", kernels, stored=True)) is DenseOperator

    def test_lazy_keeps_its_promise_for_some_of_the_kernels(self):
        X = np.random.default_rng(0).normal(size=(50, 2))
        kernels = [RBF(width=1.0).on(0), RBF(width=1.0).on(1), RBF(width=2.0).on(0)]
        bank = build_bank("lazy", ComputedOperator.build(kernels, X), cache_mb=1.0)
        for other in (bank, bank.select(np.array([0, 1])), bank.refined(), bank.exact()):
            assert other.work_bytes <= 1e6

    def test_other_kernels_are_not_taken_for_gaussian_ones(self):
        kernels = ComputedOperator.build([RBF(width=1.0), Linear()], np.eye(5))
        with pytest.raises(InvalidInputError, match="'linear' is not"):
            GaussianOperator.of(kernels)

    @pytest.mark.parametrize(("n", "kind"), [(60, ComputedOperator), (1500, GaussianOperator)])
    def test_few_exact_values_of_gaussian_kernels_compile_nothing(self, n, kind):
        X = np.random.default_rng(0).normal(size=(n, 2))
        kernels = ComputedOperator.build([RBF(width=width) for width in (1.0, 2.0, 4.0)], X)
        bank = GaussianOperator.of(kernels).in_type("float32").select(np.array([2, 0]))
        exact = bank.exact()
        assert type(exact) is kind
        assert list(exact.names) == list(bank.names)
        few = np.arange(7)
        np.testing.assert_allclose(
            exact.block(few), kernels.block(few, None, np.array([2, 0])), rtol=1e-12
        )

    def test_auto_goes_lazy_when_the_matrices_do_not_fit(self):
        X = np.random.default_rng(0).normal(size=(700, 20))
        kernels = ComputedOperator.build([Polynomial(4), Polynomial(5)], X)
        assert isinstance(build_bank("auto", kernels, cache_mb=1.0), ComputedOperator)
        assert isinstance(build_bank("auto", kernels, cache_mb=100), DenseOperator)

    def test_storage_follows_the_tolerance(self):
        kernels = kernel_set()
        assert build_bank("dense", kernels, tol=1e-3).dtype == "float32"
        assert build_bank("dense", kernels, tol=1e-6).dtype == "float64"

    def test_an_object_with_build_is_used(self):
        built = build_bank(LazyBank(3), kernel_set())
        assert (built.dtype, built.cache_mb) == ("float32", 3)

    def test_unknown_name(self):
        with pytest.raises(ValueError, match="did you mean 'dense'"):
            build_bank("dens", kernel_set())

    def test_more_than_memory_is_refused_with_the_bytes(self):
        X = np.zeros((2_000_000, 1))
        with pytest.raises(MemoryBudgetError, match=r"TB.*lazy"):
            DenseBank().build(ComputedOperator.build([RBF(width=1.0)], X))

    def test_max_rank_names_the_kernel(self):
        X = np.random.default_rng(0).normal(size=(100, 20))
        with pytest.raises(InvalidInputError, match=r"rbf\(width=0.5\).*max_rank=10"):
            FactoredBank(max_rank=10).build(ComputedOperator.build([RBF(width=0.5)], X))

    def test_bad_cache(self):
        with pytest.raises(InvalidInputError, match="cache_mb"):
            build_bank("auto", kernel_set(), cache_mb=0)


def test_the_cache_of_rows_forgets_the_oldest():
    K = np.random.default_rng(0).normal(size=(2, 50, 50))
    computed = []

    def compute(idx):
        computed.extend(idx.tolist())
        return K[:, idx]

    cache = RowCache(compute, 2, 50, 10 * 2 * 50 * 8, np.dtype(np.float64))
    assert cache.capacity == 10
    for asked, new in (
        (range(10), [*range(10)]),
        (range(5), []),
        (range(20, 25), [*range(20, 25)]),  # these take the places of rows 5..9
        (range(5), []),
        ([7], [7]),
    ):
        computed.clear()
        slab, slots = cache.slots(np.array(asked))
        np.testing.assert_array_equal(slab[slots], K[:, asked].transpose(1, 0, 2))
        assert computed == new


def test_matrices_at_odd_addresses():
    """As a message brings them; some processors end a process that reads them as BLAS does."""
    A = np.random.default_rng(0).normal(size=(12, 12))
    K = A @ A.T
    memory = np.zeros(K.nbytes + 1, np.uint8)
    odd = np.frombuffer(memory.data, np.float64, K.size, 1).reshape(K.shape)
    odd[...] = K
    assert not odd.flags.aligned
    v, banks = A[:2], [DenseBank().from_matrices([matrix]) for matrix in (K, odd)]
    answers = [
        (b.eigenvalue_bound(), b.apply(v), b.quad(v), b.weighted(np.ones(1)), square_sum(b))
        for b in banks
    ]
    for one, other in zip(*answers, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
