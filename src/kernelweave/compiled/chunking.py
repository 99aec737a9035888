"""Passes over the matrix g of all kernels' outputs, which chunking keeps up to date."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["add_outputs", "gather_columns", "mix_outputs"]


@njit(cache=True, nogil=True, fastmath=True)
def mix_outputs(outputs: NDArray, kernels: NDArray, weights: NDArray) -> NDArray:
    """Sum of some rows of g with weights, in the order of `kernels`."""
    n = outputs.shape[1]
    mixed = np.zeros(n)
    for position in range(kernels.shape[0]):
        row = outputs[kernels[position]]
        weight = weights[position]
        for i in range(n):
            mixed[i] += weight * row[i]
    return mixed


@njit(cache=True, nogil=True, fastmath=True)
def add_outputs(
    change: NDArray, kernels: NDArray, weights: NDArray, outputs: NDArray, mixed: NDArray
) -> None:
    """Add the change of some kernels' outputs to their rows of g, and to the mix of them."""
    n = outputs.shape[1]
    for position in range(kernels.shape[0]):
        row, extra = outputs[kernels[position]], change[position]
        weight = weights[position]
        for i in range(n):
            row[i] += extra[i]
            mixed[i] += weight * extra[i]


@njit(cache=True, nogil=True)
def gather_columns(rows: NDArray, places: NDArray, columns: NDArray, out: NDArray) -> None:
    """out[r, c] = rows[places[r], columns[c]]."""
    for r in range(places.shape[0]):
        row = rows[places[r]]
        target = out[r]
        for c in range(columns.shape[0]):
            target[c] = row[columns[c]]
