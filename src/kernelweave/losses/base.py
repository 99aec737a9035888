"""What a loss is, and the register of all losses by name."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelweave.arrays import Array
from kernelweave.cached import cached_property
from kernelweave.errors import InvalidInputError
from kernelweave.losses.numeric import gradient_limits, jump_of, point_of_slope, slope_of
from kernelweave.registry import Named
from kernelweave.root_search import rising_root
from kernelweave.validation import unknown_name

_EPS = float(np.finfo(np.float64).eps)


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

    All arrays have one entry for each variable; `sample` is the one that it belongs to.

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

    def signed(self, a: ArrayLike) -> Array:
        """Signed dual ``alpha`` (one number a sample) of box variables ``a``."""
        weights = self.sign * np.asarray(a, dtype=np.float64)
        return np.asarray(np.bincount(self.sample, weights), dtype=np.float64)

    @cached_property
    def signed_form(self) -> tuple[Array, Array, Array, Array]:
        """Slopes on the positive and the negative side, and bounds, of each sample's alpha."""
        n = int(self.sample.max(initial=-1)) + 1
        pos, neg, lo, hi = np.zeros((4, n))
        plus, minus = self.sign > 0, self.sign < 0
        if self.sample.min(initial=0) < 0:
            raise InvalidInputError(
                f"BoxQP.sample must lie in 0..n - 1; got {self.sample.min()}..{n - 1}."
            )
        for side in (plus, minus):
            if np.bincount(self.sample[side], minlength=1).max() > 1:
                raise InvalidInputError(
                    "BoxQP may have one variable of each sign a sample; got more."
                )
        if not np.isfinite(self.upper).all() or (self.upper < 0).any():
            raise InvalidInputError("BoxQP.upper must be finite and >= 0.")
        pos[self.sample[plus]], hi[self.sample[plus]] = -self.linear[plus], self.upper[plus]
        neg[self.sample[minus]], lo[self.sample[minus]] = self.linear[minus], -self.upper[minus]
        if np.any((pos > neg) & (hi > 0) & (lo < 0)):
            raise InvalidInputError(
                "the two variables of a sample must have linear terms with a sum >= 0 "
                "(epsilon >= 0); got a negative sum."
            )
        return pos, neg, lo, hi

    def split(self, alpha: ArrayLike) -> Array:
        """Box variables of a signed dual ``alpha``, clipped into the box.

        Where a sample has a variable of each sign, the positive and the negative part go to one
        each: at the optimum of the eps-insensitive dual at most one of the two is not zero.
        """
        signed = self.sign * np.asarray(alpha, dtype=np.float64)[self.sample]
        return np.clip(signed, 0.0, self.upper)


class Loss(Named):
    r"""A convex loss :math:`z \mapsto \ell(y, z)`, its derivatives and its conjugate.

    All methods work elementwise on arrays of equal shape. ``C`` is the weight of each sample's
    loss (sample weights and class weights already inside); ``alpha`` is the *signed* dual
    variable, so that for classification :math:`a = y \alpha`. Labels are -1 and +1.

    A subclass that sets `name` registers itself: it can be asked for by that name and joins the
    contract tests. For a convex loss with a continuous gradient, `value`, `gradient` and
    `conjugate` are enough: `curvature`, `conjugate_gradient` and `domain` are found from the
    gradient by numbers, unless the subclass has formulas for them, which are quicker. No number
    proves a Lipschitz constant, so without `lipschitz` there is no screening of kernels.
    Piecewise-linear losses say ``smooth = False`` and supply `box_qp`.
    :func:`~kernelweave.losses.check_loss` finds mistakes.

    Attributes
    ----------
    name : str
        Name in the register.
    task : {"classification", "regression", "one_class"}
        What the loss is for.
    smooth : bool, default=True
        Whether the gradient is continuous.
    alpha_sum : float
        Value of the dual constraint on the sum of alpha (the primal has ``alpha_sum * b``).
    steep : bool, default=False
        Whether the slope of the conjugate is unbounded towards the ends of its domain, so that a
        minimum is never at an end.
    soft_margin : {"", "l1", "l2"}
        The norm of the violations of the margin that the loss is, if it is one: its conjugate is
        then :math:`-a`, plus :math:`a^2` over twice the constant of `lipschitz` where there is one.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.losses import get_loss
    >>> loss = get_loss("logistic")
    >>> y, z, C = np.array([1.0, -1.0]), np.array([0.3, 2.0]), np.array([1.0, 5.0])
    >>> alpha = -loss.gradient(y, z, C)
    >>> fenchel_young = loss.value(y, z, C) + loss.conjugate(y, alpha, C) + alpha * z
    >>> bool(np.allclose(fenchel_young, 0.0))
    True
    """

    kind = "loss"
    task: ClassVar[Literal["classification", "regression", "one_class"]]
    smooth: ClassVar[bool] = True
    alpha_sum: ClassVar[float] = 0.0
    steep: ClassVar[bool] = False
    soft_margin: ClassVar[Literal["", "l1", "l2"]] = ""

    @abstractmethod
    def value(self, y: Array, z: Array, C: Array) -> Array:
        """Loss of the predictions `z`."""

    @abstractmethod
    def gradient(self, y: Array, z: Array, C: Array) -> Array:
        """Derivative of `value` in `z` (a subgradient where there is none)."""

    def curvature(self, y: Array, z: Array, C: Array) -> Array:
        """Second derivative of `value` in `z`, for smooth losses; here by differences."""
        if not self.smooth:
            raise TypeError(f"the loss {self!r} has no second derivative; smooth losses have one.")
        # Decision values are of the size of targets, unless these are counts or the like.
        unit = float(np.mean(np.minimum(np.abs(y), 1.0))) if np.size(y) else 0.0
        return slope_of(lambda z: self.gradient(y, z, C), z, unit if unit > 0 else 1.0)

    @abstractmethod
    def conjugate(self, y: Array, alpha: Array, C: Array) -> Array:
        r"""Conjugate :math:`\ell^*(-\alpha)`, infinite outside the domain."""

    def conjugate_gradient(self, y: Array, alpha: Array, C: Array) -> Array:
        r"""Derivative of :math:`\ell^*(-\alpha)` in :math:`\alpha`, inside the domain.

        It is minus the z at which the gradient is :math:`-\alpha`; here found by bisection.
        """
        y, alpha, C = np.broadcast_arrays(y, np.asarray(alpha, dtype=np.float64), C)
        return 0.0 - point_of_slope(lambda z: self.gradient(y, z, C), -alpha)

    def domain(self, y: Array, C: Array) -> tuple[Array, Array]:
        """Lower and upper ends of the interval in which each alpha lives.

        It is the range of minus the gradient; here from the gradient far out.
        """
        y, C = np.broadcast_arrays(y, C)
        low, high = gradient_limits(lambda z: self.gradient(y, z, C), y.shape)
        return 0.0 - high, 0.0 - low

    def prox(self, y: Array, v: Array, C: Array, step: float) -> Array:
        r"""Point z that minimises :math:`\mathrm{step} \cdot \ell(y, z) + \tfrac12 (z - v)^2`.

        Here found by bisection, from the gradient.
        """
        y, v, C = np.broadcast_arrays(y, np.asarray(v, dtype=np.float64), C)
        return point_of_slope(lambda z: z + step * self.gradient(y, z, C), v)

    def prox_slope(self, y: Array, v: Array, z: Array, C: Array, step: float) -> Array:
        """Derivative of `prox` in `v`, z being its value there.

        Piecewise-linear losses have 0 in a corner, up to 1e-12 of z or y, and 1 elsewhere.
        """
        if self.smooth:
            return 1.0 / (1.0 + step * self.curvature(y, z, C))
        h = np.maximum(2.0**-40 * np.maximum(np.abs(z), np.abs(y)), 1e-30)
        below, above = self.gradient(y, z - h, C), self.gradient(y, z + h, C)
        corner = above - below > 1e-9 * np.maximum(np.abs(below), np.abs(above))
        return np.where(corner, 0.0, 1.0)

    def lipschitz(self, C: Array) -> Array:
        """Lipschitz constant of the gradient, infinite when there is none or it is not known."""
        return np.full_like(np.asarray(C, dtype=np.float64), np.inf)

    def best_intercept(self, y: Array, f: Array, C: Array, start: float = 0.0) -> float:
        r"""Minimiser over b of :math:`\sum_i \ell(y_i, f_i + b) + \mathrm{alpha\_sum}\, b`."""
        first, reach = 0.0, 1.0 + abs(start)

        def slope(b: float) -> tuple[float, float, float]:
            nonlocal first, reach
            values, shift = self.gradient(y, f + b, C), self.alpha_sum
            total, size = float(values.sum()) + shift, float(np.abs(values).sum()) + abs(shift)
            # Where a summand overflows, nothing is small beside the others.
            if np.isfinite(size):
                first = first or size
                # Summands of one sign may fall towards zero for ever. Those of both signs have a
                # root, however small they are beside those of the start: weights may differ by
                # many decades.
                one_sign = min(values.min(), shift) >= 0 or max(values.max(), shift) <= 0
                if abs(total) <= 2 * _EPS * size + (1e-2 * _EPS * first if one_sign else 0.0):
                    return 0.0, size, b
            bend = float(self.curvature(y, f + b, C).sum()) if self.smooth else np.nan
            step = -total / bend if bend > 0 else np.inf
            if not abs(step) <= reach:
                step, reach = reach if total < 0 else -reach, 4.0 * reach
            return total, size, b + step

        return rising_root(slope, start)

    def box_qp(self, y: Array, C: Array) -> BoxQP:
        """Single-kernel dual as a quadratic program over a box, for piecewise-linear losses."""
        raise TypeError(
            f"the loss {self!r} is not piecewise linear, so its dual is no quadratic program over "
            "a box; hinge, epsilon_insensitive and one_class are."
        )

    def _finite_in_domain(self, y: Array, alpha: Array, C: Array, values: Array) -> Array:
        """`values` where alpha is in the domain (1e-12 relative slack), +inf elsewhere."""
        lo, hi = self.domain(y, C)
        slack = 1e-12 * np.asarray(C, dtype=np.float64)
        return np.where((alpha >= lo - slack) & (alpha <= hi + slack), values, np.inf)


def get_loss(loss: str | Loss, **params: Any) -> Loss:
    """Return a loss from its name, or the given loss object itself, if one can train with it.

    The named loss gets those `params` that it has; others must be parameters of some loss and are
    left alone, so that an estimator can pass its ``epsilon`` whatever the loss is.
    """
    if params:  # Reading signatures takes longer than a small fit's own steps.
        known = {key for cls in Loss.registry.values() for key in inspect.signature(cls).parameters}
        for key in params:
            if key not in known:
                raise unknown_name("loss parameter", key, known)
    if isinstance(loss, Loss):
        found = loss
    else:
        cls = Loss.find(loss)
        own = [key for key in params if key in inspect.signature(cls).parameters]
        found = cls(**{key: params[key] for key in own})
    tasks = ("classification", "regression", "one_class")
    if getattr(found, "task", None) not in tasks:
        raise InvalidInputError(
            f"{found!r} must say what it is for: task = {', '.join(map(repr, tasks))}."
        )
    if not found.smooth or type(found).curvature is Loss.curvature:
        require_continuous(found, np.array([1.0] if found.task == "one_class" else [-1.0, 1.0]))
    return found


def require_continuous(loss: Loss, y: Array) -> None:
    """Raise if the gradient jumps at these targets, or a loss with kinks has no `box_qp`."""
    supported = (
        "Supported are losses with a continuous gradient (value, gradient and conjugate are "
        "enough), and piecewise-linear ones that say smooth = False and supply box_qp, as "
        "kernelweave.losses.Hinge does."
    )
    if not loss.smooth:
        if type(loss).box_qp is Loss.box_qp:
            raise InvalidInputError(f"{loss!r} says smooth = False but has no box_qp. {supported}")
        return
    for centre in (0.0 * y, y):
        jump = jump_of(lambda z: loss.gradient(y + 0.0 * z, z, np.ones_like(z)), centre)
        if jump is not None:
            i, z, before, after = jump
            raise InvalidInputError(
                f"the gradient of {loss!r} jumps from {before:g} to {after:g} at y = {y[i]:g}, "
                f"z = {z:g}, so no Newton step can be taken there. {supported}"
            )
