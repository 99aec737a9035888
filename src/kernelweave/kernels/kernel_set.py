"""Bound kernels on training samples, normalised: what a bank is built from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from kernelweave.compiled.blocks import STACK_ENTRIES, rows_of
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.base_set import BaseSet, check_kernels
from kernelweave.kernels.evaluate import NotFiniteError, Plan, evaluate_stack
from kernelweave.kernels.normalize import Normalization, NormalizationStep, Trace
from kernelweave.kernels.resolve import resolve, unique_names
from kernelweave.kernels.samples import Samples, as_samples
from kernelweave.kernels.scaled_factor import ScaledFactor
from kernelweave.kernels.sparse_factor import SparseFactor
from kernelweave.kernels.strings.positional_factor import PositionalFactor
from kernelweave.kernels.tile import StackTile, Tile
from kernelweave.validation import LARGEST, require_kind

__all__ = ["KernelSet"]

Floats = NDArray[np.float64]


class KernelSet(BaseSet):
    """Several bound kernels on one set of training samples, on a common scale.

    Parameters
    ----------
    kernels : sequence of Kernel
        Kernels bound to `samples`.
    samples : Samples
        The training samples.
    normalize : {"trace", "diagonal", "center"}, None or tuple of these, default="trace"
        The normalisation; its constants are learnt from the training samples when first needed.

    Attributes
    ----------
    n, m : int
        Numbers of samples and kernels.
    names : list of str
        One readable, unique name for each kernel.
    steps : list of NormalizationStep
        What the normalisation does, in order.

    Examples
    --------
    >>> from kernelweave.kernels import Linear, RBF
    >>> kernels = KernelSet.build([Linear(), RBF(width=1)], [[1.0], [3.0]])
    >>> kernels.names
    ['linear', 'rbf(width=1)']
    >>> kernels.rows([0]).round(3)
    array([[[0.2  , 0.6  ]],
    <BLANKLINE>
           [[1.   , 0.135]]])
    >>> kernels.cross([[2.0]], idx=[1], kernels=[0])
    array([[[1.2]]])
    """

    # Kernels that no step scales and whose size is known to be usable; found again, not kept.
    _in_range: frozenset[int] = frozenset()

    def __init__(
        self, kernels: Sequence[Kernel], samples: Samples, normalize: Any = "trace"
    ) -> None:
        self.kernels = list(kernels)
        self.samples = samples
        self.normalization = Normalization.parse(normalize)
        self.names = unique_names(self.kernels)
        self.steps = self.normalization.steps(len(self.kernels))
        self._all_learnt = False
        self._plan: tuple[list[int], Plan] | None = None

    @classmethod
    def build(cls, kernels: Any, X: Any, normalize: Any = "trace") -> KernelSet:
        """Bind whatever an estimator's `kernels` accepts to the samples `X`."""
        samples = as_samples(X)
        return cls(resolve(kernels, samples), samples, normalize)

    @property
    def m(self) -> int:
        return len(self.kernels)

    def __getstate__(self) -> dict[str, Any]:
        # A plan is quickly made anew, and holds the kernels once more.
        state = {**self.__dict__, "_plan": None}
        state.pop("_in_range", None)
        return state

    def _after_load(self) -> None:
        check_kernels(self.kernels, self.samples, self.names)
        require_kind("the normalization", self.normalization, Normalization)
        asked = [type(step) for step in self.normalization.steps(0)]
        require_kind("the steps of the normalization", self.steps, list)
        if [type(step) for step in self.steps] != asked:
            raise InvalidInputError(f"the steps of {self.normalization!r} are others.")
        for step in self.steps:
            step.check(self.m, self.n)
        self._all_learnt, self._plan = False, None

    def __repr__(self) -> str:
        return f"KernelSet(n={self.n}, m={self.m}, {self.normalization!r})"

    # Values

    def rows(
        self,
        idx: ArrayLike,
        kernels: ArrayLike | None = None,
        columns: ArrayLike | None = None,
        dtype: DTypeLike = np.float64,
    ) -> NDArray[Any]:
        """Return normalised values between training samples, shape (m', len(idx), n').

        Parameters
        ----------
        idx : array of int
            The samples of the rows.
        kernels : array of int, optional
            Which kernels; all by default.
        columns : array of int, optional
            The samples of the columns; all by default.
        dtype : {float64, float32}
            Type of the result.
        """
        chosen = self._chosen(kernels)
        left = self._positions(idx)
        right = None if columns is None else self._positions(columns)
        self.learn(chosen)
        return _in_type(
            lambda kind: self._normalised_rows(chosen, left, right, kind, len(self.steps)), dtype
        )

    def diag(self, kernels: ArrayLike | None = None) -> Floats:
        """Return the normalised diagonals, shape (m', n)."""
        chosen = self._chosen(kernels)
        self.learn(chosen)
        out = np.empty((len(chosen), self.n))
        for i, k in enumerate(chosen):
            out[i] = self._stage_diag(k, len(self.steps))
        return out

    def cross(
        self,
        X_new: Any,
        idx: ArrayLike | None = None,
        kernels: ArrayLike | None = None,
        dtype: DTypeLike = np.float64,
    ) -> NDArray[Any]:
        """Return normalised values of new samples against training samples.

        Parameters
        ----------
        X_new : array, CSR matrix, DataFrame or Samples
            New samples.
        idx : array of int, optional
            The training samples of the columns; all by default.
        kernels : array of int, optional
            Which kernels; all by default.
        dtype : {float64, float32}
            Type of the result.

        Returns
        -------
        array of shape (m', n_new, len(idx) or n)
        """
        new = as_samples(X_new)
        self._check_columns(new)
        chosen = self._chosen(kernels)
        self.learn(chosen)
        right = None if idx is None else self._positions(idx)
        if not any(step.needs_means for step in self.steps):
            return _in_type(lambda kind: self._cross_block(chosen, new, right, kind), dtype)
        out = np.empty(
            (len(chosen), new.n, self.n if right is None else len(right)), dtype=np.dtype(dtype)
        )
        rows = rows_of(self.n * len(chosen), STACK_ENTRIES)
        for start in range(0, new.n, rows):
            part = new.take(np.arange(start, min(start + rows, new.n)))
            values = _in_type(lambda kind: self._cross_block(chosen, part, None, kind), dtype)  # noqa: B023
            out[:, start : start + rows] = values if right is None else values[:, :, right]
        return out

    def between(self, X: Any, Z: Any, kernels: ArrayLike | None = None) -> Floats:
        """Return normalised values of new samples against other new samples, shape (m', q, s)."""
        left, right = as_samples(X), as_samples(Z)
        chosen = self._chosen(kernels)
        self.learn(chosen)
        values = evaluate_stack([self.kernels[k] for k in chosen], left, right)
        if self.steps:
            for i, k in enumerate(chosen):
                left_sides = self._new_sides(k, left)
                right_sides = left_sides if right is left else self._new_sides(k, right)
                for step, a, b in zip(self.steps, left_sides, right_sides, strict=True):
                    step.apply(k, values[i], a, b)
        return values

    def tile(self, X_new: Any, idx: ArrayLike | None = None, dtype: DTypeLike = np.float64) -> Tile:
        """Return the values of `cross` as a tile, evaluated a few kernels at a time."""
        new = as_samples(X_new)
        shape = (new.n, self.n if idx is None else len(np.asarray(idx)))
        add_up = (
            (lambda d: self._sum(d, new, idx, dtype)) if self.normalization.pure_scaling else None
        )
        return StackTile(
            shape, self.m, lambda part: self.cross(new, idx, part, dtype), dtype, add_up
        )

    def _sum(
        self, d: Floats, new: Samples, idx: ArrayLike | None, dtype: DTypeLike
    ) -> NDArray[Any]:
        """sum_k d_k K_k of new samples against training samples, if normalising only scales."""
        self._check_columns(new)
        chosen = np.flatnonzero(d)
        self.learn(chosen.tolist())
        weights = d[chosen]
        for step in self.steps:
            if isinstance(step, Trace):
                weights = weights * step.scale[chosen]
        train = self.samples if idx is None else self.samples.take(self._positions(idx))
        return self._planned(chosen.tolist()).weighted(weights, new, train, dtype)

    def tile_between(self, X: Any, Z: Any) -> Tile:
        """Return the values of `between` as a tile, evaluated a few kernels at a time."""
        left, right = as_samples(X), as_samples(Z)
        return StackTile((left.n, right.n), self.m, lambda part: self.between(left, right, part))

    def _new_sides(self, k: int, new: Samples) -> list[Floats | None]:
        """What every step needs to know of each new sample."""
        values = None
        if any(step.needs_means for step in self.steps):
            values = evaluate_stack([self.kernels[k]], new, self.samples)[0]
        diag = self._new_diag(k, new)
        sides = []
        for step in self.steps:
            means = values.mean(axis=1) if values is not None and step.needs_means else None
            side = step.new_side(k, self.names[k], diag, means)
            if values is not None:
                step.apply(k, values, side, step.train_side(k))
            diag = step.apply_diag(k, diag, side)
            sides.append(side)
        return sides

    def sample_ids_of(self, idx: ArrayLike, kernels: ArrayLike | None = None) -> dict[str, Any]:
        """Return, for each precomputed kernel, the ids of those training samples."""
        rows = self.samples.take(idx)
        return {
            self.names[k]: ids
            for k in self._chosen(kernels)
            if (ids := self.kernels[k].ids(rows)) is not None
        }

    # Pieces for banks

    @property
    def scale(self) -> Floats | None:
        """The factor of every kernel if the normalisation is a pure scaling, else None."""
        if not self.normalization.pure_scaling:
            return None
        self.learn(range(self.m))
        out = np.ones(self.m)
        for step in self.steps:
            if isinstance(step, Trace):
                out *= step.scale
        return out

    def apply_to_factor(self, k: int, F: Floats) -> Floats:
        """Return the factor of the normalised kernel k, given an (n, r) factor of the raw one."""
        self.learn([k])
        for step in self.steps:
            F = step.apply_to_factor(k, F)
        return F

    def sparse_factor(self, k: int) -> SparseFactor | None:
        """Return the normalised kernel k by its sparse features; None if it has none."""
        features = self.kernels[k].features(self.samples)
        if features is None:
            return None
        self.learn([k])
        return self._normalised(k, SparseFactor.of(features), len(self.steps))

    def positional_factor(self, k: int) -> PositionalFactor | None:
        """Return the normalised kernel k by its aligned sequences; None if it has none."""
        factor = self.kernels[k].positional(self.samples)
        if factor is None:
            return None
        self.learn([k])
        return self._normalised(k, factor, len(self.steps))

    def _normalised(self, k: int, factor: Any, stage: int) -> Any:
        """Return a `ScaledFactor` after the first steps."""
        for step in self.steps[:stage]:
            factor = step.apply_to_product(k, factor)
        return factor

    def _raw_factor(self, k: int) -> ScaledFactor | None:
        """The raw kernel k if products with it need no pass over all pairs."""
        positional: ScaledFactor | None = self.kernels[k].positional(self.samples)
        if positional is not None:
            return positional
        features = self.kernels[k].features(self.samples)
        return None if features is None else SparseFactor.of(features)

    def apply_to_residual(self, k: int, e: Floats) -> Floats:
        """Bound the residual diagonal after normalisation, given that of the raw kernel k.

        The raw residual K - F F' must be positive semidefinite with diagonal `e`.
        """
        self.learn([k])
        for step in self.steps:
            e = step.apply_to_residual(k, e)
        return e

    # Statistics

    def _check_columns(self, new: Samples) -> None:
        if new.n_columns != self.samples.n_columns:
            raise InvalidInputError(
                f"X has {new.n_columns} columns, but the kernels were bound to "
                f"{self.samples.n_columns}."
            )

    def _chosen(self, kernels: ArrayLike | None) -> list[int]:
        chosen: list[int] = self._asked(kernels).tolist()
        return chosen

    def _planned(self, kernels: list[int]) -> Plan:
        """The plan for these kernels; solvers ask for the same ones again and again."""
        plan = self._plan
        if plan is None or plan[0] != kernels:
            plan = self._plan = (kernels, Plan([self.kernels[k] for k in kernels]))
        return plan[1]

    def learn(self, kernels: Sequence[int]) -> None:
        """Learn the constants of the normalisation for these kernels, where they are not known."""
        if self._all_learnt:
            return
        for stage, step in enumerate(self.steps):
            missing = [k for k in kernels if not step.has(k)]
            if not missing:
                continue
            means = self._stage_means(missing, stage) if step.needs_means else None
            for i, k in enumerate(missing):
                diag = self._stage_diag(k, stage)
                step.learn(k, self.names[k], diag, None if means is None else means[i])
        if not self.normalization.scales:
            for k in set(kernels) - self._in_range:
                largest = float(np.abs(self._stage_diag(k, len(self.steps))).max(initial=0.0))
                if not largest <= LARGEST:
                    raise InvalidInputError(
                        f"kernel '{self.names[k]}' has a diagonal of up to {largest:g}; kernel "
                        f"values must be at most {LARGEST:g} in size, or sums and squares of them "
                        f"would overflow. Scale its columns, or use normalize='trace'."
                    )
            self._in_range |= set(kernels)
        self._all_learnt = len(set(kernels)) == self.m

    def raw_diag(self, k: int, samples: Samples) -> Floats:
        """Return k(x, x) of samples before normalisation, all finite."""
        with np.errstate(over="ignore", invalid="ignore"):
            diag = np.asarray(self.kernels[k].diagonal(samples), dtype=np.float64)
        if not np.isfinite(diag).all():
            raise NotFiniteError(self.names[k])
        return diag

    def _new_diag(self, k: int, new: Samples) -> Floats:
        """Return k(x, x) of new samples for the steps, or zeros where no step asks.

        Samples that a given matrix got after the fit have none.
        """
        if any(step.needs_diagonal for step in self.steps):
            return self.raw_diag(k, new)
        return np.zeros(new.n)

    def _stage_diag(self, k: int, stage: int) -> Floats:
        diag = self.raw_diag(k, self.samples)
        for step in self.steps[:stage]:
            diag = step.apply_diag(k, diag, step.train_side(k))
        return diag

    def _stage_means(self, kernels: list[int], stage: int) -> Floats:
        """Row means of the kernels as the first steps leave them, in bounded memory."""
        means = np.empty((len(kernels), self.n))
        places = []
        for i, k in enumerate(kernels):
            factor = self._raw_factor(k)
            if factor is None:
                places.append(i)
            else:
                product = self._normalised(k, factor, stage).product
                means[i] = product(np.full(self.n, 1.0 / self.n))
        kernels = [kernels[i] for i in places]
        many = rows_of(64 * self.n, STACK_ENTRIES)
        for first in range(0, len(kernels), many):
            part = kernels[first : first + many]
            rows = rows_of(self.n * len(part), STACK_ENTRIES)
            for start in range(0, self.n, rows):
                idx = np.arange(start, min(start + rows, self.n))
                values = self._normalised_rows(part, idx, None, np.float64, stage)
                means[places[first : first + many], start : start + rows] = values.mean(axis=2)
        return means

    def _normalised_rows(
        self,
        kernels: list[int],
        left: NDArray[np.intp],
        right: NDArray[np.intp] | None,
        dtype: DTypeLike,
        stage: int,
    ) -> NDArray[Any]:
        train = self.samples if right is None else self.samples.take(right)
        values = self._planned(kernels).evaluate(self.samples.take(left), train, dtype)
        for i, k in enumerate(kernels):
            for step in self.steps[:stage]:
                side = step.train_side(k)
                step.apply(k, values[i], _at(side, left), _at(side, right))
        return values

    def _cross_block(
        self,
        kernels: list[int],
        new: Samples,
        right: NDArray[np.intp] | None,
        dtype: DTypeLike,
    ) -> NDArray[Any]:
        train = self.samples if right is None else self.samples.take(right)
        values = self._planned(kernels).evaluate(new, train, dtype)
        if not self.steps:
            return values
        for i, k in enumerate(kernels):
            self._normalise_new(k, values[i], new, right)
        return values

    def _normalise_new(
        self, k: int, values: NDArray[Any], new: Samples, right: NDArray[np.intp] | None
    ) -> None:
        steps: list[NormalizationStep] = self.steps
        diag = self._new_diag(k, new)
        for step in steps:
            means = values.mean(axis=1, dtype=np.float64) if step.needs_means else None
            side = step.new_side(k, self.names[k], diag, means)
            step.apply(k, values, side, _at(step.train_side(k), right))
            diag = step.apply_diag(k, diag, side)


def _in_type(compute: Callable[[DTypeLike], NDArray[Any]], dtype: DTypeLike) -> NDArray[Any]:
    """Return values in a type, computed in float64 where float32 overflows on the way."""
    if np.dtype(dtype) == np.float64:
        return compute(np.float64)
    try:
        return compute(dtype)
    except NotFiniteError:
        return compute(np.float64).astype(dtype)


def _at(side: Floats | None, index: NDArray[np.intp] | None) -> Floats | None:
    return side if side is None or index is None else side[index]
