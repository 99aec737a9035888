"""Units of regression targets: standardised for the fit, the user's own everywhere else."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernelweave.errors import InvalidInputError
from kernelweave.losses.base import Loss
from kernelweave.problem import Array

__all__ = ["RAW", "TargetUnits", "check_loss_of_residuals", "standardize"]

# Targets whose range is within rounding of this many units in the last place are constant.
_ROUNDING = 10 * float(np.finfo(np.float64).eps)


class TargetUnits(NamedTuple):
    """What the targets of a fit were shifted by and then divided by; raw targets by default.

    Examples
    --------
    >>> TargetUnits(shift=10.0, scale=2.0).predictions(np.array([0.0, -1.5])).tolist()
    [10.0, 7.0]
    """

    shift: float = 0.0
    scale: float = 1.0

    def predictions(self, fitted: Array) -> Array:
        """Return fitted values (or intercepts) in the units of the user."""
        return self.shift + self.scale * fitted

    def fitted(self, predictions: Array) -> Array:
        """Return predictions (or intercepts) in the units of the fit."""
        return (predictions - self.shift) / self.scale


RAW = TargetUnits()


def standardize(y: Array, weight: Array) -> tuple[Array, TargetUnits]:
    """Return targets of weighted mean 0 and standard deviation 1, and the units they were in.

    Constant targets become zeros, with a scale of one, and so do targets without weight, which
    no fit sees.

    Parameters
    ----------
    y : ndarray of shape (n,)
        Finite targets of any size.
    weight : ndarray of shape (n,)
        Weight of each target, >= 0 and not all zero.

    Examples
    --------
    >>> z, units = standardize(np.array([1e200, 3e200]), np.ones(2))
    >>> z.round(6).tolist(), round(units.scale / 1e200, 6)
    ([-1.0, 1.0], 1.0)
    >>> standardize(np.array([0.1, 0.1, 0.1]), np.ones(3))
    (array([0., 0., 0.]), TargetUnits(shift=0.1, scale=1.0))
    """
    used = weight > 0
    own, share = y[used], weight[used] / weight.max()
    share = share / share.sum()
    z = np.zeros(len(y))
    # Squares of targets may overflow or underflow; a power of two changes no digit.
    exponent = int(np.frexp(np.abs(own).max())[1])
    small = np.ldexp(own, -exponent)
    low, high = small.min(), small.max()
    # Sums by NumPy: those of BLAS would depend on its threads. The second pass removes what the
    # first one has rounded.
    mean = float(np.sum(share * small))
    mean += float(np.sum(share * (small - mean)))
    spread = float(np.sqrt(np.sum(share * (small - mean) ** 2)))
    shift, scale = float(np.ldexp(mean, exponent)), float(np.ldexp(spread, exponent))
    if high - low <= _ROUNDING * max(abs(low), abs(high)) or scale == 0.0:
        return z, TargetUnits(float(own[0]) if low == high else shift, 1.0)
    z[used] = (small - mean) / spread
    return z, TargetUnits(shift, scale)


def check_loss_of_residuals(loss: Loss) -> None:
    """Raise unless the loss only depends on the target minus the prediction.

    Any other one, such as that of counts whose logarithm is predicted, has targets of a fixed
    unit: a shift would make another problem of it.
    """
    y, z, C = np.array([-1.0, 0.0, 1.0]), np.array([0.5, -2.0, 1.5]), np.ones(3)
    with np.errstate(all="ignore"):
        here, moved = loss.value(y, z, C), loss.value(y + 1.0, z + 1.0, C)
    if not np.allclose(here, moved, rtol=1e-6, atol=1e-9):
        raise InvalidInputError(
            f"the loss {loss!r} does not depend on the target minus the prediction alone, so its "
            "targets cannot be standardised; give target_scale=None, which fits them as they are."
        )
