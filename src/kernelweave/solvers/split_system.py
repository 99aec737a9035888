r"""Systems :math:`(B + \operatorname{diag}(D) + V^\top \operatorname{diag}(s) V)\, x = -g`.

In a Newton step of SpicyMKL the curvature D of the samples is of very different size: nothing for
those in a corner of the loss (support vectors between the bounds), and far above the kernels' for
most others. The first are hard, and few: they are solved by a Cholesky factor. The others are easy:
beside D, what the kernels add is next to nothing once the hard ones have answered.
"""

from __future__ import annotations

import numpy as np

from kernelweave.deadline import NEVER, Deadline
from kernelweave.linear_systems import Solve, cholesky, with_low_rank
from kernelweave.problem import Array
from kernelweave.solvers.newton_system import FLOOR, solve_by_products

__all__ = ["SplitSystem"]

# From this share of hard samples on all of them go into the factor.
_NEARLY_ALL = 0.8
# Most samples of a factor; beyond, those with the least curvature.
_MOST_HARD = 10_000
# A factor serves on while no sample's curvature has changed by more than this factor.
_SIMILAR = 3.0
# Most products for a direction, and with a factor made for other curvatures.
_STEPS, _FEW_STEPS = 500, 15
# Residual that is small enough beside the gradient: the next direction makes up for it.
_TOL = 1e-3


class SplitSystem:
    """Solves with one B and changing D, V and s.

    Conjugate gradients, preconditioned by the factor of the hard samples, the diagonal of the easy
    ones and, exactly, the parts of low rank.

    Parameters
    ----------
    B : ndarray of shape (N, N)
        Positive semi-definite.
    deadline : Deadline
        When to give up, by `TimeUp`.
    """

    def __init__(self, B: Array, deadline: Deadline = NEVER) -> None:
        self._B, self._deadline = B, deadline
        self._own = np.maximum(B.diagonal(), 0.0)
        self._floor = FLOOR * float(self._own.mean())
        self._known: tuple[Array, Solve] | None = None

    def solve(self, D: Array, V: Array, s: Array, g: Array) -> Array:
        """Return x; D is infinite for samples that cannot move."""
        D = np.maximum(D, self._floor)
        if self._known is not None and self._similar(D, self._known[0]):
            x, enough = self._iterate(D, V, s, g, self._known[1], _FEW_STEPS)
            if enough:
                return x
        self._known = D, self._hard_part(D)
        return self._iterate(D, V, s, g, self._known[1], _STEPS)[0]

    def _similar(self, D: Array, known: Array) -> bool:
        """Whether a factor made for the curvatures `known` serves for D."""
        moving = np.isfinite(D)
        if not np.array_equal(moving, np.isfinite(known)):
            return False
        base = 0.1 * self._own[moving] + self._floor
        ratio = (D[moving] + base) / (known[moving] + base)
        return bool(np.all((ratio < _SIMILAR) & (ratio > 1.0 / _SIMILAR)))

    def _hard_part(self, D: Array) -> Solve:
        """Solve with B + diag(D), nearly: exactly for the hard samples and what they tell others.

        The others are taken by their diagonal. Takes columns too.
        """
        B, moving = self._B, np.isfinite(D)
        hard = self._own > D
        if hard.sum() > _NEARLY_ALL * moving.sum():
            hard = moving.copy()
        F = np.flatnonzero(hard)
        if len(F) > _MOST_HARD:
            F = np.sort(F[np.argpartition(D[F], _MOST_HARD)[:_MOST_HARD]])
        moving[F] = False
        easy = np.flatnonzero(moving)
        diagonal = D[easy] + self._own[easy]
        inner, cross = cholesky(B[np.ix_(F, F)], D[F]), B[np.ix_(easy, F)]

        def solve(v: Array) -> Array:
            x, known = np.zeros_like(v), inner(v[F])
            x[easy] = ((v[easy] - cross @ known).T / diagonal).T
            x[F] = known - inner(cross.T @ x[easy])
            return x

        return solve

    def _iterate(
        self, D: Array, V: Array, s: Array, g: Array, hard: Solve, most: int
    ) -> tuple[Array, bool]:
        precondition = with_low_rank(hard, V, s)
        found, enough = solve_by_products(
            lambda v: v @ self._B + ((v @ V.T) * s) @ V,
            D[None],
            g[None],
            [precondition],
            self._floor,
            most,
            _TOL,
            self._deadline,
        )
        return found[0], enough
