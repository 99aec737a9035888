"""Operators of kernels that are computed from samples, and the samples on either side of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.evaluate import evaluate_stack
from kernelweave.kernels.normalize import Normalization, Scaling
from kernelweave.kernels.samples import Samples, as_samples
from kernelweave.operators.base import Array, KernelOperator
from kernelweave.validation import require_kind, require_names


class Rows:
    """Samples on one side of an operator, and what the normalisation knows of them.

    `scalings` has what it knows by kernel, and is None if that still has to be found out.
    """

    def __init__(self, samples: Samples, scalings: dict[int, Scaling] | None = None) -> None:
        self.samples, self.scalings, self.n = samples, scalings, samples.n

    def take(self, idx: Array) -> Rows:
        known = self.scalings
        if known is not None:
            known = {place: own.take(idx) for place, own in known.items()}
        return Rows(self.samples.take(idx), known)


class SampledOperator(KernelOperator):
    """Kernels that are computed from samples, those of the training or others on either side.

    `_left` and `_right` are the samples as the representation reads them, `_train` those of the
    training.
    """

    samples: Any
    # None of those that are known by numbers alone.
    kernels: Sequence[Kernel] = ()
    normalization: Normalization
    dtype = "float64"
    _left: Any
    _right: Any
    _train: Any = None

    @abstractmethod
    def _side(self, new: Samples) -> Any:
        """Return new samples as the representation reads them."""

    @property
    def n(self) -> int:  # type: ignore[override]
        return int((self._right or self.samples).n)

    @property
    def shape(self) -> tuple[int, int]:
        return int((self._left or self.samples).n), self.n

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={self.n}, m={self.m}, {self.normalization!r})"

    def against(self, X: Any) -> Self:
        return self.of_rows(self._checked(X), self._train)

    def between(self, X: Any, Z: Any) -> Self:
        left = self._checked(X)
        return self.of_rows(left, left if Z is X else self._checked(Z))

    def _checked(self, X: Any) -> Any:
        new = as_samples(X)
        if new.n_columns != self.samples.n_columns:
            raise InvalidInputError(
                f"X has {new.n_columns} columns, but the kernels were bound to "
                f"{self.samples.n_columns}."
            )
        return self._side(new)

    def sample_ids_of(self, idx: Array, kernels: Array | None = None) -> dict[str, Any]:
        rows, found = self.samples.take(idx), {}
        for k, kernel in enumerate(self.kernels):
            if kernels is None or k in kernels:
                found[self.names[k]] = kernel.core.ids(rows.through(kernel.path))
        return {name: ids for name, ids in found.items() if ids is not None}

    def of_rows(self, left: Any, right: Any) -> Self:
        """Return the kernels between other samples."""
        return self._but(_left=left, _right=right)

    def in_type(self, dtype: str) -> Self:
        """Return the same kernels with values of that type."""
        return self._but(dtype=dtype)


def check_kernels(kernels: Any, samples: Any, names: Any) -> None:
    """Raise unless bound kernels, which came from a file, fit their samples and have names."""
    require_kind("the kernels", kernels, list)
    require_kind("the training samples", samples, Samples)
    if not kernels:
        raise InvalidInputError("there must be at least one kernel.")
    require_names("the names of the kernels", names, len(kernels))
    for kernel in kernels:
        require_kind("a kernel", kernel, Kernel)
        kernel.core.ids(samples.through(kernel.path))
    first = samples.take([0])
    evaluate_stack(kernels, first, first)
