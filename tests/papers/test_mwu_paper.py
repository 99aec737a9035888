"""MWUMKL's closed form (Lemma 4.1, Algorithm 2) is the matrix exponential it stands for."""

from __future__ import annotations

import numpy as np
import pytest
from mwu_literal import (
    PAPER_WIDTH,
    exponential,
    exponentiate,
    exponents,
    find_alpha,
    mwumkl,
    mwumkl_with_matrices,
    n_rounds,
    rate,
    scaled_matrices,
    weights,
    width,
)
from scipy.linalg import expm
from scipy.special import logsumexp


def problem(n=14, m=4, seed=0):
    rng = np.random.default_rng(seed)
    y = np.where(np.arange(n) % 3 == 0, -1.0, 1.0)
    Ks = []
    for k in range(m):
        A = rng.normal(size=(n, 3 + 2 * k))
        A[:, 0] += (0.5 + 0.5 * k) * y
        Ks.append(A @ A.T)
    return Ks, y


# Lemma 4.1


@pytest.mark.parametrize("size", [1e-3, 0.7, 5.0, 30.0])
@pytest.mark.parametrize("shift", [0.0, 2.5, -40.0])
def test_the_exponential_of_an_almost_diagonal_matrix(shift, size):
    """The paper asks for a shift >= 0 but needs -eps' sum M, whose shift is negative."""
    u = np.random.default_rng(0).normal(size=7)
    u *= size / np.linalg.norm(u)
    M = shift * np.eye(8)
    M[:7, 7] = M[7, :7] = u
    expected = expm(M)
    atol = 1e-11 * np.abs(expected).max()
    np.testing.assert_allclose(exponential(shift, u), expected, rtol=0, atol=atol)
    trace = np.exp(shift) * (6 + 2 * np.cosh(size))
    assert np.trace(expected) == pytest.approx(trace, rel=1e-11)


# Algorithm 2


def large_exponents(seed, top):
    """(G, a) of four kernels whose largest exponent is `top`, at eps' = 0.1 and rho = 1.5."""
    Ks, y = problem(seed=seed)
    G = scaled_matrices(Ks, y)
    a = np.random.default_rng(seed).random(len(y))
    return G, a * top / exponents(G, a, 0.1, 1.5).max()


def exact_logs(u, n):
    """log |p12| for exponents u, from sinh u = e^u (1 - e^-2u) / 2, without overflow."""
    log_cosh, log_sinh = u + np.log1p(np.exp(-2 * u)), u + np.log(-np.expm1(-2 * u))
    log_S = logsumexp([np.log(len(u) * (n - 1)), *log_cosh])  # 2 cosh u = e^u (1 + e^-2u)
    return log_sinh - np.log(2) - log_S


@pytest.mark.parametrize("top", [0.01, 3.0, 19.999, 20.001, 45.0, 300.0])
def test_algorithm_2_on_both_sides_of_its_branch(top):
    G, a = large_exponents(1, top)
    u = exponents(G, a, 0.1, 1.5)
    p12, g = exponentiate(G, a, 0.1, 1.5)
    exact = -np.exp(exact_logs(u, len(a)))
    # Above 20 sinh and cosh are exp / 2, and the quashed identity is e^-q, not 2 e^-q: off by
    # e^-2u of an entry and by (n - 1) m e^-20 of S.
    off = 0.0 if top < 20 else len(G) * len(a) * np.exp(-20.0)
    np.testing.assert_allclose(p12, exact, rtol=1e-12, atol=off * np.abs(exact).max())
    expected = sum(2 * p * Gk @ a / np.sqrt(a @ Gk @ a) for p, Gk in zip(exact, G, strict=True))
    np.testing.assert_allclose(g, expected, rtol=1e-11 + off)


def test_exponents_beyond_any_float_leave_the_winner():
    G, a = large_exponents(2, 5e4)
    with np.errstate(over="raise", invalid="raise"):
        p12, g = exponentiate(G, a, 0.1, 1.5)
    best = exponents(G, a, 0.1, 1.5).argmax()
    expected = np.zeros(len(G))
    expected[best] = -0.5
    np.testing.assert_allclose(p12, expected, atol=1e-12)
    np.testing.assert_allclose(g, -G[best] @ a / np.sqrt(a @ G[best] @ a), rtol=1e-12)


@pytest.mark.parametrize("top", [3.0, 21.0])
def test_algorithm_2_against_scaled_matrix_exponentials(top):
    """P_k = exp(-M_k - q) / sum of traces; -q, the same for all, keeps the numbers small."""
    G, a = large_exponents(3, top)
    n = len(a)
    factor = 0.1 / 3.0
    W = []
    for Gk in G:
        values, vectors = np.linalg.eigh(Gk)
        A = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
        M = top * np.eye(n + 1)
        M[:n, n] = M[n, :n] = factor * A @ a
        W.append(expm(-M))
    S = sum(np.trace(Wk) for Wk in W)
    p12, _ = exponentiate(G, a, 0.1, 1.5)
    expected = [-np.linalg.norm(Wk[:n, n]) / S for Wk in W]
    np.testing.assert_allclose(p12, expected, rtol=0, atol=(1e-12 if top < 20 else 2e-7) * 0.5)
    log_sums = exact_logs(exponents(G, a, 0.1, 1.5), n)
    np.testing.assert_allclose(expected, -np.exp(log_sums), rtol=1e-8, atol=1e-14)


# Algorithm 3


def test_the_first_of_equal_entries_is_chosen_and_full_ones_are_not():
    y = np.array([1.0, -1, 1, -1, 1, -1])
    everyone = np.ones(6, bool)
    assert np.flatnonzero(find_alpha(y, np.zeros(6), everyone)).tolist() == [0, 1]
    g = np.array([-3.0, -1, -1, -2, -1, -1])
    assert np.flatnonzero(find_alpha(y, g, everyone)).tolist() == [1, 2]
    assert np.flatnonzero(find_alpha(y, g, np.array([1, 0, 0, 1, 1, 1]))).tolist() == [4, 5]
    assert find_alpha(y, g, np.array([0, 1, 0, 1, 0, 1])) is None


# Algorithm 4


SETTINGS = {
    "the paper's": (dict(), dict(eps=0.3, rho=PAPER_WIDTH)),
    "2-norm": (dict(C2=3.0), dict(eps=0.3, rho=PAPER_WIDTH)),
    "omega": (dict(omega=30.0), dict(eps=0.7)),
    "omega, 2-norm": (dict(omega=30.0, C2=40.0), dict(eps=0.7)),
    "1-norm": (dict(omega=30.0), dict(eps=0.7, C1=0.13)),
    "large exponents": (dict(omega=400.0), dict(eps=0.6)),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_closed_form_is_the_matrix_algorithm(name):
    scaling, setting = SETTINGS[name]
    Ks, y = problem()
    G = scaled_matrices(Ks, y, **scaling)
    closed = mwumkl(G, y, **setting, rounds=4000)
    whole = mwumkl_with_matrices(G, y, **setting, rounds=4000)
    assert closed.margin[1:].min() > 1e-11  # or the two may well choose differently
    assert (name == "large exponents") == (closed.u.max() >= 20)
    np.testing.assert_array_equal(closed.a, whole.a)
    small = closed.u.max(axis=1) < 20
    largest = np.abs(whole.p12).max(axis=1, keepdims=True)
    off = np.abs(closed.p12 - whole.p12) / largest
    assert off[small].max() < 1e-10
    assert off.max() < 1e-7
    off = np.abs(closed.g - whole.g).max(axis=1) / np.abs(whole.g).max(axis=1)
    assert off[small].max() < 1e-10
    assert off.max() < 1e-7


def test_the_running_sum_is_a_half_a_class_a_round():
    Ks, y = problem()
    G = scaled_matrices(Ks, y)
    trace = mwumkl(G, y, 0.3, PAPER_WIDTH)
    assert len(trace.a) == trace.planned == n_rounds(14, 0.3, 1.5) == 528
    t = np.arange(1, 529)
    for label in (1, -1):
        np.testing.assert_array_equal(trace.a[:, y == label].sum(axis=1), t / 2)
    assert np.count_nonzero(trace.a[0]) == 2 and trace.a[0, [0, 1]].tolist() == [0.5, 0.5]
    assert rate(0.3, 1.5) == pytest.approx(-np.log(0.9))


def test_the_box_holds_and_an_impossible_one_ends_the_run():
    Ks, y = problem()
    G = scaled_matrices(Ks, y, omega=30.0)
    free = mwumkl(G, y, 0.7)
    box = 0.6 * free.a[-1].max() / free.planned
    boxed = mwumkl(G, y, 0.7, C1=box)
    assert not boxed.failed and len(boxed.a) == boxed.planned
    assert boxed.a[-1].max() / boxed.planned <= box
    assert (boxed.a[-1] + 0.5 > box * boxed.planned).sum() >= 2
    # Five negatives cannot hold a sum of one half.
    short = mwumkl(G, y, 0.7, C1=0.09)
    assert short.failed and len(short.a) < short.planned
    held = short.a[-1][y == -1]
    assert np.all((held <= 0.09 * short.planned) & (held + 0.5 > 0.09 * short.planned))


def test_the_paper_bounds_its_width():
    """Lemma 4.2, by which rho = 3/2 on unit-trace kernels; a ridge and omega need more."""
    Ks, y = problem()
    assert width(scaled_matrices(Ks, y), y) <= PAPER_WIDTH
    G = scaled_matrices(Ks, y, omega=30.0, C2=5.0)
    rho = width(G, y)
    assert rho > PAPER_WIDTH
    for k, i, j in np.ndindex(len(G), 14, 14):
        if y[i] != y[j]:
            alpha = np.zeros(14)
            alpha[[i, j]] = 0.5
            assert 1 + np.sqrt(alpha @ G[k] @ alpha) <= rho + 1e-12


def test_a_higher_omega_finds_the_kernel_that_matters():
    """The guarantee is for the constraint 1/omega >= a'G_k a, slack at omega = 1.

    max_k q_k is what the problem minimises; equal weights give no lower bound worth the name.
    """
    Ks, y = problem(n=30, m=4)
    unit = scaled_matrices(Ks, y, C2=200.0)
    value, spread = [], []
    for omega, eps in ((1.0, 0.3), (20.0, 0.3)):
        G = omega * unit
        trace = mwumkl(G, y, eps, rounds=3000)
        a = trace.a[-1] / len(trace.a)
        value.append(max(a @ Gk @ a for Gk in unit))
        spread.append(weights(G, trace.a[-1], trace.p12[-1]))
    assert value[1] < value[0]
    assert np.ptp(spread[0]) < 0.5 * np.ptp(spread[1])
