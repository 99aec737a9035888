"""What all sets of kernels or distances on training samples have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.samples import Samples
from kernelweave.kernels.tile import Tile
from kernelweave.validation import require_kind, require_names

__all__ = ["BaseSet", "check_kernels"]


class BaseSet(ABC):
    """Base matrices on training samples, and between these and new ones: what estimators keep.

    Attributes
    ----------
    samples : Samples
        The training samples.
    names : sequence of str
        One readable name for each kernel.
    """

    samples: Samples
    names: Sequence[str]

    @property
    def n(self) -> int:
        """Number of training samples."""
        return self.samples.n

    @property
    @abstractmethod
    def m(self) -> int:
        """Number of kernels."""

    def __len__(self) -> int:
        return self.m

    @abstractmethod
    def tile(self, X_new: Any, idx: ArrayLike | None = None, dtype: DTypeLike = np.float64) -> Tile:
        """Return new samples against training samples `idx` (None: all) as a tile."""

    @abstractmethod
    def tile_between(self, X: Any, Z: Any) -> Tile:
        """Return new samples against other new samples as a tile."""

    @abstractmethod
    def sample_ids_of(self, idx: ArrayLike, kernels: ArrayLike | None = None) -> dict[str, Any]:
        """Return, for each precomputed kernel, the ids of those training samples."""

    def _asked(self, kernels: ArrayLike | None) -> NDArray[np.int64]:
        """Indices of the kernels asked for (None: all), counted from the start."""
        if kernels is None:
            return np.arange(self.m)
        chosen = np.asarray(kernels, dtype=np.int64)
        if chosen.size and not (-self.m <= chosen.min() and chosen.max() < self.m):
            raise InvalidInputError(f"kernel indices must be in 0..{self.m - 1}; got {kernels!r}.")
        return chosen % self.m

    def _positions(self, idx: ArrayLike) -> NDArray[np.intp]:
        """Positions of training samples, checked."""
        index = np.asarray(idx, dtype=np.intp)
        if index.ndim != 1 or (index.size and not (index.min() >= 0 and index.max() < self.n)):
            raise InvalidInputError(
                f"sample indices must be a 1-D array in 0..{self.n - 1}; got {idx!r}."
            )
        return index


def check_kernels(kernels: Any, samples: Any, names: Any) -> None:
    """Raise unless bound kernels, which came from a file, fit their samples and have names.

    Examples
    --------
    >>> from kernelweave.kernels import Linear
    >>> check_kernels([Linear()], Samples([[1.0]]), ["linear"])
    """
    require_kind("the kernels", kernels, list)
    require_kind("the training samples", samples, Samples)
    if not kernels:
        raise InvalidInputError("there must be at least one kernel.")
    require_names("the names of the kernels", names, len(kernels))
    for kernel in kernels:
        require_kind("a kernel", kernel, Kernel)
        kernel.check_bound(samples)
