"""Products that follow a vector as it changes, on every bank, against matrices."""

from __future__ import annotations

import numpy as np
import pytest
from running_banks import BANKS, N, case_of, numbers
from same_numbers import assert_same_numbers

from kernelweave.bank import LazyBank, build_bank
from kernelweave.kernels import RBF
from kernelweave.operators import ComputedOperator
from kernelweave.operators import running as state
from kernelweave.operators.running import RowProducts


@pytest.fixture(params=list(BANKS))
def case(request):
    return case_of(request.param)


def some_moves(count=40, seed=2):
    """Steps at one or two samples, some of them the same again and again."""
    rng = np.random.default_rng(seed)
    favourites = rng.choice(N, 9, replace=False)
    for t in range(count):
        idx = rng.choice(favourites if t % 3 else N, 1 + (t % 4 > 0), replace=False)
        yield np.asarray(idx), rng.normal(size=len(idx)), rng.random(5) * (rng.random(5) < 0.8)


def test_products_follow_a_vector_as_it_moves(case):
    bank, truth, atol = case
    products = bank.running()
    v = np.zeros(N)
    products.reset(v)
    everyone = np.arange(N)
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
            found = products.at(everyone)
            assert found.shape == (5, N) and found.dtype == np.float64
            np.testing.assert_allclose(found, truth @ v, atol=scale)
            np.testing.assert_allclose(products.at(idx), (truth @ v)[:, idx], atol=scale)


def test_products_start_anywhere_and_start_again(case):
    bank, truth, atol = case
    rng = np.random.default_rng(3)
    products = bank.running()
    d = np.array([0.5, 0.0, 2.0, 0.1, 0.4])
    for share in (1.0, 0.1, 0.0, 0.5):
        v = rng.normal(size=N) * (rng.random(N) < share)
        given = v.copy()
        products.reset(v)
        scale = atol * (1 + np.abs(v).sum())
        np.testing.assert_allclose(products.at(np.arange(N)), truth @ v, atol=scale)
        idx, delta = np.array([50, 3]), np.array([0.7, -0.2])
        total = products.move(idx, delta, d)
        np.testing.assert_array_equal(v, given)
        v[idx] += delta
        np.testing.assert_allclose(total, np.tensordot(d, truth, axes=1) @ v, atol=5 * scale)


def test_two_running_products_of_one_bank_do_not_meddle(case):
    bank, truth, atol = case
    one, two = bank.running(), bank.running()
    one.reset(np.zeros(N))
    two.reset(np.ones(N))
    one.move(np.array([3]), np.array([1.0]), np.ones(5))
    everyone = np.arange(N)
    np.testing.assert_allclose(one.at(everyone), truth[:, 3], atol=2 * atol)
    np.testing.assert_allclose(two.at(everyone), truth.sum(axis=2), atol=N * atol)


def test_blocks(case):
    bank, truth, atol = case
    products = bank.running()
    products.reset(np.zeros(N))
    for idx in (np.array([7]), np.array([41, 2]), np.array([5, 50, 0])):
        block = products.block(idx)
        assert block.shape == (5, len(idx), len(idx))
        np.testing.assert_allclose(block, truth[:, idx][:, :, idx], atol=atol)


def test_a_move_with_no_weights_still_moves(case):
    bank, truth, atol = case
    products = bank.running()
    products.reset(np.zeros(N))
    nothing = products.move(np.array([4, 9]), np.array([1.0, -1.0]), np.zeros(5))
    np.testing.assert_array_equal(nothing, np.zeros(N))
    expected = truth[:, :, 4] - truth[:, :, 9]
    np.testing.assert_allclose(products.at(np.arange(N)), expected, atol=2 * atol)


def test_what_is_kept_is_counted_and_small(case):
    bank, _, _ = case
    products = bank.running()
    products.reset(np.zeros(N))
    products.move(np.array([4, 9]), np.array([1.0, -1.0]), np.ones(5))
    # The m x n state, or a factor's, and a few vectors; never m n^2.
    assert 0 < products.nbytes <= 8 * (5 * N + 20 * N)


def test_starting_from_zero_computes_no_rows():
    bank = LazyBank(dtype="float64").build(numbers())
    bank.running().reset(np.zeros(N))
    assert bank._cache.misses == 0


@pytest.mark.parametrize("followed", [[4, 0, 2], [1, 4], [3], [], [0, 1, 2, 3, 4]], ids=str)
def test_kernels_that_sleep_miss_nothing(case, followed):
    """In any order; of the stacked bank whole parts are frozen."""
    bank, truth, atol = case
    followed = np.array(followed, dtype=int)
    products = bank.running()
    v = np.random.default_rng(3).normal(size=N)
    products.reset(v)
    everyone = np.arange(N)
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
            np.testing.assert_allclose(products.at(idx), (own @ v)[:, idx], atol=scale)
            pair = own[:, idx][:, :, idx]
            np.testing.assert_allclose(products.block(idx), pair, atol=atol)
            at, both = products.pair(int(idx[0]), int(idx[-1]))
            np.testing.assert_allclose(at, (own @ v)[:, idx[[0, -1]]], atol=scale)
            expected = np.stack([pair[:, 0, 0], pair[:, -1, -1], pair[:, 0, -1]], axis=1)
            np.testing.assert_allclose(both, expected, atol=atol)
        quad = products.synchronise(v)
        np.testing.assert_allclose(quad, truth @ v @ v, atol=scale * np.abs(v).sum())
        assert quad.min() >= 0
        np.testing.assert_allclose(products.at(everyone), truth @ v, atol=scale)
    # A fresh start wakes all of them.
    products.restrict(followed)
    products.reset(np.ones(N))
    np.testing.assert_allclose(products.at(everyone), truth.sum(axis=2), atol=N * atol)


def test_a_large_state_is_kept_in_float32(case, monkeypatch):
    bank, truth, atol = case
    monkeypatch.setattr(state, "_LARGE_STATE", 5 * N - 1)
    products = bank.running()
    if isinstance(products, state.StateProducts):
        assert products.nbytes == 4 * 5 * N
    v = np.random.default_rng(7).normal(size=N)
    products.reset(v)
    atol = (atol + 1e-6 * np.abs(truth).max()) * (1 + np.abs(v).sum())
    found = products.at(np.arange(N))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, truth @ v, atol=atol)
    for idx, delta, d in some_moves(10):
        v[idx] += delta
        total = products.move(idx, delta, d)
        np.testing.assert_allclose(total, np.tensordot(d, truth, axes=1) @ v, atol=10 * atol)


@pytest.mark.parametrize("name", list(BANKS))
def test_more_kernels_than_samples(name):
    """Where there are few samples the work is cut by kernels."""
    make, build, atol = BANKS[name]
    kernels = make(9)
    n, m = 9, 5
    bank = build(kernels)
    truth = bank.block(np.arange(n)).astype(float)
    atol *= 100 * np.abs(truth).max()
    for limit in (0, 16):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(state, "_MANY_KERNELS", limit)
            products = bank.running()
            products.reset(np.arange(9.0))
            total = products.move(np.array([8, 1]), np.array([0.5, -2.0]), np.arange(5.0))
            v = np.arange(9.0)
            v[[8, 1]] += 0.5, -2.0
            np.testing.assert_allclose(total, np.arange(5.0) @ (truth @ v), atol=atol)
            np.testing.assert_allclose(
                products.weigh(np.ones(m)), (truth @ v).sum(axis=0), atol=atol
            )


def some_kernels():
    X = np.random.default_rng(3).normal(size=(40, 3))
    return ComputedOperator.build([RBF(width=w) for w in (0.5, 1.0, 2.0)], X)


@pytest.mark.parametrize("spec", ["dense", "lazy", "factored", "auto"])
def test_rows_stay_within_the_megabytes_asked_for(spec):
    bank = build_bank(spec, some_kernels(), cache_mb=0.01, tol=1e-6)
    products = RowProducts(bank)
    products.restrict(np.array([1]))
    products.block(np.array([0, 1]))
    assert products._cache.nbytes <= 0.005 * 1e6
    assert products._cache.capacity == min(0.005 * 1e6, bank.kept_bytes) // (40 * 8)


def test_products_on_one_bank_share_the_rows_of_the_kernels_followed():
    bank = LazyBank(dtype="float64").build(some_kernels())
    one, two = bank.running(), bank.running()
    for products in (one, two):
        products.restrict(np.array([2]))
        products.block(np.array([4, 5]))
    assert one._cache is two._cache
    assert (one._cache.hits, one._cache.misses) == (2, 2)


def test_rows_of_a_lazy_bank_for_few_kernels_do_not_compute_the_others(monkeypatch):
    bank = LazyBank(dtype="float64").build(some_kernels())
    products = bank.running()
    products.restrict(np.array([0]))
    monkeypatch.setattr(bank._cache, "_compute", None)
    assert_same_numbers(
        products.block(np.array([4, 5]))[0], some_kernels().block([4, 5], [4, 5], [0])[0]
    )
