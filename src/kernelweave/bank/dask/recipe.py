"""What a worker has to know to compute kernels on samples that are sent to it, and those samples.

A recipe holds the kernels and the constants of their normalisation, and no sample. Samples travel
packed: the rows of X as they came, and what the normalisation knows of each of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from kernelweave.bank.protocol import Array
from kernelweave.bank.running.state import Work
from kernelweave.compiled.blocks import (
    CACHED_ENTRIES,
    GAUSSIAN_WORK,
    STACK_ENTRIES,
    gaussian_kernels,
    rows_of,
)
from kernelweave.compiled.gaussians import rectangle_products
from kernelweave.compiled.mwu import add_gaussians
from kernelweave.compiled.threads import map_blocks
from kernelweave.kernels.batch_set import BatchSet
from kernelweave.kernels.batch_tile import BatchTile, compiled_batch
from kernelweave.kernels.composite_set import CompositeSet, whereabouts
from kernelweave.kernels.evaluate import Plan
from kernelweave.kernels.kernel_set import KernelSet
from kernelweave.kernels.samples import Samples

__all__ = ["Recipe", "Rows", "pack", "recipe_of"]

# Left samples of one tile of a pass.
_LEFT = 64


class Rows(ABC):
    """Samples on a worker, ready for kernels."""

    n: int

    @abstractmethod
    def take(self, idx: Array) -> Rows:
        """Return some of them."""


class PlainRows(Rows):
    """Samples of a `KernelSet`, and what each step of the normalisation knows of them."""

    def __init__(self, samples: Samples, sides: list[Array | None]) -> None:
        self.samples, self.sides, self.n = samples, sides, samples.n

    def take(self, idx: Array) -> PlainRows:
        cut = [side if side is None else side[:, idx] for side in self.sides]
        return PlainRows(self.samples.take(idx), cut)


class TableRows(Rows):
    """Samples of a `BatchSet`, as columns of its table."""

    def __init__(self, table: Array) -> None:
        self.table, self.n = np.ascontiguousarray(table), table.shape[1]

    def take(self, idx: Array) -> TableRows:
        return TableRows(self.table[:, idx])


class PartRows(Rows):
    """The same samples for each part of a `CompositeSet`."""

    def __init__(self, parts: list[Rows]) -> None:
        self.parts, self.n = parts, parts[0].n

    def take(self, idx: Array) -> PartRows:
        return PartRows([part.take(idx) for part in self.parts])


def pack(kernels: Any, idx: Array) -> Any:
    """Return training samples `idx` of a set of kernels as they travel."""
    if isinstance(kernels, CompositeSet):
        return [pack(part, idx) for part in kernels.parts]
    if isinstance(kernels, BatchSet):
        return kernels.table[:, idx]
    kernels.learn(range(kernels.m))
    sides = []
    for step in kernels.steps:
        known = step.train_side(0) is not None
        each = (step.train_side(k)[idx] for k in range(kernels.m)) if known else None
        sides.append(None if each is None else np.stack(list(each)))
    return kernels.samples.take(idx).native, sides


class Recipe(ABC):
    """m kernels that can be computed between any two sets of packed samples."""

    m: int

    @abstractmethod
    def open(self, packed: Any) -> Rows:
        """Return packed samples ready for use."""

    @abstractmethod
    def values(self, left: Any, right: Any, kernels: Array) -> Array:
        """K_k(left, right), shape (len(kernels), left.n, right.n)."""

    @abstractmethod
    def diag(self, rows: Any, kernels: Array) -> Array:
        """K_k(x, x), shape (len(kernels), rows.n)."""

    def products(self, left: Any, right: Any, V: Array, kernels: Array) -> Array:
        """sum over the left samples of V times K_k: (T, left.n) to (len(kernels), T, right.n)."""
        out = np.zeros((len(kernels), len(V), right.n))
        width = max(16, rows_of(min(_LEFT, left.n) * len(kernels), CACHED_ENTRIES))
        parts = [np.arange(f, min(f + _LEFT, left.n)) for f in range(0, left.n, _LEFT)]
        lefts = [(left.take(part), V[:, part]) for part in parts]

        def work(start: int, stop: int) -> None:
            own = right.take(np.arange(start, stop))
            for some, weights in lefts:
                out[:, :, start:stop] += weights @ self.values(some, own, kernels)

        map_blocks(work, right.n, width, GAUSSIAN_WORK * float(left.n) * out.size)
        return out

    def weighted(self, left: Any, right: Any, d: Array, kernels: Array) -> Array:
        """sum_k d_k K_k(left, right) over those kernels, shape (left.n, right.n)."""
        out = np.zeros((left.n, right.n))
        active = np.flatnonzero(d)
        size = rows_of(out.size, STACK_ENTRIES)
        for first in range(0, len(active), size):
            part = active[first : first + size]
            out += np.tensordot(d[part], self.values(left, right, kernels[part]), axes=1)
        return out


class PlainRecipe(Recipe):
    """The kernels of a `KernelSet`."""

    def __init__(self, kernels: KernelSet) -> None:
        kernels.learn(range(kernels.m))
        self.m = kernels.m
        self._kernels = kernels.kernels
        self._steps = [step.without_samples() for step in kernels.steps]
        self._plan: tuple[bytes, Plan] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plan": None}

    def open(self, packed: Any) -> PlainRows:
        native, sides = packed
        return PlainRows(Samples(native), sides)

    def _planned(self, kernels: Array) -> Plan:
        """The plan for these kernels; the same ones are asked for again and again."""
        key, known = kernels.tobytes(), self._plan
        if known is None or known[0] != key:
            known = self._plan = (key, Plan([self._kernels[k] for k in kernels]))
        return known[1]

    def values(self, left: PlainRows, right: PlainRows, kernels: Array) -> Array:
        values = self._planned(kernels).evaluate(left.samples, right.samples)
        for place, k in enumerate(kernels):
            for step, mine, theirs in zip(self._steps, left.sides, right.sides, strict=True):
                a, b = (side if side is None else side[k] for side in (mine, theirs))
                step.apply(k, values[place], a, b)
        return values

    def diag(self, rows: PlainRows, kernels: Array) -> Array:
        out = np.empty((len(kernels), rows.n))
        for place, k in enumerate(kernels):
            diag = self._kernels[k].diagonal(rows.samples)
            for step, side in zip(self._steps, rows.sides, strict=True):
                diag = step.apply_diag(k, diag, None if side is None else side[k])
            out[place] = diag
        return out


class BatchRecipe(Recipe):
    """The kernels of a `BatchSet`."""

    def __init__(self, kernels: BatchSet) -> None:
        self.m = kernels.m
        self._columns, self._gamma = kernels.columns, kernels.gamma
        # The same for all samples, so that a kernel has one value wherever it is computed.
        self._batch = compiled_batch(kernels.columns, kernels.gamma, np.float64, kernels.table)

    def open(self, packed: Any) -> TableRows:
        return TableRows(packed)

    def values(self, left: TableRows, right: TableRows, kernels: Array) -> Array:
        return BatchTile(self._columns, self._gamma, left.table, right.table).stack(kernels)

    def weighted(self, left: TableRows, right: TableRows, d: Array, kernels: Array) -> Array:
        columns, gamma = self._columns[kernels], self._gamma[kernels]
        return BatchTile(columns, gamma, left.table, right.table).weighted(d)

    def products(self, left: TableRows, right: TableRows, V: Array, kernels: Array) -> Array:
        """See :class:`Recipe`; compiled."""
        out = np.zeros((len(kernels), len(V), right.n))
        V = np.ascontiguousarray(V)
        if not left.n or not right.n:
            return out

        def work(start: int, stop: int) -> None:
            rectangle_products(right.table, left.table, self._batch, kernels, V, out, start, stop)

        map_blocks(work, len(kernels), *gaussian_kernels(len(kernels), float(left.n) * right.n))
        return out

    def diag(self, rows: TableRows, kernels: Array) -> Array:
        """See :class:`Recipe`: ones, in a view that takes no memory."""
        return np.broadcast_to(1.0, (len(kernels), rows.n))

    def adder(
        self,
        pair: TableRows,
        own: TableRows,
        kernels: Array,
        a: float,
        b: float,
        d: Array,
        state: Array,
        followed: Array,
    ) -> Work:
        """Return what adds the rows of a pair to a state, computed on the way."""
        columns, roots, like = self._batch
        batch = (columns[kernels], roots[kernels], like)

        def work(out: Array, part: tuple[int, int], _: tuple[int, int]) -> None:
            add_gaussians(pair.table, own.table, batch, a, b, state, followed, d, out, part)

        return work


class PartsRecipe(Recipe):
    """The kernels of a `CompositeSet`."""

    def __init__(self, kernels: CompositeSet) -> None:
        self.m = kernels.m
        self._recipes = [recipe_of(part) for part in kernels.parts]
        self._part, self._place = whereabouts(kernels.members)

    def open(self, packed: Any) -> PartRows:
        pairs = zip(self._recipes, packed, strict=True)
        return PartRows([recipe.open(part) for recipe, part in pairs])

    def _gathered(self, shape: tuple[int, ...], kernels: Array, ask: Any) -> Array:
        out = np.empty((len(kernels), *shape))
        for p, recipe in enumerate(self._recipes):
            places = np.flatnonzero(self._part[kernels] == p)
            if len(places):
                out[places] = ask(recipe, p, self._place[kernels[places]])
        return out

    def values(self, left: PartRows, right: PartRows, kernels: Array) -> Array:
        return self._gathered(
            (left.n, right.n),
            kernels,
            lambda recipe, p, own: recipe.values(left.parts[p], right.parts[p], own),
        )

    def products(self, left: PartRows, right: PartRows, V: Array, kernels: Array) -> Array:
        return self._gathered(
            (len(V), right.n),
            kernels,
            lambda recipe, p, own: recipe.products(left.parts[p], right.parts[p], V, own),
        )

    def diag(self, rows: PartRows, kernels: Array) -> Array:
        return self._gathered(
            (rows.n,), kernels, lambda recipe, p, own: recipe.diag(rows.parts[p], own)
        )


def recipe_of(kernels: Any) -> Recipe:
    """Return the recipe of a set of kernels."""
    if isinstance(kernels, CompositeSet):
        return PartsRecipe(kernels)
    return BatchRecipe(kernels) if isinstance(kernels, BatchSet) else PlainRecipe(kernels)
