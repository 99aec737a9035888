"""Distances on training samples: the base matrices of a product of kernels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import Kernel, no_exponent
from kernelweave.kernels.base_set import BaseSet, check_kernels
from kernelweave.kernels.exponent import Array, EvaluatedPart, Part, Term, terms_of, through
from kernelweave.kernels.families import feature_distances
from kernelweave.kernels.normalize import Normalization
from kernelweave.kernels.pair import Pair
from kernelweave.kernels.resolve import resolve, unique_names
from kernelweave.kernels.samples import Samples, as_samples
from kernelweave.kernels.squared_part import SquaredPart
from kernelweave.kernels.tile import Tile

__all__ = ["DistanceSet", "DistanceTile", "sort_terms"]


class DistanceTile(Tile):
    """Rows and columns of all distance matrices, never held all at once.

    Parameters
    ----------
    kernels : sequence of Kernel
        Bound kernels exp(-D_k).
    left, right : Samples
        The rows and the columns.
    parts : list of (Part, left side, right side)
        What D_k are added up from.
    dtype : {float64, float32}
        Type of everything computed.

    Examples
    --------
    >>> from kernelweave.kernels import RBF
    >>> tile = DistanceSet.build([RBF(gamma=1), RBF(gamma=2)], [[0.0], [3.0]]).tile([[1.0]])
    >>> tile.weighted([1.0, 10.0])
    array([[21., 84.]])
    >>> tile.contract([[1.0, 1.0]])
    array([ 5., 10.])
    """

    def __init__(
        self,
        kernels: Sequence[Kernel],
        left: Samples,
        right: Samples,
        parts: list[tuple[Part, Any, Any]],
        dtype: DTypeLike,
    ) -> None:
        self.shape = (left.n, right.n)
        self.m = len(kernels)
        self._kernels = kernels
        self._left = left
        self._right = right
        self._parts = parts
        self._dtype = np.dtype(dtype)

    def weighted(self, d: ArrayLike) -> Array:
        weights = np.asarray(d, dtype=np.float64)
        out: Array | None = None
        for part, left, right in self._parts:
            out = part.weighted(weights, left, right, out)
        return np.zeros(self.shape, self._dtype) if out is None else out

    def stack(self, kernels: ArrayLike | None = None) -> Array:
        """See :class:`Tile`; from the kernels' own formula, one by one."""
        chosen = np.arange(self.m) if kernels is None else np.asarray(kernels)
        out = np.empty((len(chosen), *self.shape), self._dtype)
        for i, k in enumerate(chosen):
            out[i] = self._kernels[k].exponent(Pair(self._left, self._right, self._dtype))
        return out

    def contract(self, M: ArrayLike) -> NDArray[np.float64]:
        """See :class:`Tile`; M is rounded to the type of the tile."""
        weights = np.ascontiguousarray(M, dtype=self._dtype)
        out = np.zeros(self.m)
        for part, left, right in self._parts:
            part.contract(weights, left, right, out)
        return out


class DistanceSet(BaseSet):
    r"""Distances :math:`D_k` of several bound kernels :math:`\exp(-D_k)` on training samples.

    Parameters
    ----------
    kernels : sequence of Kernel
        Kernels bound to `samples`, each with an exponent: RBF, Distance, these on columns, and
        products of them.
    samples : Samples
        The training samples.

    Attributes
    ----------
    n, m : int
        Numbers of samples and kernels.
    names : list of str
        One readable, unique name for each kernel.

    Examples
    --------
    >>> import pandas as pd
    >>> X = pd.DataFrame({"size": [1.0, 2.0, 3.0], "age": [7.0, 7.0, 1.0]})
    >>> distances = DistanceSet.build("default", X)
    >>> distances.names
    ['size', 'age']
    >>> distances.tile(X[:1]).weighted([1.0, 0.0])
    array([[0. , 1.5, 6. ]])
    """

    def __init__(self, kernels: Sequence[Kernel], samples: Samples) -> None:
        self.kernels = list(kernels)
        for kernel in self.kernels:
            if not kernel.has_exponent:
                raise no_exponent(kernel.name)
        self.samples = samples
        self.names = unique_names(self.kernels)
        self._reset()

    def _reset(self) -> None:
        self.terms = terms_of(self.kernels)
        self._sorted: list[Part] | None = None
        self._sides: dict[str, list[Any]] = {}

    @classmethod
    def build(cls, kernels: Any, X: Any, normalize: Any = None) -> DistanceSet:
        """Bind whatever an estimator's `kernels` accepts to the samples `X`.

        "default" is one squared distance for each standardised feature (`feature_distances`).
        """
        if "center" in Normalization.parse(normalize).names:
            raise InvalidInputError(
                f"combination='product' takes distances, which are not centred; got "
                f"normalize={normalize!r}. Allowed: 'trace', 'diagonal' or None, which are all the "
                f"same here, because exp(-D) has a diagonal of ones."
            )
        samples = as_samples(X)
        asked = (
            feature_distances() if isinstance(kernels, str) and kernels == "default" else kernels
        )
        return cls(resolve(asked, samples), samples)

    @property
    def m(self) -> int:
        return len(self.kernels)

    def __repr__(self) -> str:
        return f"DistanceSet(n={self.n}, m={self.m})"

    def __getstate__(self) -> dict[str, Any]:
        # What is cached is computed again where it is needed, as that of the samples is.
        state = self.__dict__.copy()
        del state["terms"], state["_sorted"], state["_sides"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def _after_load(self) -> None:
        check_kernels(self.kernels, self.samples, self.names)
        for kernel in self.kernels:
            if not kernel.has_exponent:
                raise no_exponent(kernel.name)

    def take(self, idx: ArrayLike) -> DistanceSet:
        """Return the same distances on some of the samples."""
        return DistanceSet(self.kernels, self.samples.take(idx))

    def select(self, kernels: ArrayLike) -> DistanceSet:
        """Return some of the distances on the same samples, under the names they have here."""
        out = DistanceSet([self.kernels[k] for k in np.asarray(kernels)], self.samples)
        out.names = [self.names[k] for k in np.asarray(kernels)]
        return out

    # Values

    @property
    def parts(self) -> list[Part]:
        """What the distances are added up from."""
        if self._sorted is None:
            self._sorted = sort_terms(self.terms, self.samples, self.m)
        return self._sorted

    def sides(self, dtype: DTypeLike) -> list[Any]:
        """What every part keeps of the training samples."""
        kind = np.dtype(dtype)
        if kind not in (np.float64, np.float32):
            raise InvalidInputError(f"distances are computed in float64 or float32; got {kind}.")
        if kind.char not in self._sides:
            self._sides[kind.char] = [part.side(self.samples, kind) for part in self.parts]
        return self._sides[kind.char]

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept of the training samples."""
        return sum(
            part.nbytes(side)
            for sides in self._sides.values()
            for part, side in zip(self.parts, sides, strict=True)
        )

    def tile(
        self, X_new: Any, idx: ArrayLike | None = None, dtype: DTypeLike = float
    ) -> DistanceTile:
        """Return distances of new samples from training samples `idx` (None: all)."""
        new = self._check(X_new)
        right, sides = self.samples, self.sides(dtype)
        if idx is not None:
            index = self._positions(idx)
            right = right.take(index)
            sides = [p.take(side, index) for p, side in zip(self.parts, sides, strict=True)]
        parts = [(p, p.side(new, dtype), s) for p, s in zip(self.parts, sides, strict=True)]
        return DistanceTile(self.kernels, new, right, parts, dtype)

    def tile_between(self, X: Any, Z: Any, dtype: DTypeLike = float) -> DistanceTile:
        """Return distances of new samples from other new samples."""
        left = self._check(X)
        right = left if Z is X else self._check(Z)
        parts = []
        for part in self.parts:
            side = part.side(left, dtype)
            parts.append((part, side, side if right is left else part.side(right, dtype)))
        return DistanceTile(self.kernels, left, right, parts, dtype)

    def sample_ids_of(self, idx: ArrayLike, kernels: ArrayLike | None = None) -> dict[str, Any]:
        """Return, for each given distance matrix, the ids of those training samples."""
        rows = self.samples.take(self._positions(idx))
        chosen = range(self.m) if kernels is None else np.asarray(kernels)
        return {
            self.names[k]: ids for k in chosen if (ids := self.kernels[k].ids(rows)) is not None
        }

    def _check(self, X: Any) -> Samples:
        new = as_samples(X)
        if new.n_columns != self.samples.n_columns:
            raise InvalidInputError(
                f"X has {new.n_columns} columns, but the kernels were bound to "
                f"{self.samples.n_columns}."
            )
        return new


def sort_terms(terms: Iterable[Term], samples: Samples, m: int) -> list[Part]:
    """Sort terms into squared distances on dense and on sparse columns, and all others.

    Examples
    --------
    >>> from kernelweave.kernels import RBF
    >>> [type(part).__name__ for part in sort_terms(terms_of([RBF(gamma=1)]), Samples([[1.0]]), 1)]
    ['SquaredPart']
    """
    dense, thin, others = [], [], []
    for term in terms:
        if term.leaf.squared_rate is None:
            others.append(term)
        elif through(term.path, samples).is_sparse:
            thin.append(term)
        else:
            dense.append(term)
    parts: list[Part] = [SquaredPart(group, samples, m) for group in (dense, thin) if group]
    return [*parts, EvaluatedPart(others)] if others else parts
