r"""Newton directions for one kernel and a smooth loss.

At :math:`(\alpha, b)` with :math:`g = \ell'(K\alpha + b)`, :math:`W = \ell''`, :math:`S = W^{1/2}`
and the residual :math:`\rho = \alpha + g`, the Newton step is

.. math::

    \delta = -\rho - S \eta, \qquad (I + S K S)\, \eta = S (\Delta b\, 1 - K \rho), \qquad
    S1 \cdot \eta = 0 .

The last equation keeps the sum of alpha (b is at its best, so the gradient sums to its target).
There is no division by S: rows without curvature drop out, and errors shrink with the residual.
The constraint also lets K be centred, which removes its large constant part from the system.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from kernelweave.deadline import NEVER, Deadline
from kernelweave.errors import InvalidInputError

__all__ = ["CgSteps", "Direction", "cholesky_step", "useful_rows"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Product = Callable[[Index, Array], Array]

_EPS = float(np.finfo(np.float64).eps)
# Diagonals that are tried, each a hundred times the last: from rounding to far beyond the matrix.
_DIAGONALS = 12


@dataclass(frozen=True, eq=False)
class Direction:
    """A step in alpha and b, and what it does to ``K alpha``."""

    alpha: Array
    fitted: Array
    intercept: float


def useful_rows(w: Array, diag: Array) -> Index:
    """Rows whose curvature matters: below 1e-14 of the identity in ``I + S K S`` it is nothing.

    Examples
    --------
    >>> import numpy as np
    >>> useful_rows(np.array([1.0, 0.0, 1e-30]), np.ones(3)).tolist()
    [0]
    """
    return np.flatnonzero(w * diag > 1e-14)


def _direction(
    rho: Array, Krho: Array, w: Array, rows: Index, weighted: Array, Kweighted: Array
) -> Direction:
    """Put the step together from ``S eta`` on `rows` and ``K S eta``."""
    alpha = -rho
    alpha[rows] -= weighted
    fitted = -Krho - Kweighted
    # S eta = W (K delta + db) sums to zero, so db is what K delta lacks in the weighted mean.
    total = float(w[rows].sum())
    intercept = -float(w[rows] @ fitted[rows]) / total if total > 0 else 0.0
    return Direction(alpha, fitted, intercept)


def cholesky_step(
    matrix: Array, product: Product, w: Array, rows: Index, rho: Array, Krho: Array
) -> Direction:
    """Solve for the Newton step with a Cholesky factor of ``I + S K S`` on `rows`.

    Parameters
    ----------
    matrix : ndarray of shape (n, n)
        K.
    product : callable
        ``product(idx, v) = K[:, idx] @ v``.
    w : ndarray of shape (n,)
        Curvatures.
    rows : ndarray of int
        Rows to use.
    rho, Krho : ndarray of shape (n,)
        The residual and its product.

    Returns
    -------
    Direction
        The step.

    Examples
    --------
    >>> import numpy as np
    >>> K, w, rho = np.eye(2), np.ones(2), np.array([1.0, -1.0])
    >>> step = cholesky_step(K, lambda idx, v: K[:, idx] @ v, w, np.arange(2), rho, K @ rho)
    >>> step.alpha.tolist()
    [-0.5, 0.5]
    """
    if not len(rows):
        return _direction(rho, Krho, w, rows, np.zeros(0), np.zeros_like(rho))
    s = np.sqrt(w[rows])
    whole = len(rows) == len(w)
    B = np.array(matrix if whole else matrix[np.ix_(rows, rows)], dtype=np.float64)
    # Centred by the weights, B has s as an eigenvector: eta stays orthogonal to it by itself.
    share = w[rows] / w[rows].sum()
    sizes = w[rows] * float(np.abs(B.diagonal()).max())
    mean = B @ share
    B -= mean
    B -= (mean - mean @ share)[:, None]
    B *= s
    B *= s[:, None]
    target = s * (Krho[rows] - Krho[rows] @ share)
    eta = -cho_solve(_factor(B, sizes), target, check_finite=False)
    eta -= (float(s @ eta) / float(s @ s)) * s
    weighted = s * eta
    return _direction(rho, Krho, w, rows, weighted, product(rows, weighted))


def _factor(B: Array, sizes: Array) -> tuple[Array, bool]:
    """Cholesky factor of ``I + B``, with a larger diagonal where rounding made B indefinite.

    Rounding goes by the size of each row before it was centred. Weights of samples may differ by
    many decades: the same for all rows would be too little for some or drown the others.
    """
    more = 0.0
    for _ in range(_DIAGONALS):
        shifted = B.copy()
        shifted.flat[:: len(B) + 1] += 1.0 + more * sizes
        try:
            return cho_factor(shifted, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            more = max(_EPS, 100.0 * more)
    raise InvalidInputError(
        "kernel values times C are too large for float64, or a kernel is far from positive "
        "semi-definite. Lower C, scale the columns of X, or use normalize='trace'."
    )


class CgSteps:
    """Newton steps by preconditioned conjugate gradients, from products with K only.

    The first preconditioner is the diagonal. When it proves too weak, a pivoted Cholesky factor
    of K of small rank is made once and used from then on: ``M = D + S L L' S``.

    Parameters
    ----------
    product : callable
        ``product(idx, v) = K[:, idx] @ v``.
    diag : ndarray of shape (n,)
        Diagonal of K.
    rank : int
        Largest rank of the factor, and the number of iterations that call for it.
    deadline : Deadline
        When a step is taken as it is.

    Examples
    --------
    >>> import numpy as np
    >>> K, w, rho = np.eye(2), np.ones(2), np.array([1.0, -1.0])
    >>> steps = CgSteps(lambda idx, v: K[:, idx] @ v, np.ones(2))
    >>> step, enough = steps.solve(w, np.arange(2), rho, K @ rho, 1e-12)
    >>> step.alpha.tolist(), enough
    ([-0.5, 0.5], True)
    """

    def __init__(
        self, product: Product, diag: Array, rank: int = 100, deadline: Deadline = NEVER
    ) -> None:
        self.product = product
        self.diag = diag
        self.rank = rank
        self._deadline = deadline
        self._factor: Array | None = None
        self._rest = diag

    def solve(
        self,
        w: Array,
        rows: Index,
        rho: Array,
        Krho: Array,
        target: float,
        share: float = 0.1,
        limit: int | None = None,
    ) -> tuple[Direction, bool]:
        """Newton step whose model value misses at most `target`, or this `share` of its fall.

        With the residual r of the system, the quadratic model of the objective is at most
        ``r'r / 2`` above its least value, so this is what is looked at, not the error of eta: that
        one can be small while the objective rises. Also says whether this was reached within
        `limit` iterations; if not, the step is still one of descent, for the slope along
        conjugate gradients rises to that of the exact step.
        """
        n, s = len(w), np.sqrt(w[rows])
        system = _System(s, rows, self.product, np.zeros(len(rows)), np.zeros(n), np.zeros(0))
        if not len(rows):
            return _direction(rho, Krho, w, rows, system.x, system.Ksx), True
        system.residual = -s * (Krho[rows] - np.average(Krho[rows], weights=s * s))
        fall, along = 0.5 * float(rho @ Krho), s * Krho[rows]

        def enough(x: Array, r: Array) -> bool:
            gained = fall + 0.5 * float(along @ x)
            return 0.5 * float(r @ r) <= max(target, share * gained)

        most = 2 * len(rows) + 10 if limit is None else limit
        trial = most if self._factor is not None else min(self.rank, most)
        ends = self._deadline
        done = system.iterate(self._preconditioner(w[rows], rows, s), enough, trial, ends)
        if not done and trial < most:
            self._make_factor()
            more = most - trial
            done = system.iterate(self._preconditioner(w[rows], rows, s), enough, more, ends)
        return _direction(rho, Krho, w, rows, s * system.x, system.Ksx), done

    def _preconditioner(self, w: Array, rows: Index, s: Array) -> Callable[[Array], Array]:
        D = 1.0 + w * self._rest[rows]
        if self._factor is None:
            return lambda r: r / D
        U = self._factor[:, rows] * s
        scaled = U / D
        small = cho_factor(np.eye(len(U)) + scaled @ U.T, lower=True, check_finite=False)

        def solve(r: Array) -> Array:
            return r / D - scaled.T @ cho_solve(small, scaled @ r, check_finite=False)

        return solve

    def _make_factor(self) -> None:
        """Pivoted Cholesky: each pivot is the row that the factor explains worst."""
        n, rest = len(self.diag), self.diag.copy()
        factor = np.zeros((min(self.rank, n), n))
        floor = 1e-10 * float(rest.max())
        count = 0
        for row in factor:
            pivot = int(np.argmax(rest))
            if rest[pivot] <= floor:
                break
            column = self.product(np.array([pivot]), np.ones(1))
            row[:] = (column - factor[:count, pivot] @ factor[:count]) / np.sqrt(rest[pivot])
            rest = np.maximum(rest - row * row, 0.0)
            rest[pivot] = 0.0
            count += 1
        self._factor, self._rest = factor[:count], rest


@dataclass(eq=False)
class _System:
    """``(I + S K S) x = residual`` on the plane ``s . x = 0``, and how far it is solved."""

    s: Array
    rows: Index
    product: Product
    x: Array
    Ksx: Array
    residual: Array

    def iterate(
        self,
        solve: Callable[[Array], Array],
        enough: Callable[[Array, Array], bool],
        limit: int,
        deadline: Deadline,
    ) -> bool:
        """Conjugate gradients preconditioned by `solve`, from where we are; whether it sufficed.

        What there is when the deadline passes has to suffice.
        """
        s, r = self.s, self.residual
        Ms = solve(s)
        sMs, ss = float(s @ Ms), float(s @ s)

        def constrained() -> Array:
            # The residual counts only modulo s: keep the representative that is smallest.
            nonlocal r
            r -= (float(s @ r) / ss) * s
            z = solve(r)
            return z - (float(s @ z) / sMs) * Ms

        z = constrained()
        p, rz = z, float(r @ z)
        for _ in range(limit):
            if enough(self.x, r) or not rz > 0 or deadline.passed():
                return True
            Kp = self.product(self.rows, s * p)
            Ap = p + s * Kp[self.rows]
            bend = float(p @ Ap)
            if not bend > 0:
                return True
            a = rz / bend
            self.x += a * p
            self.Ksx += a * Kp
            r -= a * Ap
            z = constrained()
            rz, before = float(r @ z), rz
            p = z + (rz / before) * p
        return enough(self.x, r)
