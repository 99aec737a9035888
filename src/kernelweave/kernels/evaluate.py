"""Many kernels on one pair of sample sets, block by block, sharing what they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kernelweave.compiled.threads import map_blocks, one_blas_thread
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.pair import Pair
from kernelweave.kernels.samples import Samples

__all__ = ["evaluate_stack"]

# Rows are cut so that one intermediate matrix has about this many entries and stays in the cache.
_CHUNK_ENTRIES = 2**16
_CHUNK_ROWS = 32
# Below this many entries starting threads costs more than it saves.
_THREAD_ENTRIES = 2**18
# From this many multiplications on BLAS starts threads of its own, which cost more than they save
# on blocks this small (limiting them costs some 50 microseconds, hence not always).
_BLAS_THREADS = 2**18
# Products and sums read many column blocks through one pair; it is emptied beyond this number.
_KEPT_BLOCKS = 64


def evaluate_stack(
    kernels: Sequence[Kernel],
    left: Samples,
    right: Samples,
    dtype: DTypeLike = np.float64,
) -> NDArray[Any]:
    """Return the values of bound kernels for two sets of samples.

    Kernels on the same column block share distances, inner products, powers and exponentials.
    The blocks of work are the same for any number of threads, and so are the results.

    Parameters
    ----------
    kernels : sequence of Kernel
        Bound kernels.
    left, right : Samples
        The rows and the columns of the result.
    dtype : {float64, float32}
        Type of the result and of everything on the way to it.

    Returns
    -------
    array of shape (m, q, n)

    Examples
    --------
    >>> from kernelweave.kernels import Linear, Polynomial, Samples
    >>> X = Samples([[1.0], [2.0]])
    >>> evaluate_stack([Linear(), Polynomial(1)], X, X)
    array([[[1., 2.],
            [2., 4.]],
    <BLANKLINE>
           [[2., 3.],
            [3., 5.]]])
    """
    kind = np.dtype(dtype)
    if kind not in (np.float64, np.float32):
        raise InvalidInputError(f"kernels are evaluated in float64 or float32; got {kind}.")
    out = np.empty((len(kernels), left.n, right.n), dtype=kind)
    groups = _group(kernels)
    rows = max(_CHUNK_ROWS, _CHUNK_ENTRIES // max(1, right.n))
    starts = range(0, left.n, rows)

    def run(first: int, last: int) -> None:
        for task in range(first, last):
            path, members = groups[task // len(starts)]
            start = starts[task % len(starts)]
            part = left if len(starts) == 1 else left.take(_span(left.n, start, rows))
            pair = Pair(part, right, kind)
            for block in path:
                pair = pair.on(block)
            for k in members:
                kernels[k].core.evaluate_into(pair, out[k, start : start + rows])
                if len(pair) > _KEPT_BLOCKS:
                    pair.clear()

    tasks = len(groups) * len(starts)
    if out.size * right.n_columns < _BLAS_THREADS:
        run(0, tasks)
    elif out.size < _THREAD_ENTRIES:
        with one_blas_thread():
            run(0, tasks)
    else:
        _warm(groups, left, right)
        map_blocks(run, tasks, 1)
    return out


def _span(n: int, start: int, rows: int) -> NDArray[np.intp]:
    return np.arange(start, min(start + rows, n))


def _group(kernels: Sequence[Kernel]) -> list[tuple[tuple[Any, ...], list[int]]]:
    """Collect kernels on the same block, each group in the order that lets them share most."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for k, kernel in enumerate(kernels):
        groups.setdefault(kernel.path, []).append(k)
    for members in groups.values():
        members.sort(key=lambda k: kernels[k].core.order)
    return list(groups.items())


def _warm(groups: list[tuple[tuple[Any, ...], list[int]]], left: Samples, right: Samples) -> None:
    """Run the transformers before threads start, so that none runs twice."""
    for path, _ in groups:
        for side in (left.base, right.base):
            for block in path:
                side = side.derive(block)
