"""MWUMKL written out (Moeller et al. 2014): Algorithms 2 to 4, and the same with matrices.

Everything is computed from scratch in every round from the explicit matrices
G_k = omega (Y K_k Y / tr K_k + I / C2); nothing is shared or kept. `mwumkl` is Algorithm 4 with the
closed form of Algorithm 2. `mwumkl_with_matrices` keeps the event matrices M_k themselves and takes
their exponential, so that it knows nothing of Lemma 4.1.

The extraction of the paper's text shows eps' = -ln(1 - eps/20): a misread "2 rho".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import expm, sqrtm
from threadpoolctl import threadpool_limits

__all__ = [
    "PAPER_WIDTH",
    "Trace",
    "exponential",
    "exponentiate",
    "find_alpha",
    "mwumkl",
    "mwumkl_with_matrices",
    "n_rounds",
    "rate",
    "scaled_matrices",
    "weights",
    "width",
    "width_bound",
]

PAPER_WIDTH = 1.5  # Lemma 4.2, for omega = 1 and no ridge


@dataclass
class Trace:
    """What each round found.

    Attributes
    ----------
    a : ndarray of shape (rounds, n)
        The running sum after each round (the result is the last one over T).
    p12, g : ndarray of shape (rounds, m) and (rounds, n)
        What Algorithm 2 says after each round.
    u : ndarray of shape (rounds, m)
        Its exponents eps' / (2 rho) sqrt(a'G_k a).
    margin : ndarray of shape (rounds,)
        How far the chosen entries of g were above the next best, over the largest |g|: below
        rounding, another order of the same sums may choose another sample.
    planned : int
        T.
    failed : bool
        Whether Algorithm 3 found nobody to move before T rounds were done.
    """

    a: np.ndarray
    p12: np.ndarray
    g: np.ndarray
    u: np.ndarray
    margin: np.ndarray
    planned: int
    failed: bool


def scaled_matrices(Ks, y, omega=1.0, C2=np.inf):
    """G_k: unit trace, then the 2-norm soft margin's I / C2, then omega."""
    n = len(y)
    Y = np.diag(y)
    return np.array([omega * (Y @ K @ Y / np.trace(K) + np.eye(n) / C2) for K in Ks])


def width(G, y):
    """rho: 1 plus the norm of A_k alpha for the widest pair of any kernel, one of each class.

    Lemma 4.2 leaves G_jk out as negative, which it need not be.
    """
    widest = 0.0
    for Gk in G:
        for i in np.flatnonzero(y == 1):
            for j in np.flatnonzero(y == -1):
                widest = max(widest, (Gk[i, i] + Gk[j, j] + 2.0 * abs(Gk[i, j])) / 4.0)
    return 1.0 + np.sqrt(widest)


def width_bound(G, y):
    """The same with |G_jk| at its largest, sqrt(G_jj G_kk): from the diagonals alone."""
    ends = [np.sqrt([Gk.diagonal()[y == label].max() for Gk in G]) for label in (1, -1)]
    return 1.0 + np.max(ends[0] + ends[1]) / 2.0


def rate(eps, rho):
    """eps' of Algorithm 4."""
    return -np.log(1.0 - eps / (2.0 * rho))


def n_rounds(n, eps, rho):
    """T of Algorithm 4."""
    return int(np.ceil(8.0 * rho**2 * np.log(n) / eps**2))


def norms_of(G, a):
    """|u_k| = sqrt(a'G_k a), zero where rounding says less."""
    return np.sqrt([max(a @ Gk @ a, 0.0) for Gk in G])


def exponents(G, a, step, rho):
    """eps' / (2 rho) |u_k|."""
    return step / (2.0 * rho) * norms_of(G, a)


def exponentiate(G, a, step, rho):
    """Algorithm 2, EXPONENTIATE-M: (p12, g)."""
    m, n = len(G), len(a)
    norms = norms_of(G, a)
    # Where the norm is zero G_k a is too, and says nothing.
    directions = np.array(
        [Gk @ a / norm if norm > 0 else np.zeros(n) for Gk, norm in zip(G, norms, strict=True)]
    )
    u = exponents(G, a, step, rho)
    q = u.max()
    if q < 20:
        p11, p12, rest = np.cosh(u), -np.sinh(u), 1.0
    else:
        p11 = np.exp(u - q)
        p12, rest = -p11, np.exp(-q)
    S = m * (n - 1) * rest + 2.0 * p11.sum()
    p12 = p12 / S
    g = np.zeros(n)
    for k in range(m):
        g = g + 2.0 * p12[k] * directions[k]
    return p12, g


def find_alpha(y, g, allowed):
    """Algorithm 3, FIND-alpha: the step, or None if a class has nobody left that may move."""
    alpha = np.zeros(len(y))
    for label in (1, -1):
        able = np.flatnonzero((y == label) & allowed)
        if len(able) == 0:
            return None
        alpha[able[np.argmax(g[able])]] = 0.5  # The first of equals.
    return alpha


def margin(y, g, alpha, allowed):
    """How much better the chosen are than the next of their class, over the largest |g|."""
    smallest = np.inf
    for i in np.flatnonzero(alpha):
        others = g[(y == y[i]) & allowed & (alpha == 0)]
        smallest = min(smallest, g[i] - others.max(initial=-np.inf))
    return smallest / max(np.abs(g).max(), 1e-300)


def mwumkl(G, y, eps, rho=None, C1=np.inf, rounds=None, planned=None):
    """Algorithm 4. C1 is the box of the 1-norm soft margin: a / T never has an entry beyond it.

    `rounds` stops it early, `planned` is T if it is not the paper's.
    """
    rho = width(G, y) if rho is None else rho
    step = rate(eps, rho)
    return _run(G, y, eps, rho, C1, rounds, planned, lambda a, _: exponentiate(G, a, step, rho))


def mwumkl_with_matrices(G, y, eps, rho=None, C1=np.inf, rounds=None, planned=None):
    """The same with the event matrices M_k, (n + 1) x (n + 1), and their matrix exponential."""
    rho = width(G, y) if rho is None else rho
    step, m, n = rate(eps, rho), len(G), len(y)
    roots = [np.real(sqrtm(Gk)) for Gk in G]
    events = np.zeros((m, n + 1, n + 1))

    def look(_, alpha):
        for k in range(m):
            Q = np.eye(n + 1)  # omega = 1, so s = 1 (section 4.2)
            Q[:n, n] = Q[n, :n] = roots[k] @ alpha
            events[k] += (Q + rho * np.eye(n + 1)) / (2.0 * rho)
        W = np.array([expm(-step * M) for M in events])
        # Algorithm 4 divides each by its own trace; the S of Algorithm 2 is that of them all, and
        # only so do the kernels compete.
        P = W / np.trace(W, axis1=1, axis2=2).sum()
        corners = P[:, :n, n]
        g = sum(2.0 * A.T @ corner for A, corner in zip(roots, corners, strict=True))
        return -np.linalg.norm(corners, axis=1), g

    return _run(G, y, eps, rho, C1, rounds, planned, look)


def _run(G, y, eps, rho, C1, rounds, planned, look):
    n, step = len(y), rate(eps, rho)
    T = n_rounds(n, eps, rho) if planned is None else planned
    rounds = T if rounds is None else min(rounds, T)
    a, g = np.zeros(n), np.zeros(n)
    found, failed = [], False
    with threadpool_limits(1, "blas"):  # Threads on matrices this small only wait for each other.
        for _ in range(rounds):
            allowed = a + 0.5 <= C1 * T
            alpha = find_alpha(y, g, allowed)
            if alpha is None:
                failed = True
                break
            gap = margin(y, g, alpha, allowed)
            a = a + alpha
            p12, g = look(a, alpha)
            found.append((a, p12, g, exponents(G, a, step, rho), gap))
    return Trace(*(np.array(part) for part in zip(*found, strict=True)), T, failed)


def weights(G, a, p12):
    """The kernel weights of section 4.3, on the unit-trace kernels, made to sum to one."""
    norms = norms_of(G, a)
    d = 2.0 * np.abs(p12) / norms
    return d / d.sum()


def exponential(shift, u):
    """Lemma 4.1: exp of the matrix with `shift` on its diagonal, and u in its last row, column."""
    n, norm = len(u), np.linalg.norm(u)
    hat = u / norm
    out = np.zeros((n + 1, n + 1))
    out[:n, :n] = np.cosh(norm) * np.outer(hat, hat) + np.eye(n) - np.outer(hat, hat)
    out[:n, n] = out[n, :n] = np.sinh(norm) * hat
    out[n, n] = np.cosh(norm)
    return np.exp(shift) * out
