"""A batch of kernels answers like the same kernels one by one."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from same_numbers import assert_same_numbers
from scipy import sparse
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

from kernelweave.bank import BatchBank, FactoredBank, LazyBank, build_bank
from kernelweave.bayes.sums import square_factor, square_sum, sum_products
from kernelweave.compiled.threads import use_threads
from kernelweave.errors import InvalidInputError, MemoryBudgetError
from kernelweave.kernels import RBF, Linear, RBFBatch, Samples, resolve
from kernelweave.operators import ComputedOperator, GaussianOperator, StackedOperator, bind_kernels

FEATURES = 10


def batch(m=9, high=8, **kwargs):
    return RBFBatch.random(m, FEATURES, sizes=(1, high), widths=(0.7, 1, 3), **kwargs)


def data(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, FEATURES))


def one_by_one(described):
    """The kernels of a batch as Python objects."""
    return [
        RBF(gamma=float(gamma)).on([int(j) for j in own if j >= 0], described.transformer)
        for own, gamma in zip(described.columns, described.gamma, strict=True)
    ]


def truth(described, X, Z=None):
    kernels = ComputedOperator.build(one_by_one(described), X)
    return kernels.block(np.arange(len(X))) if Z is None else kernels.against(Z).block()


def some(n, seed=1, tasks=2, share=0.6):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(tasks, n)) * (rng.random(n) < share)


class TestDescription:
    def test_value_semantics(self):
        first = RBFBatch([[0, -1], [1, 2]], [1.0, 2.0])
        same = RBFBatch(np.array([[0, -1], [1, 2]]), np.array([1.0, 2.0]))
        assert first == same and hash(first) == hash(same)
        assert first != RBFBatch([[0, -1], [1, 2]], [1.0, 3.0])
        assert first != RBFBatch([[0, -1], [1, 2]], [1.0, 2.0], transformer=StandardScaler())
        assert clone(first) is first
        assert pickle.loads(pickle.dumps(first)) == first
        assert repr(first) == "RBFBatch(columns=<array 2 x 2>, gamma=<array 2>)"
        assert first.m == 2

    @pytest.mark.parametrize(
        ("columns", "gamma", "message"),
        [
            ([0, 1], [1.0], "2-D"),
            ([[0.5]], [1.0], "integers"),
            (np.empty((0, 2), int), [], "non-empty"),
            ([[0], [1]], [1.0], "each of the 2 rows"),
            ([[0], [1]], [1.0, 0.0], "got 0.0 for kernel 1"),
            ([[0], [1]], [np.nan, 1.0], "got nan for kernel 0"),
            ([[0], [1]], [np.inf, 1.0], "got inf for kernel 0"),
            ([[0], [10]], [1.0, 1.0], "0 to 9 .* got 10 for kernel 1"),
            ([[0, -2]], [1.0], "got -2 for kernel 0"),
            ([[0, 1], [-1, -1]], [1.0, 1.0], "kernel 1 has none"),
            ([[0, 1, 0]], [1.0], "kernel 0 names column 0 twice"),
        ],
    )
    def test_bad_arrays_are_refused_when_bound(self, columns, gamma, message):
        with pytest.raises(InvalidInputError, match=message):
            bind_kernels(RBFBatch(columns, gamma), data(5))

    def test_padding_may_stand_anywhere(self):
        X = data(6)
        here = bind_kernels(RBFBatch([[-1, 3, -1, 1]], [0.5]), X)
        assert here.names[0] == "rbf(gamma=0.5) on columns 1, 3"
        there = ComputedOperator.build(RBF(gamma=0.5).on([1, 3]), X)
        np.testing.assert_allclose(here.block([2]), there.block([2]), rtol=1e-12)

    def test_random_batches(self):
        drawn = RBFBatch.random(5000, 6, sizes=(2, 4), widths=(1, 2), random_state=3)
        assert drawn == RBFBatch.random(5000, 6, sizes=(2, 4), widths=(1, 2), random_state=3)
        sizes = (drawn.columns >= 0).sum(axis=1)
        assert np.bincount(sizes, minlength=5)[2:].min() > 1500
        assert set(drawn.gamma) == {0.5, 0.125}
        # Every column is drawn as often as any other: 3 of 6 on average.
        counts = np.bincount(drawn.columns[drawn.columns >= 0], minlength=6)
        np.testing.assert_allclose(counts, 2500, rtol=0.06)
        bind_kernels(drawn, np.zeros((2, 6)))  # no repeats, no empty rows

    @pytest.mark.parametrize(
        "bad", [{"sizes": (0, 2)}, {"sizes": (1, 11)}, {"widths": ()}, {"widths": (0,)}, {"m": 0}]
    )
    def test_random_batches_check_their_parameters(self, bad):
        with pytest.raises(InvalidInputError):
            RBFBatch.random(**{"m": 5, "n_features": 10, **bad})


class TestSharedColumns:
    """Neighbours on the same columns share their distances, at most 64 of them."""

    def shared(self, n=37):
        columns = [[3, 1, -1]] * 70 + [[3, 1, 2]] * 2 + [[5, -1, -1], [3, 1, -1]]
        gamma = np.concatenate([np.geomspace(1e-6, 30.0, 70), [2.0, 1e-3, 0.5, 1.0]])
        return RBFBatch(columns, gamma), 40.0 + data(n)

    @pytest.mark.parametrize(("dtype", "atol"), [("float64", 1e-13), ("float32", 2e-5)])
    def test_answers(self, dtype, atol):
        described, X = self.shared()
        K, own = truth(described, X), bind_kernels(described, X).in_type(dtype)
        v, d = some(len(X)), np.linspace(0.0, 1.0, described.m)
        size = np.abs(v).sum() ** 2
        np.testing.assert_allclose(own.block(), K, atol=atol)
        quad = np.einsum("ti,kij,tj->k", v, K, v)
        np.testing.assert_allclose(own.quad(v), quad, atol=atol * size)
        np.testing.assert_allclose(own.apply(v), np.einsum("kij,tj->kti", K, v), atol=atol * size)
        np.testing.assert_allclose(own.weighted(d), np.tensordot(d, K, 1), atol=atol * d.sum())
        few = np.array([1, 69, 70, 72])
        np.testing.assert_allclose(own.quad(v, few), own.quad(v)[few], atol=atol * size)

    def test_huge_numbers_in_other_columns(self):
        X = np.column_stack([1.6e18 + 3e16 * data(50)[:, 0], data(50)[:, 1]])
        kernels = ComputedOperator.build([RBF(gamma=1e-33).on(0), RBF(gamma=2.0).on(1)], X)
        bank = build_bank("auto", kernels)
        np.testing.assert_allclose(bank.block(), kernels.block(), atol=1e-5)

    def test_the_vector_zero(self):
        many = bind_kernels(RBFBatch([[1]] * 300, [1.0] * 300), data(5))
        np.testing.assert_array_equal(many.quad(np.zeros(5)), np.zeros(300))

    def test_an_offset_costs_no_digits_in_float64(self):
        described = RBFBatch([[0, 1], [0, 1]], [1.0, 0.1])
        X = np.random.default_rng(0).normal(size=(20, FEATURES))
        far = np.round(X, 3) + 2.0**33
        near = far - 2.0**33
        own, same = bind_kernels(described, far), bind_kernels(described, near)
        np.testing.assert_allclose(own.block(), same.block(), rtol=1e-13)


class TestSet:
    @pytest.mark.parametrize("transformer", [None, StandardScaler()], ids=["plain", "scaled"])
    @pytest.mark.parametrize("normalize", ["trace", "diagonal", None])
    def test_values(self, transformer, normalize):
        X, Z = 5 + 3 * data(11), 5 + 3 * data(6, seed=1)
        described = batch(transformer=transformer)
        kernels = bind_kernels(described, X, normalize)
        if transformer is None:
            assert isinstance(kernels, GaussianOperator)
        scaled = X if transformer is None else StandardScaler().fit_transform(X)
        new = Z if transformer is None else StandardScaler().fit(X).transform(Z)
        plain = RBFBatch(described.columns, described.gamma)
        expected = truth(plain, scaled)
        np.testing.assert_allclose(kernels.block([3, 1]), expected[:, [3, 1]], atol=1e-13)
        np.testing.assert_allclose(
            kernels.block([3], [5, 6], [2, 0]), expected[[2, 0]][:, [3]][:, :, [5, 6]], atol=1e-13
        )
        single = kernels.in_type("float32").block([3, 1])
        assert single.dtype == np.float32
        np.testing.assert_allclose(single, expected[:, [3, 1]], atol=1e-5)
        np.testing.assert_array_equal(kernels.diagonal([1]), np.ones((1, 11)))
        cross = truth(plain, scaled, new)
        np.testing.assert_allclose(kernels.against(Z).block(), cross, atol=1e-13)
        np.testing.assert_allclose(
            kernels.against(Z).block(columns=[4, 2], kernels=[1]), cross[[1]][:, :, [4, 2]]
        )
        np.testing.assert_allclose(kernels.between(Z, X).block(), cross, atol=1e-13)
        assert kernels.sample_ids_of([0]) == {}

    def test_tiles(self):
        X, Z = data(530), data(35, seed=1)
        described = batch()
        kernels = bind_kernels(described, X)
        expected = truth(described, X, Z)
        d = np.array([0.5, 0, 0, 2, 0.1, 0, 1, 1, 0])
        M = np.random.default_rng(0).normal(size=(35, 530))
        for tile in (kernels.against(Z).part(), kernels.between(Z, X)):
            assert (tile.shape, tile.m) == ((35, 530), 9)
            np.testing.assert_allclose(tile.weighted(d), np.tensordot(d, expected, 1), atol=1e-12)
            np.testing.assert_allclose(tile.block(kernels=[8, 0]), expected[[8, 0]], atol=1e-13)
            np.testing.assert_allclose(tile.contract(M), (expected * M).sum((1, 2)), atol=1e-10)
        small = kernels.against(Z).part(None, [7, 1, 2], np.float32)
        assert small.weighted(d).dtype == np.float32
        np.testing.assert_allclose(
            small.weighted(d), np.tensordot(d, expected[:, :, [7, 1, 2]], 1), atol=1e-5
        )

    def test_names_are_written_when_they_are_read(self):
        frame = pd.DataFrame(data(5), columns=list("abcdefghij"))
        described = RBFBatch([[0, -1], [2, 1]], [0.5, 0.25], transformer=StandardScaler())
        names = bind_kernels(described, frame).names
        assert names[0] == "rbf(gamma=0.5) on a via StandardScaler"
        assert names[-1] == "rbf(gamma=0.25) on b, c via StandardScaler"
        assert len(names) == 2 and list(names) == names[:] and names == names[:]
        with pytest.raises(IndexError):
            names[2]

    def test_frames_may_come_in_another_order(self):
        frame = pd.DataFrame(data(5), columns=list("abcdefghij"))
        frame["text"] = "x"  # not read by any kernel
        kernels = bind_kernels(batch(), frame)
        assert_same_numbers(
            kernels.against(frame).block(), kernels.against(frame[frame.columns[::-1]]).block()
        )

    def test_sparse_data(self):
        X = data(12) * (np.random.default_rng(5).random((12, FEATURES)) < 0.3)
        there = bind_kernels(batch(), X).block(np.arange(12))
        kernels = bind_kernels(batch(), sparse.csr_matrix(X))
        np.testing.assert_allclose(kernels.block(np.arange(12)), there, atol=1e-14)
        np.testing.assert_allclose(kernels.against(sparse.csr_matrix(X)).block(), there, atol=1e-14)

    def test_pickles(self):
        X = data(7)
        kernels = bind_kernels([batch(transformer=StandardScaler()), Linear()], X)
        copy = pickle.loads(pickle.dumps(kernels))
        assert_same_numbers(copy.against(X[:2]).block(), kernels.against(X[:2]).block())

    def test_refusals(self):
        with pytest.raises(InvalidInputError, match=r"centred.*'diagonal'"):
            bind_kernels(batch(), data(5), ("center", "trace"))
        kernels = bind_kernels(batch(), data(5))
        with pytest.raises(InvalidInputError, match=r"3 columns.*10"):
            kernels.against(data(2)[:, :3]).block()
        with pytest.raises(InvalidInputError, match="sample indices"):
            kernels.block([5])
        with pytest.raises(InvalidInputError, match="kernel indices"):
            kernels.block([0], None, [9])
        with pytest.raises(InvalidInputError, match="many kernels in one object"):
            resolve(batch(), Samples(data(5)))
        with pytest.raises(InvalidInputError, match="got ComputedOperator"):
            BatchBank().build(ComputedOperator.build("linear", data(5)))

    def test_huge_numbers_do_not_overflow(self):
        X = np.array([[0.0], [1e30], [-1e30], [1e30]])
        kernels = bind_kernels(RBFBatch([[0], [0]], [1e300, 1e-60]), X)
        for dtype in ("float32", "float64"):
            values = kernels.in_type(dtype).block(np.arange(4))
            expected = [1.0, 0.0, 0.0, 0.0]
            np.testing.assert_allclose(values[0, 0], expected, atol=1e-30)
            np.testing.assert_allclose(values[1, 0], np.exp([0.0, -1, -1, -1]), rtol=1e-6)
            assert np.all(values[:, 1, 3] == 1.0)


class TestComposite:
    def spec(self):
        return [Linear(), batch(), RBF(width=1), batch(4, 2, random_state=7), Linear()]

    def reference(self, X):
        first, second = batch(), batch(4, 2, random_state=7)
        return [Linear(), *one_by_one(first), RBF(width=1), *one_by_one(second), Linear()]

    def test_values_in_order(self):
        X, Z = data(11), data(6, seed=1)
        kernels = bind_kernels(self.spec(), X)
        assert isinstance(kernels, StackedOperator)
        there = ComputedOperator.build(self.reference(X), X)
        assert (kernels.n, kernels.m) == (11, 16)
        assert list(kernels.names) == there.names
        np.testing.assert_allclose(kernels.block([4, 2]), there.block([4, 2]), atol=1e-13)
        np.testing.assert_allclose(
            kernels.block([4], [1], [15, 3]), there.block([4], [1], [15, 3]), atol=1e-13
        )
        np.testing.assert_allclose(kernels.diagonal(), there.diagonal())
        np.testing.assert_allclose(kernels.against(Z).block(), there.against(Z).block(), atol=1e-13)
        np.testing.assert_allclose(
            kernels.against(Z).block(columns=[2, 1], kernels=[10]),
            there.against(Z).block(columns=[2, 1], kernels=[10]),
            atol=1e-13,
        )
        np.testing.assert_allclose(
            kernels.between(Z, Z).block(), there.between(Z, Z).block(), atol=1e-13
        )
        d = np.linspace(0, 1, 16) * (np.arange(16) % 3 > 0)
        M = np.random.default_rng(0).normal(size=(6, 11))
        for tile, other in (
            (kernels.against(Z).part(), there.against(Z).part()),
            (kernels.between(Z, X), there.between(Z, X)),
        ):
            assert (tile.shape, tile.m) == ((6, 11), 16)
            np.testing.assert_allclose(tile.weighted(d), other.weighted(d), atol=1e-12)
            np.testing.assert_allclose(
                tile.block(kernels=[12, 0]), other.block(kernels=[12, 0]), atol=1e-12
            )
            np.testing.assert_allclose(tile.contract(M), other.contract(M), atol=1e-12)

    def test_bank(self):
        X = data(40)
        bank = build_bank("auto", bind_kernels(self.spec(), X))
        assert isinstance(bank, StackedOperator)
        expected = ComputedOperator.build(self.reference(X), X)
        assert list(bank.names) == expected.names
        v = some(40)
        quad = np.einsum("ti,kij,tj->k", v, expected.block(np.arange(40)), v)
        np.testing.assert_allclose(bank.quad(v), quad, atol=1e-3)
        part = bank.select(np.array([14, 2]))
        np.testing.assert_allclose(part.quad(v), quad[[14, 2]], atol=1e-3)
        assert list(part.names) == [expected.names[14], expected.names[2]]


BANKS = {
    "float32": (lambda ks: BatchBank().build(ks), 1e-6),
    "float64": (lambda ks: BatchBank("float64").build(ks), 1e-14),
    "auto": (lambda ks: build_bank("auto", ks), 1e-6),
    "dense": (lambda ks: build_bank("dense", ks, tol=1e-6), 1e-14),
    "factored": (lambda ks: build_bank(FactoredBank(1e-12), ks), 1e-7),
    "lazy rows": (lambda ks: build_bank(LazyBank(dtype="float64"), ks), 1e-14),
}


# Even and odd, one, below and above the length of an inner loop.
@pytest.fixture(params=[1, 2, 5, 8, 41, 60, 513], ids=lambda n: f"n{n}")
def n(request):
    return request.param


@pytest.fixture(params=list(BANKS))
def case(request, n):
    if n == 513 and request.param not in ("float32", "float64"):
        pytest.skip("one size is enough for banks tested elsewhere")
    build, atol = BANKS[request.param]
    X = data(n)
    return build(bind_kernels(batch(), X)), truth(batch(), X), atol


@pytest.mark.parametrize("chosen", [None, np.array([4, 0, 2])], ids=["all", "some"])
def test_every_answer(case, n, chosen):
    bank, K, atol = case
    part = K if chosen is None else K[chosen]
    for v in (some(n), some(n, share=1.0), np.zeros((2, n))):
        size = np.abs(v).sum(axis=1, keepdims=True) + 1e-300
        np.testing.assert_allclose(
            bank.quad(v, chosen),
            np.einsum("ti,kij,tj->k", v, part, v),
            atol=4 * atol * (size**2).sum(),
        )
        np.testing.assert_allclose(bank.apply(v, chosen) / size, v @ part / size, atol=4 * atol)
        idx = np.array([n - 1, 0, n // 2])
        np.testing.assert_allclose(
            bank.apply(v, chosen, idx) / size, (v @ part)[:, :, idx] / size, atol=4 * atol
        )
        assert bank.quad(v[0], chosen).shape == (len(part),)
        assert bank.apply(v[0], chosen).shape == (len(part), n)
        assert bank.apply(v[0], chosen, idx).shape == (len(part), 3)
    idx, columns = np.array([n // 2, 0]), np.array([n - 1])
    np.testing.assert_allclose(bank.block(idx, None, chosen), part[:, idx], atol=4 * atol)
    np.testing.assert_allclose(
        bank.block(idx, columns, chosen), part[:, idx][:, :, columns], atol=4 * atol
    )
    np.testing.assert_allclose(bank.diagonal(chosen), np.ones((len(part), n)), atol=4 * atol)


def test_sums_of_kernels(case, n):
    bank, K, atol = case
    d = np.array([0.5, 0, 0, 2, 0.1, 0, 1, 1, 0])
    expected = np.tensordot(d, K, axes=1)
    np.testing.assert_allclose(bank.weighted(d), expected, atol=20 * atol)
    single = bank.weighted(d, out=np.empty((n, n), np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, atol=1e-5)
    np.testing.assert_array_equal(bank.weighted(np.zeros(9)), np.zeros((n, n)))
    idx = np.array([n // 2, 0])
    block = np.ix_(idx, idx)
    np.testing.assert_allclose(bank.weighted(d, idx, idx), expected[block], atol=20 * atol)
    tile = bank.part(idx, None, np.float64)
    np.testing.assert_allclose(tile.weighted(d), expected[idx], atol=20 * atol)
    np.testing.assert_allclose(
        tile.contract(np.ones((2, n))), K[:, idx].sum(axis=(1, 2)), atol=4 * n * atol
    )


def test_sums_of_products_and_of_squares(case, n):
    bank, K, atol = case
    V = np.random.default_rng(3).normal(size=(9, 2, n))
    expected = np.einsum("ktj,kji->ti", V, K)
    np.testing.assert_allclose(sum_products(bank, V), expected, atol=4 * atol * np.abs(V).sum())
    squares = np.sum(K @ K, axis=0)
    np.testing.assert_allclose(square_sum(bank), squares, atol=2 * 4 * atol * 9 * n)
    factor = square_factor(bank)
    if factor is not None:
        np.testing.assert_allclose(factor.T @ factor, squares, atol=2 * 4 * atol * 9 * n)


def test_parts_of_a_batch(case, n):
    bank, K, atol = case
    v = some(n)
    size = (np.abs(v).sum(axis=1) ** 2).sum()
    chosen, idx = np.array([7, 3]), np.arange(n - 1, -1, -2)
    part = bank.select(chosen).take(idx)
    assert (part.n, part.m) == (len(idx), 2)
    assert list(part.names) == [bank.names[7], bank.names[3]]
    expected = K[chosen][:, idx][:, :, idx]
    quad = np.einsum("ti,kij,tj->k", v[:, idx], expected, v[:, idx])
    np.testing.assert_allclose(part.quad(v[:, idx]), quad, atol=4 * atol * size)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_quadratic_forms_and_a_product_in_one_pass(n, dtype):
    X = data(n)
    bank = BatchBank(dtype).build(bind_kernels(batch(100), X))
    d = np.linspace(0, 1, 100) * (np.arange(100) % 4 > 0)
    for v in (some(n), some(n, share=1.0), np.zeros((2, n))):
        quad, product = bank.quad_and_product(v, d)
        size = np.abs(v).sum() + 1
        atol = (1e-6 if dtype == "float32" else 1e-13) * size
        np.testing.assert_allclose(quad, bank.quad(v), atol=atol * size)
        np.testing.assert_allclose(product, v @ bank.weighted(d), atol=100 * atol)
        assert bank.quad_and_product(v[0], d)[1].shape == (1, n)


@pytest.mark.parametrize("spread", [1e-2, 1.0, 30.0, 1e4])
def test_the_stated_error_covers_the_real_one(spread):
    X = 3.0 + spread * data(150)
    described = batch(60)
    bank = BatchBank().build(bind_kernels(described, X))
    K, d = truth(described, X), np.linspace(0, 1, 60)
    # Ones find errors of one sign; only some weights may be below zero, where the form is small.
    for v in (np.ones((1, 150)), some(150), 1e3 * some(150, seed=2)):
        bound = bank.error(v, d)
        quad = np.einsum("ti,kij,tj->k", v, K, v)
        assert np.all(np.abs(quad - bank.quad(v)) <= bound.quad_missing)
        product = v @ np.tensordot(d, K, axes=1)
        assert np.all(np.abs(np.tensordot(d, bank.apply(v), 1) - product) <= bound.product)
    unit = bank.error(np.eye(150)[:1], d).quad_missing
    assert np.all(np.abs(bank.block(np.arange(150)) - K).max(axis=(1, 2)) <= unit)
    if spread <= 1:
        assert unit.max() < 1e-5


def test_refined_is_float64_and_exact():
    bank = BatchBank().build(bind_kernels(batch(), data(20)))
    fine = bank.refined()
    assert fine.dtype == "float64" and fine.refined() is None
    assert np.all(fine.error(np.ones(20), np.ones(9)).quad_missing == 0)


def test_same_bits_for_one_and_two_threads():
    bank = BatchBank().build(bind_kernels(batch(700, 5), data(150)))
    v, d = some(150), np.linspace(0, 1, 700)
    answers = []
    for threads in (1, 2):
        with use_threads(threads):
            tile = bank.part(np.arange(50))
            answers.append(
                (
                    bank.quad(v),
                    bank.apply(v),
                    bank.weighted(d),
                    sum_products(bank, np.sin(d)[:, None, None] * v),
                    square_sum(bank),
                    *bank.quad_and_product(v, d),
                    tile.weighted(d),
                    tile.contract(np.ones((50, 150))),
                )
            )
    for one, two in zip(*answers, strict=True):
        assert np.array_equal(one, two)


@pytest.fixture(scope="module")
def many():
    described = RBFBatch.random(100_000, FEATURES)
    return bind_kernels(described, data(2000))


def test_nothing_of_size_m_times_n_appears(many):
    bank = build_bank("auto", many)
    assert isinstance(bank, GaussianOperator)
    held = sum(own.nbytes for own in vars(bank).values() if isinstance(own, np.ndarray))
    assert held < 40 * bank.m and bank.sample_columns.nbytes <= 8 * 2000 * FEATURES
    v = np.zeros(2000)
    v[[3, 50, 700]] = 1.0
    d = np.zeros(bank.m)
    d[5] = 1.0
    bound = bank.error(v, d)
    assert bound.quad_missing.shape == (bank.m,) and bound.product.shape == (1, 2000)
    assert bank.diagonal().strides == (0, 0)
    assert bank.quad(v).shape == (bank.m,)
    assert bank.select(np.arange(0, bank.m, 2)).names[1] == bank.names[2]
    assert bank.weighted(np.ones(bank.m), np.array([0, 9]), np.array([0, 9])).shape == (2, 2)


def test_what_does_not_fit_is_refused_with_the_bytes(many):
    with pytest.raises(MemoryBudgetError, match=r"100000 dense .* need 1.6 TB"):
        build_bank("dense", many)
    with pytest.raises(MemoryBudgetError, match="2000 rows of 100000 kernels"):
        build_bank("auto", many).block(np.arange(2000))
