"""Find the mistakes in a loss."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kernelweave.arrays import Array, Flags
from kernelweave.errors import InvalidInputError
from kernelweave.losses.base import Loss, require_continuous
from kernelweave.losses.numeric import gradient_limits, point_of_slope

_EPS = float(np.finfo(np.float64).eps)
# Weights that are no round numbers: rounding shall show at the ends of the domain. Samples of
# weight zero must be right, too.
_WEIGHTS = np.array([0.37, 1.0, 5.3, 0.0])
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
        for check in (_gradient, _domain, _conjugate, _outside, _curvature, _prox):
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
        self.value, self.gradient = self.ask("value", z), self.ask("gradient", z)
        self.finite = np.isfinite(self.value) & np.isfinite(self.gradient)
        self.require(
            "value and gradient must be finite",
            ~self.finite & (np.abs(z) <= _NEAR),
            ("they are {:g} and {:g}", self.value, self.gradient),
        )
        near = self.finite & (np.abs(z) <= _NEAR)
        self.size = np.where(near, np.abs(self.gradient), 0.0).max(axis=1, keepdims=True)

    def ask(self, method: str, at: Array, C: Array | None = None) -> Array:
        """What the loss answers at these places, of the same shape; by default with the own C."""
        C = np.broadcast_to(self.C[:, :1] if C is None else C, at.shape)
        out = getattr(self.loss, method)(self.y[:, :1] + 0.0 * at, at, C)
        if np.shape(out) != at.shape:
            raise InvalidInputError(
                f"{self.loss!r}: the {method} of arrays of shape {at.shape} must have the same "
                f"shape; got {np.shape(out)}."
            )
        return np.asarray(out)

    def inside(self) -> Array:
        """Alphas well inside the domain, five a row."""
        # Where a loss is straight near zero, something happens near its target.
        near = self.finite & (np.minimum(np.abs(self.z), np.abs(self.z - self.y)) <= _NEAR)
        low = np.where(near, -self.gradient, np.inf).min(axis=1, keepdims=True)
        high = np.where(near, -self.gradient, -np.inf).max(axis=1, keepdims=True)
        return low + np.array([0.07, 0.23, 0.41, 0.68, 0.93]) * (high - low)

    def require(
        self,
        rule: str,
        error: Array | Flags,
        found: tuple[Any, ...],
        allowed: Array | float = 0.0,
        at: tuple[str, Array] | None = None,
    ) -> None:
        """Raise if an error is larger than allowed (or no number), and say where it is worst.

        `found` is a text and the numbers in it; `at` the variable and its values if not z.
        """
        bad = ~((error <= 0.0) | (error <= allowed))
        if not np.any(bad):
            return
        # The worst, measured by what is allowed; no number is worse than any.
        size = np.where(np.isnan(error), np.inf, error / np.maximum(allowed, 1e-300))
        row, column = np.unravel_index(int(np.argmax(np.where(bad, size, -1.0))), bad.shape)
        (variable, places), (text, *numbers) = at or ("z", self.z), found
        raise InvalidInputError(
            f"{self.loss!r}: {rule}: at y = {self.y[row, 0]:g}, "
            f"{variable} = {places[row, column]:.6g}, C = {self.C[row, 0]:g} "
            f"{text.format(*(values[row, column] for values in numbers))}."
        )

    def require_derivative(
        self, slope: str, of: str, at: tuple[str, Array], step: Array, allowed: Array, loose: float
    ) -> None:
        """Check that the method `slope` is the derivative of the method `of`.

        Where that is monotone, it lies between the rises a unit to the left and right of each
        place, also in a kink; up to `allowed`, a `loose` part of itself, and rounding.
        """
        here, low, high = (self.ask(of, at[1] + way) for way in (0.0, -step, step))
        found = self.ask(slope, at[1])
        before = (here - low) / (at[1] - (at[1] - step))
        after = (high - here) / ((at[1] + step) - at[1])
        usable = np.isfinite(here) & np.isfinite(before) & np.isfinite(after)
        usable &= self.finite if at[1] is self.z else True
        rounding = np.where(usable, 16 * _EPS * np.abs(here) / step, 0.0)
        before, after = np.where(usable, (before, after), 0.0)
        least, most = np.minimum(before, after), np.maximum(before, after)
        text = f"it is {{:.6g}}, and differences of the {of} give {{:.6g}}"
        self.require(
            f"the {slope} is not the derivative of the {of}",
            np.where(usable, np.maximum(least - found, found - most), 0.0),
            (text, found, 0.5 * (before + after)),
            loose * np.maximum(np.abs(before), np.abs(after)) + allowed + rounding,
            at=at,
        )


def _gradient(trial: _Trial) -> None:
    z, g = trial.z, trial.gradient
    for name, out in (("value", trial.value), ("gradient", g)):
        expected = trial.C * trial.ask(name, z, np.ones(1))
        trial.require(
            f"the {name} must be C times that of weight 1",
            np.where(trial.finite & np.isfinite(expected), np.abs(out - expected), 0.0),
            ("it is {:g}, not {:g}", out, expected),
            1e-9 * np.abs(out) + 1e-12 * trial.size,
        )
    step = 1e-5 * np.maximum(np.abs(z), 1e-2)
    trial.require_derivative("gradient", "value", ("z", z), step, 1e-6 * trial.size, 1e-5)
    # Each place and the one before it; the first has none.
    before, known = np.roll(g, 1, 1), trial.finite & np.roll(trial.finite, 1, axis=1)
    known[:, 0] = False
    trial.require(
        "the loss is not convex: its gradient falls as z grows",
        np.where(known, before - g, 0.0),
        ("it is {:.6g}, and {:.6g} at z = {:.6g}", g, before, np.roll(z, 1, 1)),
        1e-9 * np.abs(g) + 1e-12 * trial.size,
    )
    require_continuous(trial.loss, np.unique(trial.y))


def _domain(trial: _Trial) -> None:
    loss, y, C = trial.loss, trial.y[:, :1], trial.C[:, :1]
    low, high = gradient_limits(lambda z: loss.gradient(y, z, C), y.shape)
    names = (("lower", -high, 1.0), ("upper", -low, -1.0))
    for end, (name, limit, inwards) in zip(loss.domain(y, C), names, strict=True):
        trial.require(
            f"the {name} end of the domain is not the limit of minus the gradient",
            # Equal infinities have no difference.
            np.where(end == limit, 0.0, np.abs(end - limit)),
            ("it is {:g}, and the limit {:g}", end, limit),
            1e-6 * (trial.size + np.where(np.isfinite(limit), np.abs(limit), 0.0)),
            at=("end", end),
        )
        trial.require(
            "alpha = 0 must be in the domain, or the loss falls without end",
            inwards * end,
            (f"the {name} end is {{:g}}", end),
            1e-9 * trial.size,
            at=("end", end),
        )


def _conjugate(trial: _Trial) -> None:
    alpha = trial.inside()
    # The z at which the supremum is taken, also where the gradient jumps over -alpha.
    z = point_of_slope(lambda z: trial.ask("gradient", z), -alpha)
    for at_z, at_alpha, value, known in (
        (trial.z, -trial.gradient, trial.value, trial.finite),
        (z, alpha, trial.ask("value", z), np.isfinite(z)),
    ):
        conjugate = trial.ask("conjugate", at_alpha)
        best = -at_alpha * at_z - value
        trial.require(
            "the conjugate does not belong to the value (Fenchel-Young; "
            "kernelweave.losses.per_weight(alpha, C) is a division that works for C = 0, too)",
            np.where(known, np.abs(conjugate - best), 0.0),
            ("it is {:.6g}, and the largest -alpha z - value is {:.6g}", conjugate, best),
            1e-10 * (np.abs(value) + np.abs(at_alpha * at_z) + trial.size),
            at=("alpha", at_alpha),
        )
    step = 1e-5 * np.ptp(alpha, axis=1, keepdims=True) + 0.0 * alpha
    # The conjugate is a difference of two terms, and each of them is rounded.
    terms = 16 * _EPS * np.abs(alpha * trial.ask("conjugate_gradient", alpha)) / step
    at = ("alpha", alpha)
    trial.require_derivative("conjugate_gradient", "conjugate", at, step, 1e-6 + terms, 1e-4)


def _outside(trial: _Trial) -> None:
    C = trial.C[:, :1]
    for end, outwards in zip(trial.loss.domain(trial.y[:, :1], C), (-1.0, 1.0), strict=True):
        bounded = np.isfinite(end)
        at_end = np.where(bounded, end, 0.0)
        rounded = at_end + outwards * 1e-13 * C
        trial.require(
            "the conjugate must be a number at the ends of the domain, and a rounding beyond",
            bounded & np.isnan(trial.ask("conjugate", rounded)),
            ("it is not",),
            at=("alpha", rounded),
        )
        beyond = at_end + outwards * 1e-3 * np.maximum(np.abs(at_end), np.where(C > 0, C, 1.0))
        conjugate = trial.ask("conjugate", beyond)
        trial.require(
            "the conjugate must be infinite outside the domain "
            "(self._finite_in_domain(y, alpha, C, values) sees to it)",
            bounded & (conjugate != np.inf),
            ("it is {:g}", conjugate),
            at=("alpha", beyond),
        )


def _curvature(trial: _Trial) -> None:
    z, loss, loose = trial.z, trial.loss, 1e-4
    if not loss.smooth:
        return
    step, allowed = 1e-7 * np.maximum(np.abs(z), 1e-1), 1e-6 * trial.size
    trial.require_derivative("curvature", "gradient", ("z", z), step, allowed, loose)
    curvature, bound = trial.ask("curvature", z), loss.lipschitz(trial.C)
    usable = trial.finite & np.isfinite(curvature)
    trial.require(
        "the curvature must not be negative",
        np.where(usable, -curvature, 0.0),
        ("it is {:.6g}", curvature),
    )
    # As precise as the curvature is known.
    trial.require(
        "the gradient rises faster than its Lipschitz constant",
        np.where(usable, curvature - bound, 0.0),
        ("it rises by {:.6g} a unit, and the constant is {:.6g}", curvature, bound),
        loose * np.where(np.isfinite(bound), bound, 0.0) + allowed,
    )


def _prox(trial: _Trial) -> None:
    loss, y, v, C = trial.loss, trial.y, trial.z, trial.C
    for step in (0.1, 10.0):
        z = loss.prox(y, v, C, step)
        h = 1e-9 * (1.0 + np.abs(v) + np.abs(y))
        before, after = (at - v + step * loss.gradient(y, at, C) for at in (z - h, z + h))
        trial.require(
            f"the prox, step = {step:g}, is not where step * value + (z - v)^2 / 2 is least",
            # An overflow is no number, and beyond every v.
            (before > 0.0) | (after < 0.0) | ~np.isfinite(z),
            ("it is {:.6g}, where the slopes to both sides are {:.3g}, {:.3g}", z, before, after),
            at=("v", v),
        )
