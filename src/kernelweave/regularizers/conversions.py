"""Conversions between the parameters in which papers write one and the same problem."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from kernelweave.errors import InvalidInputError
from kernelweave.validation import positive_number


def l1_weight_to_block_l1(weight: float) -> float:
    r"""Coefficient c of the block l1 norm that equals the penalty :math:`s \sum_k d_k`.

    .. math:: c = \sqrt{2 s}, \qquad
        \min_{d \ge 0} \tfrac12 \sum_k |f_k|^2 / d_k + s \sum_k d_k = c \sum_k |f_k| .

    Parameters
    ----------
    weight : float
        Price s > 0 of :class:`~kernelweave.regularizers.L1`.

    Examples
    --------
    >>> l1_weight_to_block_l1(2.0)
    2.0
    """
    return float(np.sqrt(2.0 * positive_number("weight", weight)))


def block_l1_to_l1_weight(c: float) -> float:
    r"""Price s of :class:`~kernelweave.regularizers.L1` for a block l1 coefficient: :math:`c^2/2`.

    Parameters
    ----------
    c : float
        Coefficient of the block l1 norm, > 0.

    Examples
    --------
    >>> block_l1_to_l1_weight(2.0)
    2.0
    """
    return 0.5 * positive_number("c", c) ** 2


def simplex_C_to_block_l1(C: float, norms: ArrayLike) -> float:
    r"""Block l1 coefficient with the solution of a simplex problem (SpicyMKL, eq. 13).

    The minimiser :math:`f^*` of :math:`C \sum_i \ell(y_i, f(x_i) + b) + \tfrac12 (\sum_k |f_k|)^2`
    also minimises :math:`\sum_i \ell(y_i, f(x_i) + b) + c \sum_k |f_k|` with

    .. math:: c = \frac{1}{C} \sum_k |f^*_k| .

    Parameters
    ----------
    C : float
        Loss weight of the simplex problem, > 0.
    norms : array-like of shape (m,)
        Norms ``|f*_k|`` of its solution, not all zero.

    Examples
    --------
    >>> simplex_C_to_block_l1(10.0, [1.0, 4.0])
    0.5
    """
    return _positive_sum(norms) / positive_number("C", C)


def block_l1_to_simplex_C(c: float, norms: ArrayLike) -> float:
    r"""Loss weight of the simplex problem with the solution of a block l1 problem.

    The inverse of :func:`simplex_C_to_block_l1` at the common solution:
    :math:`C = \sum_k |f^*_k| / c`.

    Parameters
    ----------
    c : float
        Coefficient of the block l1 norm, > 0, for the loss with weight one.
    norms : array-like of shape (m,)
        Norms ``|f*_k|`` of the solution, not all zero.

    Examples
    --------
    >>> block_l1_to_simplex_C(0.5, [1.0, 4.0])
    10.0
    """
    return _positive_sum(norms) / positive_number("c", c)


def _positive_sum(norms: ArrayLike) -> float:
    total = float(np.sum(np.asarray(norms, dtype=np.float64)))
    if not (np.isfinite(total) and total > 0):
        raise InvalidInputError(
            f"the norms |f_k| must be finite, >= 0 and not all zero; their sum is {total!r}. "
            "The zero function solves a whole range of problems, so it names none."
        )
    return total
