"""Find the mistakes in a loss."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from kernelweave.arrays import Array, Flags
from kernelweave.errors import InvalidInputError
from kernelweave.losses.base import Loss
from kernelweave.losses.numeric import gradient_limits, jump_of, point_of_slope

__all__ = ["check_loss"]

_EPS = float(np.finfo(np.float64).eps)
# Weights that are no round numbers: rounding shall show at the ends of the domain.
_WEIGHTS = np.array([0.37, 1.0, 5.3])
# Within this distance of zero a loss must not overflow.
_NEAR = 10.0


def check_loss(loss: Loss, y: ArrayLike | None = None) -> None:
    r"""Check that a loss is what it says, and raise where it is not.

    Checked at many decision values z, from 0.001 to 10,000, and several weights C: that

    - values and gradients are finite numbers, proportional to C, and zero for C = 0;
    - the gradient is the derivative of the value, does not fall (the loss is convex) and does not
      jump (or the loss says ``smooth = False`` and has `box_qp`);
    - the domain of alpha is the range of minus the gradient, and contains zero;
    - the conjugate belongs to the value: :math:`\ell(z) + \ell^*(-\alpha) + \alpha z = 0` where
      :math:`\alpha = -\ell'(z)` (Fenchel-Young), and is infinite outside the domain;
    - `curvature`, `conjugate_gradient` and `lipschitz` agree with differences;
    - `prox` is where the slope of what it minimises changes sign.

    Parameters
    ----------
    loss : Loss
        The loss.
    y : array-like, optional
        Targets to check with: -1 and 1 for classification, some numbers of both signs for
        regression, unless given. A loss of counts needs counts.

    Raises
    ------
    InvalidInputError
        If a property fails; the message says which, where and by how much.

    Examples
    --------
    >>> from kernelweave.losses import Squared, check_loss
    >>> check_loss(Squared())
    >>> class Wrong(Squared):
    ...     def gradient(self, y, z, C):
    ...         return C * (z - y)
    >>> check_loss(Wrong())
    Traceback (most recent call last):
    ...
    kernelweave.errors.InvalidInputError: Wrong(): the gradient is not the derivative ...
    """
    with np.errstate(all="ignore"):
        trial = _Trial(loss, y)
        for check in (
            _weights,
            _gradient,
            _convex,
            _continuous,
            _domain,
            _conjugate,
            _outside,
            _curvature,
            _conjugate_gradient,
            _prox,
        ):
            check(trial)


class _Trial:
    """A loss at many decision values: y, z, C, value and gradient are (rows, places).

    Each row is a pair of a target and a weight, z rising in it. `finite` tells where both value and
    gradient are: only a loss that grows like exp may overflow, far out. `size` is that of the
    gradient near zero, one number a row.
    """

    def __init__(self, loss: Loss, y: ArrayLike | None) -> None:
        if y is None:
            default = {"classification": [-1.0, 1.0], "one_class": [1.0]}
            y = default.get(loss.task, [-2.3, -0.4, 0.0, 0.7, 3.1])
        targets = np.unique(np.asarray(y, dtype=np.float64))
        if not targets.size or not np.all(np.isfinite(targets)):
            raise InvalidInputError(f"y must hold finite numbers to check with; got {y!r}.")
        size = np.append(np.geomspace(1e-3, 1e4, 57), 1.0)
        steps = np.concatenate([-size, [0.0], size])
        rows = np.repeat(targets, len(_WEIGHTS))[:, None]
        z = np.sort(np.hstack([steps + 0.0 * rows, steps + rows]), axis=1)
        self.loss, self.z, self.y = loss, z, rows + 0.0 * z
        self.C = np.tile(_WEIGHTS, len(targets))[:, None] + 0.0 * z
        self.value, self.gradient = (self.answer(name, z) for name in ("value", "gradient"))
        self.finite = np.isfinite(self.value) & np.isfinite(self.gradient)
        self.require(
            "value and gradient must be finite",
            np.where(self.finite | (np.abs(z) > _NEAR), 0.0, np.inf),
            0.0,
            "they are {:g} and {:g}",
            (self.value, self.gradient),
        )
        near = self.finite & (np.abs(z) <= _NEAR)
        self.size = np.where(near, np.abs(self.gradient), 0.0).max(axis=1, keepdims=True)

    def answer(self, name: str, at: Array) -> Array:
        """What the loss answers to that name at these places, of the same shape."""
        out = getattr(self.loss, name)(self.y[:, :1] + 0.0 * at, at, self.C[:, :1] + 0.0 * at)
        if np.shape(out) != at.shape:
            raise InvalidInputError(
                f"{self.loss!r}: the {name} of arrays of shape {at.shape} must have the same "
                f"shape; got {np.shape(out)}."
            )
        return np.asarray(out)

    def inside(self) -> Array:
        """Alphas well inside the domain, five a row."""
        low, high = self._slopes(np.abs(self.z) <= _NEAR)
        # Where a loss is straight near zero, something happens near its target.
        there = self._slopes(np.abs(self.z - self.y) <= _NEAR)
        low, high = np.where(low < high, (low, high), there)
        return low + np.array([0.07, 0.23, 0.41, 0.68, 0.93]) * (high - low)

    def _slopes(self, near: Flags) -> tuple[Array, Array]:
        """Least and largest minus gradient of each row, of places that are near."""
        near = near & self.finite
        low = np.where(near, -self.gradient, np.inf).min(axis=1, keepdims=True)
        high = np.where(near, -self.gradient, -np.inf).max(axis=1, keepdims=True)
        return low, high

    def rows(self, like: Array) -> tuple[Array, Array]:
        """Targets and weights in the shape of `like`."""
        return self.y[:, :1] + 0.0 * like, self.C[:, :1] + 0.0 * like

    def require(
        self,
        rule: str,
        error: Array,
        allowed: Array | float,
        found: str,
        numbers: tuple[Array, ...],
        at: tuple[str, Array] | None = None,
        weight: float | None = None,
    ) -> None:
        """Raise if an error is larger than allowed (or no number), and say where it is worst.

        `found` is the text for the `numbers` there; `at` the variable and its values if not z.
        """
        bad = ~((error <= 0.0) | (error <= allowed))
        if not np.any(bad):
            return
        # The worst, measured by what is allowed; no number is worse than any.
        size = np.where(np.isnan(error), np.inf, error / np.maximum(allowed, 1e-300))
        row, column = np.unravel_index(int(np.argmax(np.where(bad, size, -1.0))), bad.shape)
        variable, places = at or ("z", self.z)
        y, place = self.y[row, 0], places[row, column]
        C = self.C[row, 0] if weight is None else weight
        raise InvalidInputError(
            f"{self.loss!r}: {rule}: at y = {y:g}, {variable} = {place:.6g}, "
            f"C = {C:g} {found.format(*(values[row, column] for values in numbers))}."
        )


def _between(low: Array, high: Array, value: Array) -> Array:
    """How far `value` is from the interval between two numbers given in any order."""
    return np.maximum(np.minimum(low, high) - value, value - np.maximum(low, high))


def _weights(trial: _Trial) -> None:
    loss, y, z, C = trial.loss, trial.y, trial.z, trial.C
    zero = np.zeros_like(z)
    for name, out in (("value", trial.value), ("gradient", trial.gradient)):
        expected = C * getattr(loss, name)(y, z, np.ones_like(C))
        trial.require(
            f"the {name} must be C times that of weight 1",
            np.where(trial.finite & np.isfinite(expected), np.abs(out - expected), 0.0),
            1e-9 * np.abs(out) + 1e-12 * trial.size,
            "it is {:g}, not {:g}",
            (out, expected),
        )
        none = getattr(loss, name)(y, z, zero)
        trial.require(
            f"the {name} of a sample of weight zero must be 0",
            np.where(trial.finite, np.abs(none), 0.0),
            0.0,
            "it is {:g}",
            (none,),
            weight=0.0,
        )
    none = loss.conjugate(y, zero, zero)
    trial.require(
        "the conjugate at alpha = 0 of a sample of weight zero must be 0 "
        "(kernelweave.losses.per_weight(alpha, C) is a division that works there)",
        np.abs(none),
        0.0,
        "it is {:g}",
        (none,),
        at=("alpha", zero),
        weight=0.0,
    )


def _derivative(
    trial: _Trial, of: str, what: str, slope: Array, share: float, least: float, slack: float
) -> tuple[Array, Array, Flags]:
    """Check that `slope` is the derivative of the trial's value or gradient.

    Where that is monotone, it lies between the rises a unit to the left and right of z, also in a
    kink. Steps are this `share` of z, or of `least` if z is smaller. Returns the steepest of the
    two, its rounding error, and where none of them overflows.
    """
    method, here = getattr(trial.loss, of), getattr(trial, of)
    h = share * np.maximum(np.abs(trial.z), least)
    low, high = trial.z - h, trial.z + h
    before = (here - method(trial.y, low, trial.C)) / (trial.z - low)
    after = (method(trial.y, high, trial.C) - here) / (high - trial.z)
    usable = trial.finite & np.isfinite(before) & np.isfinite(after)
    rounding = np.where(usable, 16 * _EPS * np.abs(here) / h, 0.0)
    before, after = np.where(usable, (before, after), 0.0)
    trial.require(
        f"the {what} is not the derivative of the {of}",
        np.where(usable, _between(before, after, slope), 0.0),
        slack * np.maximum(np.abs(before), np.abs(after)) + 1e-6 * trial.size + rounding,
        f"it is {{:.6g}}, and differences of the {of} give {{:.6g}}",
        (slope, 0.5 * (before + after)),
    )
    return np.maximum(before, after), rounding, usable


def _gradient(trial: _Trial) -> None:
    _derivative(trial, "value", "gradient", trial.gradient, 1e-5, 1e-2, 1e-5)


def _convex(trial: _Trial) -> None:
    # Each place and the one before it; the first has none.
    g, before, from_z = trial.gradient, np.roll(trial.gradient, 1, 1), np.roll(trial.z, 1, 1)
    known = trial.finite & np.roll(trial.finite, 1, axis=1)
    known[:, 0] = False
    fall = np.where(known, before - g, 0.0)
    trial.require(
        "the loss is not convex: its gradient falls as z grows",
        fall,
        1e-9 * np.abs(g) + 1e-12 * trial.size,
        "it is {:.6g}, and {:.6g} at z = {:.6g}",
        (g, before, from_z),
    )


def _continuous(trial: _Trial) -> None:
    loss, y = trial.loss, np.unique(trial.y)
    if not loss.smooth:
        if type(loss).box_qp is Loss.box_qp:
            raise InvalidInputError(f"{loss!r}: a loss with smooth = False must supply box_qp.")
        return
    for centre in (0.0 * y, y):
        jump = jump_of(lambda z: loss.gradient(y + 0.0 * z, z, np.ones_like(z)), centre)
        if jump is not None:
            i, z, before, after = jump
            raise InvalidInputError(
                f"{loss!r}: the gradient of a loss with smooth = True must not jump: at "
                f"y = {y[i]:g}, z = {z:.6g} it goes from {before:.6g} to {after:.6g}."
            )


def _domain(trial: _Trial) -> None:
    loss, y, C = trial.loss, trial.y[:, :1], trial.C[:, :1]
    for end in loss.domain(y, np.zeros_like(y)):
        trial.require(
            "the domain of a sample of weight zero must be the single point 0",
            np.abs(end),
            0.0,
            "an end is {:g}",
            (end,),
            at=("end", end),
            weight=0.0,
        )
    far = gradient_limits(lambda z: loss.gradient(y, z, C), y.shape)
    domain = loss.domain(y, C)
    for end, limit, side, inwards in zip(
        domain, (-far[1], -far[0]), ("lower", "upper"), (1.0, -1.0), strict=True
    ):
        # Equal infinities have no difference.
        off = np.where(end == limit, 0.0, np.abs(end - limit))
        trial.require(
            f"the {side} end of the domain is not the limit of minus the gradient",
            off,
            1e-6 * (trial.size + np.where(np.isfinite(limit), np.abs(limit), 0.0)),
            "it is {:g}, and the limit {:g}",
            (end, limit),
            at=("end", end),
        )
        trial.require(
            "alpha = 0 must be in the domain, or the loss falls without end",
            inwards * end,
            1e-9 * trial.size,
            f"the {side} end is {{:g}}",
            (end,),
            at=("end", end),
        )


def _conjugate(trial: _Trial) -> None:
    loss = trial.loss
    alpha = trial.inside()
    y, C = trial.rows(alpha)
    # The z at which the supremum is taken, also where the gradient jumps over -alpha.
    z = point_of_slope(lambda z: loss.gradient(y, z, C), -alpha)
    for at_z, at_alpha, value, known in (
        (trial.z, -trial.gradient, trial.value, trial.finite),
        (z, alpha, loss.value(y, z, C), np.isfinite(z)),
    ):
        conjugate = trial.answer("conjugate", at_alpha)
        best = -at_alpha * at_z - value
        trial.require(
            "the conjugate does not belong to the value (Fenchel-Young)",
            np.where(known, np.abs(conjugate - best), 0.0),
            1e-10 * (np.abs(value) + np.abs(at_alpha * at_z) + trial.size),
            "it is {:.6g}, and the largest -alpha z - value is {:.6g}",
            (conjugate, best),
            at=("alpha", at_alpha),
        )


def _outside(trial: _Trial) -> None:
    loss, y = trial.loss, trial.y[:, :1]
    for C, weight in ((trial.C[:, :1], None), (np.zeros_like(y), 0.0)):
        for end, outwards in zip(loss.domain(y, C), (-1.0, 1.0), strict=True):
            bounded = np.isfinite(end)
            at_end = np.where(bounded, end, 0.0)
            rounded = at_end + outwards * 1e-13 * C
            trial.require(
                "the conjugate must be a number at the ends of the domain, and a rounding beyond",
                np.where(bounded & np.isnan(loss.conjugate(y, rounded, C)), np.inf, 0.0),
                0.0,
                "it is not",
                (),
                at=("alpha", rounded),
                weight=weight,
            )
            beyond = at_end + outwards * 1e-3 * np.maximum(np.abs(at_end), np.where(C > 0, C, 1.0))
            conjugate = loss.conjugate(y, beyond, C)
            trial.require(
                "the conjugate must be infinite outside the domain "
                "(self._finite_in_domain(y, alpha, C, values) sees to it)",
                np.where(bounded & (conjugate != np.inf), np.inf, 0.0),
                0.0,
                "it is {:g}",
                (conjugate,),
                at=("alpha", beyond),
                weight=weight,
            )


def _curvature(trial: _Trial) -> None:
    loss = trial.loss
    if not loss.smooth:
        return
    curvature = loss.curvature(trial.y, trial.z, trial.C)
    steepest, rounding, usable = _derivative(
        trial, "gradient", "curvature", curvature, 1e-7, 1e-1, 1e-4
    )
    trial.require(
        "the curvature must not be negative",
        np.where(usable, -curvature, 0.0),
        0.0,
        "it is {:.6g}",
        (curvature,),
    )
    bound = loss.lipschitz(trial.C)
    trial.require(
        "the gradient rises faster than its Lipschitz constant",
        np.where(usable, steepest - bound, 0.0),
        1e-6 * np.where(np.isfinite(bound), bound, 0.0) + rounding,
        "it rises by {:.6g} a unit, and the constant is {:.6g}",
        (steepest, bound),
    )


def _conjugate_gradient(trial: _Trial) -> None:
    loss, alpha = trial.loss, trial.inside()
    y, C = trial.rows(alpha)
    h = 1e-5 * (alpha.max(axis=1, keepdims=True) - alpha.min(axis=1, keepdims=True)) + 0.0 * alpha
    here, low, high = (loss.conjugate(y, a, C) for a in (alpha, alpha - h, alpha + h))
    before, after = (here - low) / h, (high - here) / h
    slope = loss.conjugate_gradient(y, alpha, C)
    rounding = 16 * _EPS * np.maximum(np.abs(here), np.abs(alpha * slope)) / h
    trial.require(
        "the conjugate_gradient is not the derivative of the conjugate",
        _between(before, after, slope),
        1e-4 * np.abs(slope) + 1e-6 + rounding,
        "it is {:.6g}, and differences of the conjugate give {:.6g}",
        (slope, 0.5 * (before + after)),
        at=("alpha", alpha),
    )


def _prox(trial: _Trial) -> None:
    loss, y, v, C = trial.loss, trial.y, trial.z, trial.C
    for step in (0.1, 10.0):
        z = loss.prox(y, v, C, step)
        h = 1e-9 * (1.0 + np.abs(v) + np.abs(y))
        before, after = (at - v + step * loss.gradient(y, at, C) for at in (z - h, z + h))
        # An overflow is no number, and beyond every v.
        right = ~(before > 0.0) & ~(after < 0.0)
        trial.require(
            f"the prox, step = {step:g}, is not where step * value + (z - v)^2 / 2 is least",
            np.where(right & np.isfinite(z), 0.0, np.inf),
            0.0,
            "it is {:.6g}, where the slopes to both sides are {:.3g}, {:.3g}",
            (z, before, after),
            at=("v", v),
        )
