"""Cutting planes: every dual point met bounds the best objective at all weights from below."""

from __future__ import annotations

import numpy as np

from kernelweave.arrays import Index
from kernelweave.problem import Array, Problem
from kernelweave.solvers.certificate import Witness

__all__ = ["Cuts"]

# A cut that was of no use to this many masters in a row is dropped.
_PATIENCE = 20


class Cuts:
    r"""The rows of the semi-infinite program (SILP eq. 11 and Algorithm 1).

    Any feasible :math:`\alpha_j` bounds the best objective without r at all weights d,

    .. math:: J(d) \ge c_j - \tfrac12 \sum_k d_k q_k(\alpha_j), \qquad
              c_j = -\sum_i \ell^*(-\alpha_{ji}),

    in the paper's words :math:`-\sum_k d_k S_k(\alpha_j)` for weights of sum one. A mean of dual
    points with weights :math:`\lambda` is feasible too, and by convexity its bound is at least the
    mean of theirs: the multipliers of a master problem make a :class:`Witness`.

    Attributes
    ----------
    constants : ndarray of shape (J,)
        c_j, the oldest cut first.
    quads : ndarray of shape (J, m)
        q_k(alpha_j).
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.constants = np.empty(0)
        self.quads = np.empty((0, problem.m))
        self._alphas = np.empty((0, problem.n_tasks, problem.n))
        self._idle = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.constants)

    def add(self, alpha: Array, quad: Array) -> None:
        """Take the cut of a feasible alpha, `quad` being its q_k."""
        self.constants = np.append(self.constants, -self._problem.dual_loss(alpha))
        self.quads = np.concatenate([self.quads, quad[None]])
        self._alphas = np.concatenate([self._alphas, alpha[None]])
        self._idle = np.append(self._idle, 0)

    def values(self, d: Array) -> Array:
        """Each cut's bound on J(d)."""
        return self.constants - 0.5 * (self.quads @ d)

    def used(self, multipliers: Array) -> Index:
        """Note which cuts a master used; returns the positions of those that may be dropped."""
        self._idle = np.where(multipliers > 0, 0, self._idle + 1)
        return np.flatnonzero(self._idle >= _PATIENCE)

    def drop(self, positions: Index) -> None:
        """Forget some cuts."""
        for name in ("constants", "quads", "_alphas", "_idle"):
            setattr(self, name, np.delete(getattr(self, name), positions, axis=0))

    def witness(self, multipliers: Array) -> Witness:
        """Mean of the dual points, with an upper bound on its q_k (both by convexity)."""
        used = np.flatnonzero(multipliers > 0)
        share = multipliers[used] / multipliers[used].sum()
        alpha = np.tensordot(share, self._alphas[used], axes=1)
        return Witness(alpha, share @ self.quads[used])
