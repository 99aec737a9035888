"""What a loss is, and the register of all losses by name."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from kernelweave.losses.box_qp import BoxQP
from kernelweave.losses.intercept import root_of_slope
from kernelweave.registry import Named
from kernelweave.validation import unknown_name

__all__ = ["Array", "Loss", "get_loss", "loss_names"]

Array = NDArray[np.float64]


class Loss(Named):
    r"""A convex loss :math:`z \mapsto \ell(y, z)`, its derivatives and its conjugate.

    All methods work elementwise on arrays of equal shape. ``C`` is the weight of each sample's
    loss (sample weights and class weights already inside); ``alpha`` is the *signed* dual
    variable, so that for classification :math:`a = y \alpha`. Labels are -1 and +1.

    A subclass that sets `name` registers itself: it can be asked for by that name and joins the
    contract tests. Losses with `smooth` supply `curvature` and `lipschitz`; piecewise-linear ones
    supply `box_qp`.

    Attributes
    ----------
    name : str
        Name in the register.
    task : {"classification", "regression", "one_class"}
        What the loss is for.
    smooth : bool
        Whether the gradient is Lipschitz continuous.
    alpha_sum : float
        Value of the dual constraint on the sum of alpha (the primal has ``alpha_sum * b``).

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
    smooth: ClassVar[bool]
    alpha_sum: ClassVar[float] = 0.0

    @abstractmethod
    def value(self, y: Array, z: Array, C: Array) -> Array:
        """Loss of the predictions `z`."""

    @abstractmethod
    def gradient(self, y: Array, z: Array, C: Array) -> Array:
        """Derivative of `value` in `z` (a subgradient where there is none)."""

    def curvature(self, y: Array, z: Array, C: Array) -> Array:
        """Second derivative of `value` in `z`, for smooth losses."""
        raise TypeError(f"the loss {self!r} has no second derivative; smooth losses have one.")

    @abstractmethod
    def conjugate(self, y: Array, alpha: Array, C: Array) -> Array:
        r"""Conjugate :math:`\ell^*(-\alpha)`, infinite outside the domain."""

    @abstractmethod
    def conjugate_gradient(self, y: Array, alpha: Array, C: Array) -> Array:
        r"""Derivative of :math:`\ell^*(-\alpha)` in :math:`\alpha`, inside the domain."""

    @abstractmethod
    def domain(self, y: Array, C: Array) -> tuple[Array, Array]:
        """Lower and upper ends of the interval in which each alpha lives."""

    def lipschitz(self, C: Array) -> Array:
        """Lipschitz constant of the gradient, infinite when the loss is not smooth."""
        return np.full_like(np.asarray(C, dtype=np.float64), np.inf)

    def best_intercept(self, y: Array, f: Array, C: Array, start: float = 0.0) -> float:
        r"""Minimiser over b of :math:`\sum_i \ell(y_i, f_i + b) + \mathrm{alpha\_sum}\, b`."""
        curvature = None
        if self.smooth:

            def curvature(b: float) -> float:
                return float(self.curvature(y, f + b, C).sum())

        return root_of_slope(
            lambda b: self.gradient(y, f + b, C), start, shift=self.alpha_sum, curvature=curvature
        )

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


def loss_names() -> list[str]:
    """Names of all registered losses.

    Examples
    --------
    >>> "hinge" in loss_names()
    True
    """
    return Loss.names()


def get_loss(loss: str | Loss, **params: Any) -> Loss:
    """Return a loss from its name, or the given loss object itself.

    Parameters
    ----------
    loss : str or Loss
        A registered name, or an object, which is returned as it is (`params` do not change it).
    **params
        Parameters of any registered loss; the named loss gets those it has and the others are left
        alone, so that an estimator can pass its ``epsilon`` whatever the loss is.

    Returns
    -------
    Loss
        The loss.

    Examples
    --------
    >>> get_loss("epsilon_insensitive", epsilon=0.5)
    EpsilonInsensitive(epsilon=0.5)
    >>> get_loss("squared", epsilon=0.5)
    Squared()
    """
    known = {key for cls in Loss.registry.values() for key in inspect.signature(cls).parameters}
    for key in params:
        if key not in known:
            raise unknown_name("loss parameter", key, known)
    if isinstance(loss, Loss):
        return loss
    cls = Loss.find(loss)
    own = inspect.signature(cls).parameters
    return cls(**{key: value for key, value in params.items() if key in own})
