"""Linear systems with matrices of every kind: definite, singular, badly scaled, tiny and empty."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from kernelweave.linear_systems import (
    LinAlgError,
    cholesky,
    conjugate_gradients,
    diagonal,
    jittered_cholesky,
    pivoted_cholesky,
    with_low_rank,
)

pytestmark = pytest.mark.filterwarnings("error")


def matrix_of(kind: str, n: int) -> np.ndarray:
    """A positive semi-definite matrix."""
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, max(n, 1)))
    if kind == "singular":
        X = X[:, : max(1, n // 3)]
    elif kind == "badly scaled":
        X = X * np.geomspace(1e-8, 1e8, n)[:, None]
    elif kind == "zero":
        X = 0.0 * X
    K = X @ X.T
    return 0.5 * (K + K.T)


KINDS = ["random", "singular", "badly scaled", "zero"]
every_matrix = pytest.mark.parametrize(
    ("kind", "n"), [(kind, n) for kind in KINDS for n in (0, 1, 2, 7, 60)]
)


@every_matrix
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_jittered_factor_is_that_of_the_matrix_and_little_more(kind, n, dtype) -> None:
    K = matrix_of(kind, n).astype(dtype)
    before = K.copy()
    L = jittered_cholesky(K)
    np.testing.assert_array_equal(K, before)
    assert L.dtype == dtype and L.shape == (n, n)
    np.testing.assert_array_equal(L, np.tril(L))
    assert np.all(L.diagonal() > 0)
    error = np.abs(L.astype(np.float64) @ L.T.astype(np.float64) - K)
    assert np.all(error <= 3e3 * np.finfo(dtype).eps * (np.abs(K).max(initial=0.0) or 1.0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_large_matrix_of_rank_one(dtype) -> None:
    K = np.ones((1500, 1500), dtype)
    # How much rounding takes of such pivots depends on the processor; callers allow for more.
    L = jittered_cholesky(K, np.ones(1500), 1e-5, most=1.0)
    np.testing.assert_allclose(L @ L.T, K, atol=0.02)


def test_what_is_added_is_what_was_asked_for() -> None:
    K, unit = np.ones((3, 3)), np.array([1.0, 2.0, 3.0])
    L = jittered_cholesky(K, unit, first=0.5, most=1.0)
    np.testing.assert_allclose(L @ L.T, K + 0.5 * np.diag(unit), rtol=1e-14)


@pytest.mark.parametrize("bad", [-1.0, -1e-3, np.nan, np.inf])
def test_a_matrix_that_is_not_positive_is_refused(bad: float) -> None:
    K = np.eye(4)
    K[3, 3] = bad
    with pytest.raises(LinAlgError, match="not positive definite"):
        jittered_cholesky(K)


@every_matrix
def test_solving_with_a_diagonal_added(kind: str, n: int) -> None:
    K, rng = matrix_of(kind, n), np.random.default_rng(1)
    D = np.abs(K).max(initial=1.0) * rng.uniform(0.1, 1.0, n)
    B = rng.normal(size=(n, 3))
    solve = cholesky(K.copy(), D)
    exact = np.linalg.solve(K + np.diag(D), B)
    np.testing.assert_allclose(
        solve(B), exact, rtol=1e-9, atol=1e-12 * np.abs(exact).max(initial=0)
    )
    np.testing.assert_allclose(solve(B[:, 0]), solve(B)[:, 0], rtol=1e-12, atol=1e-300)


def test_samples_that_cannot_move_have_no_part_in_it() -> None:
    K, D = matrix_of("random", 6), np.array([1.0, np.inf, 0.0, 2.0, np.inf, 0.5])
    v = np.arange(1.0, 7.0)
    free = np.isfinite(D)
    found = cholesky(K.copy(), D)(v)
    exact = np.linalg.solve(K[np.ix_(free, free)] + np.diag(D[free]), v[free])
    np.testing.assert_allclose(found[free], exact, rtol=1e-6)
    assert not found[~free].any()


@pytest.mark.parametrize("rank", [0, 1, 5])
def test_a_part_of_low_rank(rank: int) -> None:
    rng = np.random.default_rng(rank)
    D, V, s = rng.uniform(1.0, 2.0, 9), rng.normal(size=(rank, 9)), rng.uniform(0.5, 2.0, rank)
    s[1::2] *= -0.01
    solve = with_low_rank(diagonal(D), V, s)
    H, v = np.diag(D) + (V.T * s) @ V, rng.normal(size=9)
    np.testing.assert_allclose(H @ solve(v), v, rtol=1e-9, atol=1e-12)


@every_matrix
def test_a_pivoted_factor_leaves_a_positive_rest_of_known_diagonal(kind: str, n: int) -> None:
    K = matrix_of(kind, n)
    for share, most in ((1e-10, n), (0.3, n), (0.0, 2)):
        residual = K.diagonal().copy()
        F = pivoted_cholesky(lambda i: K[i], residual, share * K.trace(), most, negative=1e-5)
        assert F.shape[1] == n and len(F) <= most
        rest = K - F.T @ F
        size = np.abs(K).max(initial=0.0)
        np.testing.assert_allclose(rest.diagonal(), residual, atol=1e-12 * size)
        assert np.linalg.eigvalsh(rest).min(initial=0.0) >= -1e-12 * size * max(n, 1)
        assert residual.sum() <= share * K.trace() or len(F) == min(most, n)
    if kind == "singular":
        assert len(pivoted_cholesky(lambda i: K[i], K.diagonal().copy(), 0.0, n)) < n or n < 3


def test_a_pivoted_factor_tells_a_matrix_that_is_not_positive() -> None:
    K = np.array([[1.0, 2.0], [2.0, 1.0]])
    with pytest.raises(LinAlgError, match="semi-definite"):
        pivoted_cholesky(lambda i: K[i], K.diagonal().copy(), 0.0, 2, negative=1e-5)
    with pytest.raises(LinAlgError, match="semi-definite"):
        pivoted_cholesky(lambda i: np.nan * K[i], K.diagonal().copy(), 0.0, 2, negative=1e-5)


@pytest.mark.parametrize("n", [1, 2, 40])
@pytest.mark.parametrize("kind", ["random", "badly scaled"])
def test_conjugate_gradients_with_a_preconditioner(kind: str, n: int) -> None:
    K = matrix_of(kind, n)
    K[np.diag_indices(n)] *= 1.5
    right = K @ np.random.default_rng(0).normal(size=n)
    x, sizes = np.zeros(n), []
    for length, direction, left in islice(
        conjugate_gradients(K.dot, diagonal(K.diagonal()), right), 20 * n
    ):
        assert length > 0
        x += length * direction
        sizes.append(np.linalg.norm(left / np.sqrt(K.diagonal())))
        if sizes[-1] <= 1e-10 * np.linalg.norm(right / np.sqrt(K.diagonal())):
            break
    np.testing.assert_allclose(left, right - K @ x, atol=1e-9 * np.abs(right).max())
    assert sizes[-1] <= 1e-10 * np.linalg.norm(right / np.sqrt(K.diagonal()))


def test_an_exact_preconditioner_needs_one_step_and_nothing_none() -> None:
    K, right = matrix_of("random", 8), np.arange(8.0)
    solve = cholesky(K.copy(), np.zeros(8))
    length, direction, left = next(conjugate_gradients(K.dot, solve, right))
    np.testing.assert_allclose(K @ (length * direction), right, atol=1e-6)
    assert np.abs(left).max() <= 1e-6
    assert not list(conjugate_gradients(K.dot, solve, np.zeros(8)))
    assert not list(conjugate_gradients(np.zeros((0, 0)).dot, lambda r: r, np.zeros(0)))


def test_a_matrix_that_is_not_positive_shows_in_the_length_of_a_step() -> None:
    steps = conjugate_gradients(lambda v: -v, lambda r: r, np.ones(2))
    assert next(steps)[0] < 0
