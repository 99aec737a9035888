"""Putting kernels on one scale: constants are learnt on training samples and reused on new ones.

A normalisation is a sequence of steps. Each step sees the kernel as the steps before it left it,
its diagonal k(x, x) and (for centring) its mean over the training samples, and then scales or
centres it. What that does to values, products and diagonals is written once, in :class:`Scaling`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.validation import LARGEST, require_array, require_kind, unknown_name

# A centred diagonal this small against the one before is rounding error of zero.
_ROUNDING = 1e-12
# A kernel of this size has entries that float64 keeps with fewer digits, or not at all.
_TINY = 1e-290
_ABOVE_ZERO = float(np.nextafter(0.0, 1.0))


@dataclass(frozen=True, eq=False)
class Scaling:
    r"""What normalisation knows of some samples, on either side of a kernel :math:`K_0`.

    .. math:: K = S K_0 S' - L^\top U' - U^\top L'

    with diagonal S and S', those of the samples on the left and on the right. The other terms are
    what centring takes off:

    .. math:: K - r 1^\top - 1 r'^\top + g\, 1 1^\top
              = K - (r - \tfrac g2) 1^\top - 1 (r' - \tfrac g2)^\top .

    Every normalisation has this form, and every kernel, however it is kept, these formulas.

    Parameters
    ----------
    scale : ndarray of shape (n,) or ()
        The diagonal of S; a single number stands for n equal ones.
    left, right : ndarray of shape (r, n)
        L and U.

    Examples
    --------
    >>> halved = Scaling.none(3).scaled(np.float64(0.5)).centred(np.array([1.0, 2.0, 3.0]), 2.0)
    >>> halved.scale, halved.off_block([0], [1, 2])
    (array(0.5), array([[1., 2.]]))
    """

    scale: Array
    left: Array
    right: Array

    @classmethod
    def none(cls, n: int, scale: Array | float = 1.0) -> Scaling:
        """Return what n samples of a kernel that is not normalised have."""
        return cls(one_if_equal(np.asarray(scale)), np.empty((0, n)), np.empty((0, n)))

    # Steps of a normalisation

    def scaled(self, root: Array | float) -> Scaling:
        """Return that of diag(root) K diag(root')."""
        scale = one_if_equal(np.asarray(self.scale * root))
        return Scaling(scale, self.left * root, self.right * root)

    def centred(self, means: Array, grand: float) -> Scaling:
        """Return that of the centred kernel, given the means over training samples and theirs."""
        left = np.vstack([self.left, means - 0.5 * grand])
        return Scaling(self.scale, left, np.vstack([self.right, np.ones(len(means))]))

    def take(self, idx: Any) -> Scaling:
        """Return that of some of the samples."""
        some = (np.ascontiguousarray(side[:, idx]) for side in (self.left, self.right))
        return Scaling(self.at(idx), *some)

    def at(self, idx: Any) -> Array:
        """Entries of S for some samples, or the one number that all are."""
        return self.scale[idx] if self.scale.ndim else self.scale

    # From K_0 to K

    def normalise(self, values: Array, other: Scaling) -> None:
        """Turn K_0 between these samples (rows) and others (columns) into K, in place."""
        kind = values.dtype
        if self.scale.ndim or other.scale.ndim:
            values *= np.reshape(self.scale, (-1, 1)).astype(kind, copy=False)
            values *= other.scale.astype(kind, copy=False)
        elif (factor := self.scale * other.scale) != 1.0:
            values *= kind.type(factor)
        if self.takes_off:
            values -= self.off_block(slice(None), slice(None), other, kind)

    def product(
        self, raw: Callable[[Array], Array], v: Array, other: Scaling | None = None
    ) -> Array:
        """K v, given `raw` for products with K_0; `other` is of the samples of v, if not these."""
        other = self if other is None else other
        return self.scale * raw(other.scale * v) - self.off_product(v, other=other)

    def diagonal(self, raw: Array) -> Array:
        """Diagonal of K, given that of K_0."""
        out = raw * np.square(self.scale)
        if self.takes_off:
            sizes = np.abs(out)
            out -= 2.0 * np.einsum("rn,rn->n", self.left, self.right)
            out[np.abs(out) <= _ROUNDING * sizes] = 0.0
        return out

    @property
    def takes_off(self) -> bool:
        """Whether there is anything but the scale."""
        return len(self.left) > 0

    def off_product(self, v: Array, rows: Any = slice(None), other: Scaling | None = None) -> Array:
        """What centring takes off some rows of K v."""
        other = self if other is None else other
        left, right = self.left[:, rows], self.right[:, rows]
        return (other.left @ v) @ right + (other.right @ v) @ left

    def off_block(
        self, rows: Any, columns: Any, other: Scaling | None = None, dtype: Any = np.float64
    ) -> Array:
        """What centring takes off a block of K."""
        other = self if other is None else other
        mine = np.vstack([self.left[:, rows], self.right[:, rows]]).astype(dtype, copy=False)
        theirs = np.vstack([other.right[:, columns], other.left[:, columns]])
        return mine.T @ theirs.astype(dtype, copy=False)

    def coefficients(self, v: Array) -> tuple[Array, float]:
        r"""Return c and b with :math:`\sum_j v_j K(x, x_j) = s(x) \sum_j c_j K_0(x, x_j) + b`.

        For training samples :math:`x_j`, where nothing but a constant scales a kernel after it was
        centred. A centred kernel takes the mean off v as well, and has the mean 0 over the
        training samples.
        """
        left, right = self.left, self.right
        constant = left.mean(axis=1) @ (right @ v) - right.mean(axis=1) @ (left @ v)
        return self.scale * (v - v.mean() if self.takes_off else v), float(constant)


class ScaledFactor(ABC):
    """A training Gram matrix that is only known by products, normalised."""

    scaling: Scaling

    @abstractmethod
    def raw_product(self, v: Array) -> Array:
        """K_0 v."""

    @abstractmethod
    def raw_diagonal(self) -> Array:
        """Diagonal of K_0."""

    @abstractmethod
    def take(self, idx: Any, shared: dict[int, Any]) -> ScaledFactor:
        """Return the same on some of the samples.

        `shared` holds what factors of the same samples have in common, by the id of the original.
        """

    def product(self, v: Array) -> Array:
        """K v."""
        return self.scaling.product(self.raw_product, v)

    def diagonal(self) -> Array:
        """Diagonal of K."""
        return np.maximum(self.scaling.diagonal(self.raw_diagonal()), 0.0)


def one_if_equal(given: Array) -> Array:
    """Return a single number, shape (), if all are equal."""
    return given[0].copy() if given.size and given.ndim and np.all(given == given[0]) else given


# What a step acts on: a `Scaling`, or a factor of a kernel, which is `scaled` and `centred` alike.
Target = TypeVar("Target", bound=Any)


class NormalizationStep(ABC):
    """One step of a normalisation, with the constants it has learnt for every kernel."""

    name: ClassVar[str]
    needs_means: ClassVar[bool] = False
    needs_diagonal: ClassVar[bool] = False

    # The least that `sides` may hold.
    _low: ClassVar[float] = -np.inf

    def __init__(self, n_kernels: int) -> None:
        # By kernel, what is known of each training sample.
        self.sides: dict[int, Array] = {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Files of earlier versions call them by what they are, and have the mean of all means.
        names = {"_roots": "sides", "_means": "sides"}
        own = {names.get(key, key): state[key] for key in state if key != "_grand"}
        self.__dict__.update({"sides": {}} | own)

    def has(self, k: int) -> bool:
        """Whether the constants of kernel k are known."""
        return k in self.sides

    def check(self, n_kernels: int, n: int) -> None:
        """Raise unless the constants, which came from a file, are those of so many kernels."""
        what = f"what normalize={self.name!r} has learnt"
        require_kind(what, self.sides, dict)
        for k, side in self.sides.items():
            of = f"kernels of normalize={self.name!r}"
            require_array(of, np.asarray(k), (), whole=True, low=0, high=n_kernels - 1)
            require_array(what, side, (n,), low=self._low)

    def learn(self, k: int, kernel: str, diag: Array, means: Array | None) -> None:
        """Learn from the training diagonal and (if `needs_means`) the training row means."""
        self.sides[k] = np.asarray(self.side(kernel, diag, means))

    def learn_units(self, kernels: list[int], n: int) -> None:
        """Learn of kernels whose diagonal is one, if no means are needed; they may be many."""
        for k in kernels:
            self.learn(k, "", np.ones(n), None)

    def side(self, kernel: str, diag: Array, means: Array | None) -> Array | None:
        """What `sides` holds of training samples, for any: from their diagonal and means."""
        return None

    @abstractmethod
    def on(self, k: int, target: Target, side: Array | None) -> Target:
        """Scale or centre kernel k, given what is known of each sample."""


class Trace(NormalizationStep):
    r"""Mean diagonal 1: ``"trace"``.

    .. math:: k \leftarrow \frac{n}{\sum_i k(x_i, x_i)} \, k

    This is the papers' unit trace times n, so that C means what it means for an SVM.

    Examples
    --------
    >>> from kernelweave.kernels import Linear
    >>> from kernelweave.operators import ComputedOperator
    >>> ComputedOperator.build(Linear(), [[1.0], [3.0]], "trace").diagonal()
    array([[0.2, 1.8]])
    """

    name = "trace"

    def __init__(self, n_kernels: int) -> None:
        super().__init__(n_kernels)
        self.scale = np.full(n_kernels, np.nan)

    def has(self, k: int) -> bool:
        return not np.isnan(self.scale[k])

    def check(self, n_kernels: int, n: int) -> None:
        super().check(n_kernels, n)
        require_kind("factors of normalize='trace'", self.scale, np.ndarray)
        known = np.where(np.isnan(self.scale), 1.0, self.scale)  # Not all need have been learnt.
        require_array("factors of normalize='trace'", known, (n_kernels,), low=_ABOVE_ZERO)

    def learn(self, k: int, kernel: str, diag: Array, means: Array | None) -> None:
        with np.errstate(over="ignore"):
            mean = float(diag.mean())
        if not mean > 0:
            raise _zero(kernel, f"mean diagonal {mean:g} on the", self.name)
        if not _TINY <= mean < np.inf:
            raise InvalidInputError(
                f"kernel '{kernel}' has mean diagonal {mean:g} on the training samples, so it "
                f"cannot be scaled to 1 (normalize='trace') with the digits float64 has. Scale the "
                f"columns it reads."
            )
        self.scale[k] = 1.0 / mean

    def learn_units(self, kernels: list[int], n: int) -> None:
        self.scale[kernels] = 1.0

    def on(self, k: int, target: Target, side: Array | None) -> Target:
        return target.scaled(np.sqrt(self.scale[k]))


class Diagonal(NormalizationStep):
    r"""Unit diagonal ("spherical"): ``"diagonal"``.

    .. math:: k(x, x') \leftarrow \frac{k(x, x')}{\sqrt{k(x, x)\, k(x', x')}}

    A sample with k(x, x) = 0 is similar to none, itself included, and stays so.

    Examples
    --------
    >>> from kernelweave.kernels import Polynomial
    >>> from kernelweave.operators import ComputedOperator
    >>> ComputedOperator.build(Polynomial(2), [[1.0], [3.0]], "diagonal").block([0]).round(3)
    array([[[1. , 0.8]]])
    """

    name = "diagonal"
    needs_diagonal = True
    _low = 0.0

    def learn(self, k: int, kernel: str, diag: Array, means: Array | None) -> None:
        super().learn(k, kernel, diag, means)
        if not diag.any():
            raise _zero(kernel, "k(x, x) = 0 for all", self.name)

    def side(self, kernel: str, diag: Array, means: Array | None) -> Array:
        bad = np.flatnonzero(~((diag >= 0) & (diag < np.inf)))
        if len(bad):
            raise InvalidInputError(
                f"kernel '{kernel}' has k(x, x) = {diag[bad[0]]:g} for sample {bad[0]}"
                f"{f' and {len(bad) - 1} more' if len(bad) > 1 else ''}, so its diagonal cannot "
                f"be scaled to 1 (normalize='diagonal')."
            )
        roots = np.zeros_like(diag, dtype=np.float64)
        np.divide(1.0, np.sqrt(diag), out=roots, where=diag > 0)
        return roots

    def on(self, k: int, target: Target, side: Array | None) -> Target:
        return target.scaled(side)


class Center(NormalizationStep):
    r"""Zero mean in feature space: ``"center"``.

    .. math:: k(x, x') \leftarrow k(x, x') - r(x) - r(x') + g, \quad
              r(x) = \tfrac1n \sum_i k(x, x_i), \quad g = \tfrac1n \sum_i r(x_i)

    over the training samples :math:`x_i`.

    Examples
    --------
    >>> from kernelweave.kernels import Linear
    >>> from kernelweave.operators import ComputedOperator
    >>> ComputedOperator.build(Linear(), [[1.0], [3.0]], "center").block([0, 1])
    array([[[ 1., -1.],
            [-1.,  1.]]])
    """

    name = "center"
    needs_means = True

    def side(self, kernel: str, diag: Array, means: Array | None) -> Array | None:
        if not np.isfinite(np.asarray(means)).all():
            raise InvalidInputError(
                f"kernel '{kernel}' has values so large that their mean overflows, so it cannot be "
                f"centred (normalize='center'). Scale the columns it reads."
            )
        return means

    def on(self, k: int, target: Target, side: Any) -> Target:
        return target.centred(side, float(self.sides[k].mean()))


def _zero(kernel: str, what: str, normalize: str) -> InvalidInputError:
    return InvalidInputError(
        f"kernel '{kernel}' has {what} training samples, so it cannot be scaled to 1 "
        f"(normalize={normalize!r}). A zero kernel carries nothing (are its columns constant?): "
        f"leave it out, or use normalize=None."
    )


_STEPS: dict[str, type[NormalizationStep]] = {s.name: s for s in (Trace, Diagonal, Center)}


class Normalization:
    """A sequence of normalisation steps, by name.

    Examples
    --------
    >>> Normalization.parse(("center", "trace"))
    Normalization('center', 'trace')
    >>> Normalization.parse(None).pure_scaling
    True
    """

    def __init__(self, *names: str) -> None:
        self.names = names

    @classmethod
    def parse(cls, spec: Any) -> Normalization:
        """Read what a user wrote: a name, None, or a tuple of names in order."""
        if isinstance(spec, Normalization):
            return spec
        names = () if spec is None else (spec,) if isinstance(spec, str) else spec
        if not isinstance(names, tuple | list):
            raise InvalidInputError(
                f"normalize must be 'trace', 'diagonal', 'center', None or a tuple of these in "
                f"order; got {spec!r}."
            )
        for name in names:
            if name not in _STEPS:
                raise unknown_name("normalization", name, _STEPS)
        return cls(*names)

    def _after_load(self) -> None:
        require_kind("the names of a normalization", self.names, tuple)
        Normalization.parse(self.names)

    @property
    def scales(self) -> bool:
        """Whether kernels end on a scale of about one, whatever theirs was."""
        return not set(self.names) <= {"center"}

    @property
    def pure_scaling(self) -> bool:
        """Whether every kernel is only multiplied by a constant."""
        return set(self.names) <= {"trace"}

    @property
    def divides_centred(self) -> bool:
        """Whether samples are divided by what is left of their norms after centring."""
        after = self.names[self.names.index("center") :] if "center" in self.names else ()
        return "diagonal" in after

    def steps(self, n_kernels: int) -> list[NormalizationStep]:
        """Return fresh steps that have learnt nothing yet."""
        return [_STEPS[name](n_kernels) for name in self.names]

    def check_size(self, kernel: str, diagonal: Array) -> None:
        """Raise if the values of a kernel, after all steps, are too large to be added up."""
        largest = np.abs(diagonal).max(initial=0.0)
        if not largest <= LARGEST:
            raise InvalidInputError(
                f"kernel '{kernel}' has a diagonal of up to {largest:g}; kernel values must be at "
                f"most {LARGEST:g} in size, or sums and squares of them would overflow. Scale its "
                f"columns, or use normalize='trace'."
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Normalization) and self.names == other.names

    def __hash__(self) -> int:
        return hash(self.names)

    def __repr__(self) -> str:
        return f"Normalization({', '.join(repr(name) for name in self.names)})"
