"""What a regularizer of kernel weights is, and the register of all of them by name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np

from kernelweave.arrays import Array, Flags, Index
from kernelweave.cached import cached_property
from kernelweave.combine.base import Combination
from kernelweave.operators.base import KernelOperator
from kernelweave.registry import Named
from kernelweave.validation import positive_number


class Partition:
    """Numbers in groups, each in one: labels 0 to g - 1, none without a number, and g names.

    Examples
    --------
    >>> parts = Partition(np.array([0, 1, 0]), ["a", "b"])
    >>> parts.norms(np.array([3.0, 7.0, 4.0]), 2.0)
    array([5., 7.])
    """

    def __init__(self, labels: Index, names: Sequence[Any]) -> None:
        self.labels, self.names = labels, names

    @staticmethod
    @lru_cache(maxsize=16)
    def whole(m: int) -> Partition:
        """All numbers in one group."""
        return Partition(np.zeros(m, dtype=np.intp), range(1))

    @classmethod
    def of_labels(cls, labels: Iterable[Hashable]) -> Self:
        """Group equal labels, in order of first appearance."""
        numbers: dict[Hashable, int] = {}
        found = [numbers.setdefault(label, len(numbers)) for label in labels]
        return cls(np.array(found, dtype=np.intp), [str(label) for label in numbers])

    def subset(self, kept: Flags) -> Partition:
        """Groups of the numbers where `kept` is true; those left empty are gone."""
        if len(self.names) == 1:
            return Partition.whole(int(np.count_nonzero(kept)))
        labels = self.labels[kept]
        filled = np.bincount(labels, minlength=len(self.names)) > 0
        return Partition((np.cumsum(filled) - 1)[labels], range(int(filled.sum())))

    @cached_property
    def sizes(self) -> Index:
        """Number of members of every group."""
        return np.bincount(self.labels, minlength=len(self.names))

    def sums(self, x: Array) -> Array:
        """Sum of every group."""
        if len(self.names) == 1:
            return np.sum(x, keepdims=True)
        return np.bincount(self.labels, x, minlength=len(self.names)).astype(np.float64, copy=False)

    def spread(self, values: Array) -> Array:
        """One value per group, given to each of its members (a lone one only broadcasts)."""
        return values if len(values) == 1 else values.take(self.labels)

    def norms(self, x: Array, p: float) -> Array:
        """Lp norm of every group, with its largest entry taken out first."""
        size = np.abs(x)
        if p == 1.0:
            return self.sums(size)
        top = np.max(size, keepdims=True) if len(self.names) == 1 else np.zeros(len(self.names))
        if len(top) > 1:
            np.maximum.at(top, self.labels, size)
        if np.isinf(p):
            return top
        # Where all are zero or one is infinite, the ratio of equal numbers is one too.
        each = self.spread(top)
        ratio = np.divide(size, each, out=np.ones(size.shape), where=size != each)
        return top * self.sums(ratio**p) ** (1.0 / p)


@dataclass(frozen=True, eq=False)
class NormProx:
    r"""Shrunken norms p, and how they change with the norms n they came from.

    On the kernels in use

    .. math:: \frac{\partial p}{\partial n}
        = \operatorname{diag}(\mathrm{slopes})
        + \mathrm{coupling} \operatorname{diag}(\mathrm{signs})\, \mathrm{coupling}^\top,

    symmetric and positive semi-definite; all other entries are zero.

    Attributes
    ----------
    norms : ndarray of shape (m,)
        The p, exactly zero for kernels left out.
    active : ndarray of shape (A,), int
        Kernels in use: ``flatnonzero(norms > 0)``.
    slopes : ndarray of shape (A,)
        The diagonal part.
    spikes, parts : ndarray of shape (A,)
        The one entry of each row of `coupling` that is not zero, and its column, -1 for kernels
        that depend on no other.
    signs : ndarray of shape (R,)
        +1 or -1 for each column of `coupling`.

    Examples
    --------
    >>> from kernelweave.regularizers import Simplex
    >>> shrunk = Simplex().norm_prox(np.array([3.0, 1.0, 2.0]), step=1.0)
    >>> shrunk.norms.round(10).tolist(), shrunk.active.tolist()
    ([1.3333333333, 0.0, 0.3333333333], [0, 2])
    """

    norms: Array
    active: Index
    slopes: Array
    spikes: Array
    parts: Index
    signs: Array

    @cached_property
    def coupling(self) -> Array:
        """The low-rank part, of shape (A, R); R is zero where kernels do not depend on another."""
        dense = np.zeros((len(self.active), len(self.signs)))
        rows = np.flatnonzero(self.parts >= 0)
        dense[rows, self.parts[rows]] = self.spikes[rows]
        return dense

    @classmethod
    def separable(cls, shrunk: Array, slopes: Array) -> NormProx:
        """Answer of a prox that treats every norm on its own; `slopes` are those of `shrunk`."""
        active = np.flatnonzero(shrunk > 0)
        alone = np.full(len(active), -1, dtype=np.intp)
        return cls(shrunk, active, slopes[active], np.zeros(len(active)), alone, np.zeros(0))


class Regularizer(Named):
    r"""A price :math:`r(d)` on kernel weights :math:`d \ge 0`, and what it means for norms.

    The learning problem can be written with weights or with the norms of the components,

    .. math::

        \Omega(|f_1|, \dots, |f_m|)
        = \min_{d \ge 0} \; \tfrac12 \sum_k \frac{|f_k|^2}{d_k} + r(d),

    and its dual has :math:`r^*(q / 2)`, :math:`q_k = \alpha^\top K_k \alpha`, in place of it.

    A subclass that sets `name` registers itself: it can be asked for by that name and joins the
    contract tests.

    Attributes
    ----------
    name : str
        Name in the register.
    sparse : bool
        Whether optimal weights are sparse, so that solvers may drop kernels.
    smooth : bool
        Whether `gradient` tells all of r on the allowed set; if not, solvers go by `prox`.
    convex : bool
        Whether r is convex. If not, it has no `omega`, no `dual_penalty` and so no duality gap.
    orthant : bool
        Whether all weights :math:`d \ge 0` are allowed and steps may differ from weight to weight,
        those of `project`, or of `prox` where r is not smooth.
    bounded : bool
        Whether the allowed weights are a bounded set. One-class problems ask for that: nothing but
        the set keeps their weights from growing or vanishing.
    proximal : bool
        Whether there is a `norm_prox`, which SpicyMKL goes by.
    selective : bool
        Whether a kernel of weight zero changes nothing for the others, so that a solver may look at
        some kernels alone.
    fixed : bool
        Whether only one set of weights is allowed.
    searching : bool
        Whether `prox` is a search, so that solvers rather go by `weights_from_norms`.
    polyhedral : bool
        Whether the best weights sum to one and r is zero there or, of an `orthant`, r is
        proportional to the sum of the weights: cutting planes then form a linear program.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.regularizers import get_regularizer
    >>> reg = get_regularizer("simplex")
    >>> norms = np.array([1.0, 3.0])
    >>> d = reg.weights_from_norms(norms)
    >>> float(0.5 * np.sum(norms**2 / d) + reg.value(d)) == reg.omega(norms)
    True
    """

    kind = "regularizer"
    sparse: ClassVar[bool]
    convex: ClassVar[bool] = True
    orthant: ClassVar[bool] = False
    bounded: ClassVar[bool] = False
    proximal: ClassVar[bool] = False
    selective: ClassVar[bool] = False
    fixed: ClassVar[bool] = False
    searching: ClassVar[bool] = False
    smooth: bool = True
    polyhedral: bool = False
    weight: float

    def bind(self, bank: KernelOperator, combination: Combination) -> Regularizer:
        """Return the regularizer for these kernels; called once before a fit.

        Most need nothing from the kernels and return themselves.
        """
        return self

    @abstractmethod
    def value(self, d: Array) -> float:
        """``r(d)``; infinite where d is not allowed (1e-9 slack)."""

    @abstractmethod
    def gradient(self, d: Array) -> Array:
        """Gradient of `value` at an allowed d (zero for the indicator of a set)."""

    def project(self, v: Array) -> Array:
        """Nearest allowed weights; here all d >= 0 are."""
        return np.maximum(v, 0.0)

    def prox(self, v: Array, step: Array | float) -> Array:
        r"""Weights that minimise :math:`\tfrac12 |d - v|^2 + \mathrm{step} \cdot r(d)`.

        Needed where `smooth` is false, offered where it is a closed form. Of an `orthant` that is
        not smooth `step` may be one number for each weight,
        :math:`\tfrac12 \sum_k (d_k - v_k)^2 / \mathrm{step}_k + r(d)`.
        """
        raise NotImplementedError(f"{self!r} has no prox; it is smooth, so use its gradient.")

    def omega(self, norms: Array) -> float:
        r"""Return :math:`\Omega`, the penalty as a function of the norms ``|f_k|``.

        Here from the weights that attain it.
        """
        d, used = self.weights_from_norms(norms), norms > 0
        if np.any(d[used] == 0):
            return np.inf
        return 0.5 * float(np.sum(norms[used] * (norms[used] / d[used]))) + self.value(d)

    def norm_prox(self, norms: Array, step: float) -> NormProx:
        r"""Norms p that minimise :math:`\tfrac12 |p - n|^2 + \mathrm{step} \cdot \Omega(p)`."""
        raise NotImplementedError(
            f"{self!r} has no norm_prox, which the solver 'spicy' goes by; those that have one say "
            "proximal = True."
        )

    @abstractmethod
    def weights_from_norms(self, norms: Array) -> Array:
        r"""Weights d that attain the minimum in the definition of :math:`\Omega`."""

    @abstractmethod
    def dual_penalty(self, q: Array) -> float:
        r"""Return :math:`r^*(q / 2)` for ``q >= 0``."""

    def dual_weights(self, q: Array) -> Array | None:
        r"""Weights that attain :math:`r^*(q / 2)`, or None where q does not tell them.

        Where they are unique this is the gradient of :math:`r^*` at q / 2.
        """
        return None

    def screened(self, low: Array, high: Array) -> Flags:
        r"""Tell which kernels have weight zero at every optimum, for certain.

        `low` and `high` are bounds on :math:`\sqrt{q_k(\alpha^*)}` at the dual optimum.
        """
        return np.zeros(np.shape(high), dtype=bool)

    def dual_scale(self, q: Array) -> float:
        """Largest t <= 1 for which ``t * alpha`` has a finite dual penalty, `q` being alpha's."""
        return 1.0

    def entry_scale(self, q: Array) -> float:
        """Largest t for which ``t * alpha`` asks for no weight at all, `q` being alpha's.

        Zero where some kernel always has weight, infinite where q is zero.
        """
        return 0.0

    def start(self, m: int) -> Array:
        """Weights to start from: equal, and allowed; here of the sum one."""
        return np.full(m, 1.0 / m)

    def _price(self) -> float:
        """The `weight` of a regularizer that has one, checked."""
        return positive_number(f"weight of {type(self).__name__}", self.weight)


def get_regularizer(regularizer: str | Regularizer) -> Regularizer:
    """Return the named regularizer with its default parameters, or the given object as it is."""
    if isinstance(regularizer, Regularizer):
        return regularizer
    return Regularizer.find(regularizer)()
