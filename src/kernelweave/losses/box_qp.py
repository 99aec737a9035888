"""The quadratic program behind a piecewise-linear loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelweave.arrays import Array

__all__ = ["BoxQP"]


@dataclass(frozen=True, eq=False)
class BoxQP:
    r"""Dual of a piecewise-linear loss for one kernel, in box variables.

    With :math:`\alpha_i = \sum_{t:\, \mathrm{sample}_t = i} \mathrm{sign}_t\, a_t`,

    .. math::

        \min_a \; \tfrac12 \alpha^\top K \alpha + \mathrm{linear}^\top a
        \quad\text{s.t.}\quad \sum_t \mathrm{sign}_t\, a_t = \mathrm{total},\quad
        0 \le a_t \le \mathrm{upper}_t .

    The hinge has one variable a sample; the :math:`\varepsilon`-insensitive loss has two (one for
    each side of the tube); the one-class problem has one and ``total = 1``.

    Parameters
    ----------
    sign : ndarray of shape (N,)
        +1 or -1 for each variable.
    linear : ndarray of shape (N,)
        Linear term of the objective.
    upper : ndarray of shape (N,)
        Upper bounds.
    sample : ndarray of shape (N,), int64
        Sample that each variable belongs to.
    total : float
        Value of the equality constraint.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.losses import Hinge
    >>> qp = Hinge().box_qp(np.array([1.0, -1.0, 1.0]), np.full(3, 2.0))
    >>> qp.signed(np.array([1.0, 1.5, 0.5])).tolist()
    [1.0, -1.5, 0.5]
    >>> qp.split(np.array([1.0, -1.5, 0.5])).tolist()
    [1.0, 1.5, 0.5]
    """

    sign: Array
    linear: Array
    upper: Array
    sample: NDArray[np.int64]
    total: float

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return int(self.sample.max()) + 1 if self.sample.size else 0

    def signed(self, a: ArrayLike) -> Array:
        """Signed dual ``alpha`` (one number a sample) of box variables ``a``."""
        weights = self.sign * np.asarray(a, dtype=np.float64)
        alpha = np.zeros(self.n_samples)
        np.add.at(alpha, self.sample, weights)
        return alpha

    def split(self, alpha: ArrayLike) -> Array:
        """Box variables of a signed dual ``alpha``, clipped into the box.

        Where a sample has a variable of each sign, the positive and the negative part go to one
        each: at the optimum of the eps-insensitive dual at most one of the two is not zero.
        """
        signed = self.sign * np.asarray(alpha, dtype=np.float64)[self.sample]
        return np.clip(signed, 0.0, self.upper)
