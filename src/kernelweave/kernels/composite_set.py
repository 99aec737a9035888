"""Sets of kernels of several kinds, and the door through which estimators come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.base_set import BaseSet
from kernelweave.kernels.batch import RBFBatch
from kernelweave.kernels.batch_set import BatchSet
from kernelweave.kernels.kernel_set import KernelSet
from kernelweave.kernels.lazy_names import StackedNames
from kernelweave.kernels.resolve import resolve_items
from kernelweave.kernels.samples import as_samples
from kernelweave.kernels.tile import Tile
from kernelweave.validation import require_array, require_kind

__all__ = ["CompositeSet", "build_set", "whereabouts"]

Array = NDArray[Any]


def build_set(
    kernels: Any, X: Any, normalize: Any = "trace"
) -> KernelSet | BatchSet | CompositeSet:
    """Bind whatever an estimator's `kernels` accepts to the samples `X`.

    Parameters
    ----------
    kernels : Kernel, Family, RBFBatch, str, or list of these
        What the user asked for.
    X : array, CSR matrix, DataFrame or Samples
        The training samples.
    normalize : {"trace", "diagonal", "center"}, None or tuple of these, default="trace"
        The normalisation.

    Examples
    --------
    >>> from kernelweave.kernels import Linear
    >>> X = [[0.0, 1.0], [2.0, 1.0]]
    >>> build_set(RBFBatch([[0], [1]], [1.0, 1.0]), X)
    BatchSet(n=2, m=2, Normalization('trace'))
    >>> list(build_set([RBFBatch([[1]], [1.0]), Linear()], X).names)
    ['rbf(gamma=1) on column 1', 'linear']
    """
    samples = as_samples(X)
    items = resolve_items(kernels, samples)
    sizes = [item.m if isinstance(item, RBFBatch) else 1 for item in items]
    ends = np.cumsum(sizes)
    parts: list[Any] = []
    members: list[Array] = []
    ordinary = {i: item for i, item in enumerate(items) if isinstance(item, Kernel)}
    if ordinary:
        # All in one set: they share what they compute, and no two get the same name.
        parts.append(KernelSet(list(ordinary.values()), samples, normalize))
        members.append(ends[list(ordinary)] - 1)
    for item, size, end in zip(items, sizes, ends, strict=True):
        if isinstance(item, RBFBatch):
            parts.append(BatchSet(item, samples, normalize))
            members.append(np.arange(end - size, end))
    return parts[0] if len(parts) == 1 else CompositeSet(parts, members)


def whereabouts(members: Sequence[Array]) -> tuple[Array, Array]:
    """Return for every kernel of the whole its part, and its place there.

    Examples
    --------
    >>> whereabouts([np.array([0, 2]), np.array([1])])
    (array([0, 1, 0]), array([0, 0, 1]))
    """
    count = sum(len(own) for own in members)
    part, place = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    for p, own in enumerate(members):
        part[own] = p
        place[own] = np.arange(len(own))
    return part, place


class CompositeTile(Tile):
    """Tiles of several parts as one."""

    def __init__(self, tiles: Sequence[Tile], members: Sequence[Array]) -> None:
        self.shape = tiles[0].shape
        self.m = sum(tile.m for tile in tiles)
        self._tiles = tiles
        self._members = members

    def weighted(self, d: ArrayLike) -> Array:
        weights = np.asarray(d)
        out: Array | None = None
        for tile, own in zip(self._tiles, self._members, strict=True):
            if out is None:
                out = tile.weighted(weights[own])
            elif weights[own].any():
                out += tile.weighted(weights[own])
        return np.zeros(self.shape) if out is None else out

    def stack(self, kernels: ArrayLike | None = None) -> Array:
        chosen = np.arange(self.m) if kernels is None else np.asarray(kernels, dtype=np.int64)
        part, place = whereabouts(self._members)
        return _gather(
            part, place, chosen, self.shape, lambda p, own: self._tiles[p].stack(own), None
        )

    def contract(self, M: ArrayLike) -> NDArray[np.float64]:
        out = np.empty(self.m)
        for tile, own in zip(self._tiles, self._members, strict=True):
            out[own] = tile.contract(M)
        return out


def _gather(
    part: Array,
    place: Array,
    chosen: Array,
    shape: tuple[int, ...],
    ask: Callable[[int, Array], Array],
    dtype: DTypeLike | None,
) -> Array:
    """Put the parts' answers for the chosen kernels into one array, in order."""
    out: Array | None = None if dtype is None else np.empty((len(chosen), *shape), dtype)
    for p, positions in _split(part, chosen):
        values = ask(p, place[chosen[positions]])
        if out is None:
            out = np.empty((len(chosen), *shape), values.dtype)
        out[positions] = values
    return np.empty((0, *shape)) if out is None else out


def _split(part: Array, chosen: Array) -> Iterator[tuple[int, Array]]:
    for p in np.unique(part[chosen]):
        yield int(p), np.flatnonzero(part[chosen] == p)


class CompositeSet(BaseSet):
    """Several sets on the same samples as one; answers what a `KernelSet` does.

    Parameters
    ----------
    parts : sequence of KernelSet or BatchSet
        Sets on the same samples.
    members : sequence of integer arrays
        Which kernels of the whole each part holds, in the part's order.

    Examples
    --------
    >>> from kernelweave.kernels import Linear
    >>> kernels = build_set([Linear(), RBFBatch([[0], [1]], [1.0, 2.0])], [[0.0, 1.0], [2.0, 1.0]])
    >>> kernels.m, kernels.names[2]
    (3, 'rbf(gamma=2) on column 1')
    """

    def __init__(self, parts: Sequence[Any], members: Sequence[Array]) -> None:
        self.parts = tuple(parts)
        self.members = tuple(members)
        self.samples = self.parts[0].samples
        self.normalization = self.parts[0].normalization
        self._part, self._place = whereabouts(self.members)
        self.names = StackedNames([part.names for part in self.parts], self._part, self._place)

    def _file_state(self) -> dict[str, Any]:
        return {"parts": self.parts, "members": self.members}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["parts"], state["members"])  # type: ignore[misc]

    def _after_load(self) -> None:
        for part, own in zip(self.parts, self.members, strict=True):
            require_kind("a part of the kernels", part, BaseSet)
            require_array("the kernels of a part", own, (part.m,), whole=True)
            if part.samples is not self.samples:
                raise InvalidInputError("all parts of the kernels must have the same samples.")
        every = np.concatenate(self.members)
        if not np.array_equal(np.sort(every), np.arange(len(every))):
            raise InvalidInputError("each kernel must be in one part, once.")

    @property
    def m(self) -> int:
        return len(self._part)

    def __repr__(self) -> str:
        return f"CompositeSet(n={self.n}, m={self.m}, {self.normalization!r})"

    def _ask(
        self,
        kernels: ArrayLike | None,
        shape: tuple[int, ...],
        ask: Callable[[Any, Array], Array],
        dtype: DTypeLike = np.float64,
    ) -> Array:
        return _gather(
            self._part,
            self._place,
            self._asked(kernels),
            shape,
            lambda p, own: ask(self.parts[p], own),
            dtype,
        )

    def rows(
        self,
        idx: ArrayLike,
        kernels: ArrayLike | None = None,
        columns: ArrayLike | None = None,
        dtype: DTypeLike = np.float64,
    ) -> Array:
        """Return normalised values between training samples; see `KernelSet.rows`."""
        shape = (len(np.asarray(idx)), self.n if columns is None else len(np.asarray(columns)))
        return self._ask(
            kernels, shape, lambda part, own: part.rows(idx, own, columns, dtype), dtype
        )

    def diag(self, kernels: ArrayLike | None = None) -> Array:
        """Return the normalised diagonals, shape (m', n)."""
        return self._ask(kernels, (self.n,), lambda part, own: part.diag(own))

    def cross(
        self,
        X_new: Any,
        idx: ArrayLike | None = None,
        kernels: ArrayLike | None = None,
        dtype: DTypeLike = np.float64,
    ) -> Array:
        """Return normalised values of new samples against training samples."""
        new = as_samples(X_new)
        shape = (new.n, self.n if idx is None else len(np.asarray(idx)))
        return self._ask(kernels, shape, lambda part, own: part.cross(new, idx, own, dtype), dtype)

    def between(self, X: Any, Z: Any, kernels: ArrayLike | None = None) -> Array:
        """Return normalised values of new samples against other new samples."""
        left, right = as_samples(X), as_samples(Z)
        return self._ask(
            kernels, (left.n, right.n), lambda part, own: part.between(left, right, own)
        )

    def tile(self, X_new: Any, idx: ArrayLike | None = None, dtype: DTypeLike = np.float64) -> Tile:
        """Return new samples against training samples as a tile."""
        new = as_samples(X_new)
        return CompositeTile([part.tile(new, idx, dtype) for part in self.parts], self.members)

    def tile_between(self, X: Any, Z: Any) -> Tile:
        """Return new samples against other new samples as a tile."""
        left, right = as_samples(X), as_samples(Z)
        return CompositeTile([part.tile_between(left, right) for part in self.parts], self.members)

    def sample_ids_of(self, idx: ArrayLike, kernels: ArrayLike | None = None) -> dict[str, Any]:
        """Return, for each precomputed kernel, the ids of those training samples."""
        chosen = np.arange(self.m) if kernels is None else np.asarray(kernels, dtype=np.int64)
        out: dict[str, Any] = {}
        for p, positions in _split(self._part, chosen):
            out.update(self.parts[p].sample_ids_of(idx, self._place[chosen[positions]]))
        return out
