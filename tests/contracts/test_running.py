"""Products that follow a vector as it changes, on every bank, against matrices."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from running_banks import BANKS, N, case_of, numbers
from same_numbers import assert_same_numbers

from kernelweave.bank import BatchBank, DenseBank, LazyBank, build_bank
from kernelweave.kernels import RBF, RBFBatch
from kernelweave.operators import ComputedOperator, bind_kernels
from kernelweave.solvers.mwu import running
from kernelweave.solvers.mwu.running import rows_of_kernels, running_products


@pytest.fixture(params=list(BANKS))
def case(request):
    return case_of(request.param)


def some_moves(count=40, seed=2):
    """Steps at two samples, some of them the same again and again."""
    rng = np.random.default_rng(seed)
    favourites = rng.choice(N, 9, replace=False)
    for t in range(count):
        idx = rng.choice(favourites if t % 3 else N, 2, replace=False)
        yield np.asarray(idx), rng.normal(size=2), rng.random(5) * (rng.random(5) < 0.8)


def every_product(products):
    """K_k v of every kernel followed, which are sums with one weight of one."""
    return np.array([products.weigh(own) for own in np.eye(len(products.followed))])


def check_pair(products, truth, v, idx, scale, atol):
    """Whether the products know what moving a pair has to know of kernels followed."""
    at, block = products.pair(*map(int, idx))
    assert at.dtype == block.dtype == np.float64
    i, j = idx
    np.testing.assert_allclose(at, (truth @ v)[:, idx], atol=scale)
    expected = np.stack([truth[:, i, i], truth[:, j, j], truth[:, i, j]], axis=1)
    np.testing.assert_allclose(block, expected, atol=atol)


def test_products_follow_a_vector_as_it_moves(case):
    bank, truth, atol = case
    products = running_products(bank)
    v = np.zeros(N)
    products.reset(v)
    for t, (idx, delta, d) in enumerate(some_moves()):
        before = delta.copy()
        v[idx] += delta
        total = products.move(idx, delta, d)
        scale = atol * (1 + np.abs(v).sum())
        assert total.shape == (N,) and total.dtype == np.float64
        np.testing.assert_array_equal(delta, before)
        np.testing.assert_allclose(total, np.tensordot(d, truth, axes=1) @ v, atol=5 * scale)
        if t % 7 == 0:
            other = np.array([0.3, 0.0, 1.0, 0.2, 2.0])
            np.testing.assert_allclose(
                products.weigh(other), np.tensordot(other, truth, axes=1) @ v, atol=5 * scale
            )
            np.testing.assert_allclose(every_product(products), truth @ v, atol=scale)
            check_pair(products, truth, v, idx, scale, atol)


def test_products_start_anywhere_and_start_again(case):
    bank, truth, atol = case
    rng = np.random.default_rng(3)
    products = running_products(bank)
    d = np.array([0.5, 0.0, 2.0, 0.1, 0.4])
    for share in (1.0, 0.1, 0.0, 0.5):
        v = rng.normal(size=N) * (rng.random(N) < share)
        given = v.copy()
        products.reset(v)
        scale = atol * (1 + np.abs(v).sum())
        np.testing.assert_allclose(every_product(products), truth @ v, atol=scale)
        idx, delta = np.array([50, 3]), np.array([0.7, -0.2])
        total = products.move(idx, delta, d)
        np.testing.assert_array_equal(v, given)
        v[idx] += delta
        np.testing.assert_allclose(total, np.tensordot(d, truth, axes=1) @ v, atol=5 * scale)


def test_two_running_products_of_one_bank_do_not_meddle(case):
    bank, truth, atol = case
    one, two = running_products(bank), running_products(bank)
    one.reset(np.zeros(N))
    two.reset(np.ones(N))
    one.move(np.array([3, 3]), np.array([0.4, 0.6]), np.ones(5))
    np.testing.assert_allclose(every_product(one), truth[:, 3], atol=2 * atol)
    np.testing.assert_allclose(every_product(two), truth.sum(axis=2), atol=N * atol)


def test_pairs(case):
    bank, truth, atol = case
    products = running_products(bank)
    products.reset(np.zeros(N))
    for idx in (np.array([7, 7]), np.array([41, 2]), np.array([0, 50])):
        check_pair(products, truth, np.zeros(N), idx, atol, atol)


def test_a_move_with_no_weights_still_moves(case):
    bank, truth, atol = case
    products = running_products(bank)
    products.reset(np.zeros(N))
    nothing = products.move(np.array([4, 9]), np.array([1.0, -1.0]), np.zeros(5))
    np.testing.assert_array_equal(nothing, np.zeros(N))
    expected = truth[:, :, 4] - truth[:, :, 9]
    np.testing.assert_allclose(every_product(products), expected, atol=2 * atol)


def test_what_is_kept_is_small():
    """The m x n state, or a factor's, two rows and a few vectors; never m n^2."""
    n = 400
    for name in ("dense", "lazy-small", "factored", "thin", "sparse", "positional", "batch"):
        make, build, _ = BANKS[name]
        bank = build(make(n))
        bank.cache_mb = 2 * 5 * n * 8 / 1e6

        def moved(bank=bank):
            products = running_products(bank)
            products.reset(np.zeros(n))
            products.move(np.array([4, 9]), np.array([1.0, -1.0]), np.ones(5))
            products.pair(3, 7)
            return products

        moved()  # Compiles what is not compiled yet.
        tracemalloc.start()
        kept = moved()
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert kept.m == 5
        assert size <= 8 * 40 * n + 50_000, (name, size)


def test_starting_from_zero_computes_no_rows():
    bank = LazyBank(dtype="float64").build(numbers())
    bank.block = None
    running_products(bank).reset(np.zeros(N))


@pytest.mark.parametrize("followed", [[4, 0, 2], [1, 4], [3], [], [0, 1, 2, 3, 4]], ids=str)
def test_kernels_that_sleep_miss_nothing(case, followed):
    """In any order; of the stacked bank whole parts are frozen."""
    bank, truth, atol = case
    followed = np.array(followed, dtype=int)
    products = running_products(bank)
    v = np.random.default_rng(3).normal(size=N)
    products.reset(v)
    for again in range(2):
        products.restrict(followed)
        for idx, delta, d in some_moves(6, seed=again):
            v[idx] += delta
            own = truth[followed]
            scale = 5 * atol * (1 + np.abs(v).sum())
            d = d[: len(followed)]
            total = products.move(idx, delta, d)
            np.testing.assert_allclose(total, d @ (own @ v), atol=scale)
            np.testing.assert_allclose(products.weigh(d[::-1]), d[::-1] @ (own @ v), atol=scale)
            check_pair(products, own, v, idx, scale, atol)
        quad = products.synchronise(v)
        np.testing.assert_allclose(quad, truth @ v @ v, atol=scale * np.abs(v).sum())
        assert quad.min() >= 0
        np.testing.assert_allclose(every_product(products), truth @ v, atol=scale)
    # A fresh start wakes all of them.
    products.restrict(followed)
    products.reset(np.ones(N))
    np.testing.assert_allclose(every_product(products), truth.sum(axis=2), atol=N * atol)


def test_a_large_state_is_kept_in_float32(case, monkeypatch):
    bank, truth, atol = case
    monkeypatch.setattr(running, "_LARGE_STATE", 5 * N - 1)  # Of that size it would be 0.4 GB.
    products = running_products(bank)
    if isinstance(products, running.RowProducts):
        assert products.state.dtype == np.float32
    v = np.random.default_rng(7).normal(size=N)
    products.reset(v)
    atol = (atol + 1e-6 * np.abs(truth).max()) * (1 + np.abs(v).sum())
    np.testing.assert_allclose(every_product(products), truth @ v, atol=atol)
    for idx, delta, d in some_moves(10):
        v[idx] += delta
        total = products.move(idx, delta, d)
        np.testing.assert_allclose(total, np.tensordot(d, truth, axes=1) @ v, atol=10 * atol)


@pytest.mark.parametrize("plan", [DenseBank(), LazyBank(dtype="float64"), BatchBank("float64")])
def test_more_kernels_than_samples(plan):
    """Where there are few samples the work is cut by kernels."""
    n, m = 9, 1100
    kernels = bind_kernels(
        RBFBatch.random(m, 5, random_state=0), np.random.default_rng(0).normal(size=(n, 5))
    )
    truth = kernels.block()
    products = running_products(plan.build(kernels))
    v = np.arange(9.0)
    products.reset(v)
    d = np.random.default_rng(1).random(m)
    total = products.move(np.array([8, 1]), np.array([0.5, -2.0]), d)
    v[[8, 1]] += 0.5, -2.0
    np.testing.assert_allclose(total, d @ (truth @ v), rtol=1e-9)
    np.testing.assert_allclose(products.weigh(np.ones(m)), (truth @ v).sum(axis=0), rtol=1e-9)


def some_kernels():
    X = np.random.default_rng(3).normal(size=(40, 3))
    return ComputedOperator.build([RBF(width=w) for w in (0.5, 1.0, 2.0)], X)


@pytest.mark.parametrize("spec", ["dense", "lazy", "factored", "auto"])
def test_rows_stay_within_the_megabytes_asked_for(spec):
    bank = build_bank(spec, some_kernels(), cache_mb=0.01, tol=1e-6)
    cache = rows_of_kernels(bank, np.array([1]))
    slab, _ = cache.slots(np.array([0, 1]))
    assert slab.nbytes <= 0.005 * 1e6
    assert cache.capacity == 0.5 * bank.kept_bytes // (40 * 8)


def test_products_on_one_bank_share_the_rows_of_the_kernels_followed():
    bank = LazyBank(dtype="float64").build(some_kernels())
    one, two = running_products(bank), running_products(bank)
    for products in (one, two):
        products.restrict(np.array([2]))
    expected = one.pair(4, 5)
    bank.kernels[:] = [None] * 3  # Rows that are not there yet could not be computed.
    np.testing.assert_array_equal(two.pair(4, 5)[1], expected[1])


def test_rows_of_a_lazy_bank_for_few_kernels_do_not_compute_the_others():
    bank = LazyBank(dtype="float64").build(some_kernels())
    products = running_products(bank)
    products.restrict(np.array([0]))
    bank.kernels[1:] = [None, None]
    exact = some_kernels().block([4, 5], [4, 5], [0])[0]
    assert_same_numbers(products.pair(4, 5)[1][0], exact[[0, 1, 0], [0, 1, 1]])
