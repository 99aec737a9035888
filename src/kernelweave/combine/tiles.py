"""Walks over all tiles of a bank, on threads, with results that do not depend on their number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import DTypeLike

from kernelweave.bank.protocol import Array, MatrixBank
from kernelweave.compiled.blocks import CACHED_ENTRIES, rows_of
from kernelweave.compiled.threads import map_blocks
from kernelweave.kernels.tile import Tile

__all__ = ["add_tiles", "fill_symmetric", "row_step"]

_FEWEST_ROWS = 16
_SIDE = 512


def row_step(n_columns: int) -> int:
    """Rows of a tile with that many columns.

    Examples
    --------
    >>> row_step(1000)
    262
    """
    return max(_FEWEST_ROWS, rows_of(n_columns, CACHED_ENTRIES))


def add_tiles(
    bank: MatrixBank,
    rows: Array,
    columns: Array,
    part: Callable[[Tile, Array, Array], Array],
    zero: Array,
    symmetric: bool = False,
) -> Array:
    """Sum ``part(tile, i, j)`` over a grid of tiles, always in the same order.

    A tile has the samples ``rows[i]`` and ``columns[j]``, and the bank's own precision. With
    `symmetric` (rows and columns are the same, and so is what is summed) tiles above the diagonal
    stand for those below it as well.
    """
    pieces: list[Array] = [zero] * (-(-len(rows) // _SIDE))

    def work(first: int, last: int) -> None:
        i = np.arange(first, last)
        total = zero
        for start in range(first if symmetric else 0, len(columns), _SIDE):
            j = np.arange(start, min(start + _SIDE, len(columns)))
            tile = bank.tile(rows[i], columns[j], bank.tile_dtype)
            twice = 2.0 if symmetric and start > first else 1.0
            total = total + twice * part(tile, i, j)
        pieces[first // _SIDE] = total

    map_blocks(work, len(rows), _SIDE)
    return np.sum([zero, *pieces], axis=0)


def fill_symmetric(
    bank: MatrixBank, values: Callable[[Tile], Array], out: Array, dtype: DTypeLike | None = None
) -> None:
    """Write the symmetric matrix whose tiles `values` gives into `out`, computing half of it."""
    n = bank.n
    step = row_step(n)
    kind = out.dtype if dtype is None else dtype

    def work(first: int, last: int) -> None:
        tile = bank.tile(np.arange(first, last), np.arange(first, n), kind)
        block = values(tile)
        out[first:last, first:] = block
        out[last:, first:last] = block[:, last - first :].T

    map_blocks(work, n, step)
