"""Putting kernels on one scale: constants are learnt on training samples and reused on new ones.

A normalisation is a sequence of steps. Each step sees the kernel as the steps before it left it,
its diagonal k(x, x) and (for centring) its mean over the training samples, and then scales or
centres it. What that does to values, products and diagonals is written in
:class:`~kernelweave.kernels.scaled_factor.Scaling`, once for all steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from kernelweave.errors import InvalidInputError
from kernelweave.validation import require_array, require_kind, unknown_name

Floats = NDArray[np.float64]

# A kernel of this size has entries that float64 keeps with fewer digits, or not at all.
_TINY = 1e-290
_ABOVE_ZERO = float(np.nextafter(0.0, 1.0))


class Normalisable(Protocol):
    """What a step acts on: a `Scaling`, or a factor of a kernel."""

    def scaled(self, root: Any) -> Self:
        """Return what belongs to diag(root) K diag(root)."""

    def centred(self, means: Floats, grand: float) -> Self:
        """Return what belongs to K with the means over training samples taken off."""


Target = TypeVar("Target", bound=Normalisable)


class NormalizationStep(ABC):
    """One step of a normalisation, with the constants it has learnt for every kernel."""

    name: ClassVar[str]
    needs_means: ClassVar[bool] = False
    needs_diagonal: ClassVar[bool] = False

    # The least that `sides` may hold.
    _low: ClassVar[float] = -np.inf

    def __init__(self, n_kernels: int) -> None:
        # By kernel, what is known of each training sample.
        self.sides: dict[int, Floats] = {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Files of earlier versions call them by what they are.
        own = {{"_roots": "sides", "_means": "sides"}.get(key, key): state[key] for key in state}
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

    @abstractmethod
    def learn(self, k: int, kernel: str, diag: Floats, means: Floats | None) -> None:
        """Learn from the training diagonal and (if `needs_means`) the training row means."""

    def side(self, kernel: str, diag: Floats, means: Floats | None) -> Floats | None:
        """What `sides` holds of training samples, for others: from their diagonal and means."""
        return None

    @abstractmethod
    def on(self, k: int, target: Target, side: Floats | None) -> Target:
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

    def learn(self, k: int, kernel: str, diag: Floats, means: Floats | None) -> None:
        with np.errstate(over="ignore"):
            mean = float(diag.mean())
        if not mean > 0:
            raise InvalidInputError(
                f"kernel '{kernel}' has mean diagonal {mean:g} on the training samples, so it "
                f"cannot be scaled to 1 (normalize='trace'). A zero kernel carries nothing (are "
                f"its columns constant?): leave it out, or use normalize=None."
            )
        if not _TINY <= mean < np.inf:
            raise InvalidInputError(
                f"kernel '{kernel}' has mean diagonal {mean:g} on the training samples, so it "
                f"cannot be scaled to 1 (normalize='trace') with the digits float64 has. Scale the "
                f"columns it reads."
            )
        self.scale[k] = 1.0 / mean

    def on(self, k: int, target: Target, side: Floats | None) -> Target:
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

    def learn(self, k: int, kernel: str, diag: Floats, means: Floats | None) -> None:
        roots = self.side(kernel, diag, means)
        if not roots.any():
            raise InvalidInputError(
                f"kernel '{kernel}' has k(x, x) = 0 for all training samples, so it cannot be "
                f"scaled to 1 (normalize='diagonal'). A zero kernel carries nothing (are its "
                f"columns constant?): leave it out, or use normalize=None."
            )
        self.sides[k] = roots

    def side(self, kernel: str, diag: Floats, means: Floats | None) -> Floats:
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

    def on(self, k: int, target: Target, side: Floats | None) -> Target:
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

    def __init__(self, n_kernels: int) -> None:
        super().__init__(n_kernels)
        self._grand: dict[int, float] = {}

    def check(self, n_kernels: int, n: int) -> None:
        super().check(n_kernels, n)
        if self._grand.keys() != self.sides.keys():
            raise InvalidInputError("normalize='center' must have a mean for each kernel.")
        for mean in self._grand.values():
            require_array("a mean of normalize='center'", np.asarray(mean), ())

    def learn(self, k: int, kernel: str, diag: Floats, means: Floats | None) -> None:
        own = np.asarray(means)
        if not np.isfinite(own).all():
            raise InvalidInputError(
                f"kernel '{kernel}' has values so large that their mean overflows, so it cannot be "
                f"centred (normalize='center'). Scale the columns it reads."
            )
        # The means come last: whoever finds them here takes all as learnt.
        self._grand[k] = float(own.mean())
        self.sides[k] = own

    def side(self, kernel: str, diag: Floats, means: Floats | None) -> Floats | None:
        return means

    def on(self, k: int, target: Target, side: Any) -> Target:
        return target.centred(side, self._grand[k])


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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Normalization) and self.names == other.names

    def __hash__(self) -> int:
        return hash(self.names)

    def __repr__(self) -> str:
        return f"Normalization({', '.join(repr(name) for name in self.names)})"
