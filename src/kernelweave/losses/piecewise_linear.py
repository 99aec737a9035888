"""Losses with kinks: the support vector machine, support vector regression, one class."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from functools import reduce
from typing import Self

import numpy as np

from kernelweave.arrays import Array
from kernelweave.losses.base import BoxQP, Loss
from kernelweave.validation import positive_number


class PiecewiseLinear(Loss):
    r"""A sum of hinges, :math:`\ell(y, z) = \sum_t C \max(0, s_t (e_t - z))`.

    A subclass says by `edges` where each of them begins to cost and on which side. All else follows
    from that:

    .. math::

        \ell^*(-\alpha) = -\sum_t e_t s_t \max(0, s_t \alpha) .
    """

    smooth = False

    @abstractmethod
    def edges(self, y: Array) -> list[tuple[Array, Array]]:
        """Signs s, +1 or -1, and edges e of the hinges of every sample, one pair for each hinge.

        A sample has at most one hinge of each sign, that of sign +1 to the left of the other.
        """

    def value(self, y: Array, z: Array, C: Array) -> Array:
        return _sum(C * np.maximum(0.0, sign * (edge - z)) for sign, edge in self.edges(y))

    def gradient(self, y: Array, z: Array, C: Array) -> Array:
        return _sum(
            np.where(sign * (edge - z) > 0.0, -C * sign, 0.0) for sign, edge in self.edges(y)
        )

    def conjugate(self, y: Array, alpha: Array, C: Array) -> Array:
        values = _sum(-edge * sign * np.maximum(0.0, sign * alpha) for sign, edge in self.edges(y))
        return self._finite_in_domain(y, alpha, C, values)

    def domain(self, y: Array, C: Array) -> tuple[Array, Array]:
        signs = [sign for sign, _ in self.edges(y)]
        low = _sum(np.minimum(0.0, sign * C) for sign in signs)
        return low, _sum(np.maximum(0.0, sign * C) for sign in signs)

    def prox(self, y: Array, v: Array, C: Array, step: float) -> Array:
        # From where it costs towards the edge, at most onto it.
        for sign, edge in self.edges(y):
            inside = sign * v
            v = sign * np.maximum(inside, np.minimum(sign * edge, inside + step * C))
        return v

    def best_intercept(self, y: Array, f: Array, C: Array, start: float = 0.0) -> float:
        # The slope rises by C at every edge, and far to the left it is that of the signs +1 alone.
        weight, edges = C + 0.0 * f, self.edges(y)
        first = self.alpha_sum - sum(float(weight[sign > 0].sum()) for sign, _ in edges)
        breaks = np.concatenate([edge - f for _, edge in edges])
        jumps = np.concatenate([weight] * len(edges))
        order = breaks.argsort(kind="stable")
        if not (jumps > 0).all():
            order = order[jumps[order] > 0]
        if not order.size:
            return float(start)
        breaks, after = breaks[order], first + jumps[order].cumsum()
        # Exact zeros of the slope do not survive the additions: call zero what rounding calls zero.
        slack = 1e-13 * (abs(first) + float(jumps.sum()))
        left = min(int(after.searchsorted(-slack)), breaks.size - 1)
        right = left
        if abs(after[left]) <= slack:  # all b of an interval are best
            right = min(int(after.searchsorted(slack, side="right")), breaks.size - 1)
        return float(breaks[left] + 0.5 * (breaks[right] - breaks[left]))

    def box_qp(self, y: Array, C: Array) -> BoxQP:
        n, edges = y.shape[0], self.edges(np.asarray(y, dtype=np.float64))
        return BoxQP(
            sign=np.concatenate([sign for sign, _ in edges]),
            linear=np.concatenate([0.0 - sign * edge for sign, edge in edges]),
            upper=np.tile(np.broadcast_to(np.asarray(C, dtype=np.float64), (n,)), len(edges)),
            sample=np.tile(np.arange(n), len(edges)),
            total=self.alpha_sum,
        )


class Hinge(PiecewiseLinear):
    r"""Hinge loss (row "hinge" of the table of losses).

    .. math::

        \ell(y, z) = C \max(0, 1 - y z), \qquad
        \ell^*(-\alpha) = -a, \quad 0 \le a = y \alpha \le C .

    Examples
    --------
    >>> import numpy as np
    >>> y, z, C = np.array([1.0, -1.0]), np.array([0.5, -3.0]), np.ones(2)
    >>> Hinge().value(y, z, C).tolist()
    [0.5, 0.0]
    """

    name = "hinge"
    task = "classification"
    soft_margin = "l1"

    def edges(self, y: Array) -> list[tuple[Array, Array]]:
        return [(y, y)]  # y^2 = 1


class EpsilonInsensitive(PiecewiseLinear):
    r"""Epsilon-insensitive loss (row "eps-insensitive" of the table of losses).

    .. math::

        \ell(y, z) = C \max(0, |y - z| - \varepsilon), \qquad
        \ell^*(-\alpha) = \varepsilon |\alpha| - \alpha y, \quad |\alpha| \le C .

    Parameters
    ----------
    epsilon : float, default=0.1
        Half-width of the tube inside which errors cost nothing, >= 0.

    Examples
    --------
    >>> import numpy as np
    >>> loss = EpsilonInsensitive(epsilon=0.5)
    >>> loss.value(np.array([1.0, 2.0]), np.array([1.25, 0.0]), np.ones(2)).tolist()
    [0.0, 1.5]
    """

    name = "epsilon_insensitive"
    task = "regression"

    def __init__(self, epsilon: float = 0.1) -> None:
        self.epsilon = epsilon

    @classmethod
    def examples(cls) -> list[Self]:
        return [cls(), cls(epsilon=0.0)]

    def edges(self, y: Array) -> list[tuple[Array, Array]]:
        name = "epsilon of the epsilon-insensitive loss"
        width = positive_number(name, self.epsilon, allow_zero=True)
        ones = np.ones(np.shape(y))
        return [(ones, y - width), (-ones, y + width)]


class OneClass(PiecewiseLinear):
    r"""One-class loss: the support of a distribution (row "one-class (nu)" of the table of losses).

    With :math:`z = f(x) + b`, :math:`b = -\rho` and :math:`C = 1 / (\nu n)`,

    .. math::

        \ell(z) = C \max(0, -z), \qquad \ell^*(-\alpha) = 0, \quad 0 \le \alpha \le C .

    The primal has the extra term :math:`b`, so the dual constraint is
    :math:`\sum_i \alpha_i = 1`. Labels are not looked at.

    Examples
    --------
    >>> import numpy as np
    >>> z = np.array([0.5, -3.0])
    >>> OneClass().value(np.ones(2), z, np.full(2, 0.25)).tolist()
    [0.0, 0.75]
    """

    name = "one_class"
    task = "one_class"
    alpha_sum = 1.0

    def edges(self, y: Array) -> list[tuple[Array, Array]]:
        return [(np.ones(np.shape(y)), np.zeros(np.shape(y)))]


def _sum(parts: Iterable[Array]) -> Array:
    return reduce(np.add, parts)
