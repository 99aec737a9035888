"""Walks over all parts of an operator, on threads; results do not depend on their number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernelweave.compiled.threads import map_blocks
from kernelweave.operators.base import Array, KernelOperator, row_step

__all__ = ["add_tiles", "fill_symmetric"]

# Rows and columns of a part: a few of them fit in the cache of a core.
_SIDE = 512


def add_tiles(
    operator: KernelOperator,
    rows: Array,
    columns: Array,
    part: Callable[[KernelOperator, Array, Array], Array],
    zero: Array,
    symmetric: bool = False,
) -> Array:
    """Sum ``part(tile, i, j)`` over a grid of tiles, always in the same order.

    A tile has the samples ``rows[i]`` and ``columns[j]``, and the operator's own precision. With
    `symmetric` (rows and columns are the same, and so is what is summed) tiles above the diagonal
    stand for those below it as well.
    """
    pieces: list[Array] = [zero] * (-(-len(rows) // _SIDE))

    def work(first: int, last: int) -> None:
        i = np.arange(first, last)
        total = zero
        for start in range(first if symmetric else 0, len(columns), _SIDE):
            j = np.arange(start, min(start + _SIDE, len(columns)))
            tile = operator.part(rows[i], columns[j], operator.tile_dtype)
            twice = 2.0 if symmetric and start > first else 1.0
            total = total + twice * part(tile, i, j)
        pieces[first // _SIDE] = total

    map_blocks(work, len(rows), _SIDE)
    return np.sum([zero, *pieces], axis=0)


def fill_symmetric(
    operator: KernelOperator,
    values: Callable[[KernelOperator], Array],
    out: Array,
) -> None:
    """Write the symmetric matrix whose tiles `values` gives into `out`, computing half of it."""
    n = operator.n
    step = row_step(n)

    def work(first: int, last: int) -> None:
        tile = operator.part(np.arange(first, last), np.arange(first, n), out.dtype)
        block = values(tile)
        out[first:last, first:] = block
        out[last:, first:last] = block[:, last - first :].T

    map_blocks(work, n, step)
