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
from scipy.linalg import cho_solve

from kernelweave.arrays import Array, Index
from kernelweave.deadline import NEVER, Deadline
from kernelweave.errors import InvalidInputError
from kernelweave.linear_systems import (
    LinAlgError,
    Solve,
    conjugate_gradients,
    diagonal,
    jittered_cholesky,
    pivoted_cholesky,
    with_low_rank,
)

__all__ = ["CgSteps", "Direction", "cholesky_step", "useful_rows"]

Product = Callable[[Index, Array], Array]


@dataclass(frozen=True, eq=False)
class Direction:
    """A step in alpha and b, and what it does to ``K alpha``."""

    alpha: Array
    fitted: Array
    intercept: float


def useful_rows(w: Array, diag: Array) -> Index:
    """Rows whose curvature matters: below 1e-14 of the identity in ``I + S K S`` it is nothing."""
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

    `w` are the curvatures, `rho` and `Krho` the residual and its product, and
    ``product(idx, v) = K[:, idx] @ v``.

    Examples
    --------
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
    B.flat[:: len(B) + 1] += 1.0
    target = s * (Krho[rows] - Krho[rows] @ share)
    eta = -cho_solve(_factor(B, sizes), target, check_finite=False)
    eta -= (float(s @ eta) / float(s @ s)) * s
    weighted = s * eta
    return _direction(rho, Krho, w, rows, weighted, product(rows, weighted))


def _factor(shifted: Array, sizes: Array) -> tuple[Array, bool]:
    """Cholesky factor of ``I + S K S``, with a larger diagonal where rounding made K indefinite.

    Rounding goes by the size of each row before it was centred. Weights of samples may differ by
    many decades: the same for all rows would be too little for some or drown the others.
    """
    try:
        return jittered_cholesky(shifted, sizes, most=1e12), True
    except LinAlgError:
        raise InvalidInputError(
            "kernel values times C are too large for float64, or a kernel is far from positive "
            "semi-definite. Lower C, scale the columns of X, or use normalize='trace'."
        ) from None


class CgSteps:
    """Newton steps by preconditioned conjugate gradients, from products with K only.

    The first preconditioner is the diagonal. When it proves too weak, a pivoted Cholesky factor
    of K of small rank is made once and used from then on: ``M = D + S L L' S``. The `rank` is its
    largest, and the number of iterations that call for it. When a deadline passes, a step is taken
    as it is.
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
        x, Ksx, Kp = np.zeros(len(rows)), np.zeros(n), np.zeros(n)
        if not len(rows):
            return _direction(rho, Krho, w, rows, x, Ksx), True
        ss = float(s @ s)

        def inside(r: Array) -> Array:
            """Residuals count only modulo s: the representative that is smallest."""
            return r - (float(s @ r) / ss) * s

        residual = inside(-s * (Krho[rows] - np.average(Krho[rows], weights=s * s)))
        fall, along = 0.5 * float(rho @ Krho), s * Krho[rows]

        def enough() -> bool:
            gained = fall + 0.5 * float(along @ x)
            return 0.5 * float(residual @ residual) <= max(target, share * gained)

        def product(p: Array) -> Array:
            nonlocal Kp
            Kp = self.product(rows, s * p)
            return inside(p + s * Kp[rows])

        def iterate(limit: int) -> bool:
            """Go on for so many steps; whether they, or what the deadline leaves, suffice."""
            nonlocal residual, x, Ksx
            solve = self._preconditioner(w[rows], rows, s)
            Ms = solve(s)
            sMs = float(s @ Ms)

            def precondition(r: Array) -> Array:
                z = solve(inside(r))
                return z - (float(s @ z) / sMs) * Ms

            steps = conjugate_gradients(product, precondition, residual)
            for _ in range(limit):
                if enough() or self._deadline.passed():
                    return True
                length, direction, left = next(steps, (0.0, x, residual))
                if not length > 0:
                    return True
                residual = inside(left)
                x += length * direction
                Ksx += length * Kp
            return enough()

        most = 2 * len(rows) + 10 if limit is None else limit
        trial = most if self._factor is not None else min(self.rank, most)
        done = iterate(trial)
        if not done and trial < most:
            self._make_factor()
            done = iterate(most - trial)
        return _direction(rho, Krho, w, rows, s * x, Ksx), done

    def _preconditioner(self, w: Array, rows: Index, s: Array) -> Solve:
        alone = diagonal(1.0 + w * self._rest[rows])
        if self._factor is None:
            return alone
        return with_low_rank(alone, self._factor[:, rows] * s, np.ones(len(self._factor)))

    def _make_factor(self) -> None:
        self._rest = self.diag.copy()
        self._factor = pivoted_cholesky(
            lambda i: self.product(np.array([i]), np.ones(1)),
            self._rest,
            1e-10 * float(self.diag.sum()),
            self.rank,
        )
