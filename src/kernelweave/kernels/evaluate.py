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

__all__ = ["Plan", "evaluate_stack"]

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
    return Plan(kernels).evaluate(left, right, dtype)


class Plan:
    """Bound kernels sorted into groups on the same column block, to be evaluated many times.

    Parameters
    ----------
    kernels : sequence of Kernel
        Bound kernels.

    Examples
    --------
    >>> from kernelweave.kernels import Linear, Polynomial, Samples
    >>> X = Samples([[1.0], [2.0]])
    >>> Plan([Linear(), Polynomial(1)]).evaluate(X.take([1]), X)
    array([[[2., 4.]],
    <BLANKLINE>
           [[3., 5.]]])
    """

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self.m = len(kernels)
        groups: dict[tuple[Any, ...], list[tuple[int, Kernel]]] = {}
        for k, kernel in enumerate(kernels):
            groups.setdefault(kernel.path, []).append((k, kernel.core))
        for members in groups.values():
            # The order that lets them share most.
            members.sort(key=lambda member: member[1].order)
        self._groups = list(groups.items())

    def evaluate(
        self, left: Samples, right: Samples, dtype: DTypeLike = np.float64
    ) -> NDArray[Any]:
        """Return the values for two sets of samples, shape (m, q, n), as `evaluate_stack` does."""
        kind = np.dtype(dtype)
        if kind not in (np.float64, np.float32):
            raise InvalidInputError(f"kernels are evaluated in float64 or float32; got {kind}.")
        out = np.empty((self.m, left.n, right.n), dtype=kind)
        rows = max(_CHUNK_ROWS, _CHUNK_ENTRIES // max(1, right.n))
        starts = range(0, left.n, rows)

        def run(first: int, last: int) -> None:
            for task in range(first, last):
                path, members = self._groups[task // len(starts)]
                start = starts[task % len(starts)]
                stop = min(start + rows, left.n)
                part = left if len(starts) == 1 else left.take(np.arange(start, stop))
                _fill(out[:, start:stop], path, members, Pair(part, right, kind))

        tasks = len(self._groups) * len(starts)
        if out.size * right.n_columns < _BLAS_THREADS:
            run(0, tasks)
        elif out.size < _THREAD_ENTRIES:
            with one_blas_thread():
                run(0, tasks)
        else:
            self._warm(left, right)
            map_blocks(run, tasks, 1)
        return out

    def _warm(self, left: Samples, right: Samples) -> None:
        """Run the transformers before threads start, so that none runs twice."""
        for path, _ in self._groups:
            for side in (left.base, right.base):
                for block in path:
                    side = side.derive(block)


def _fill(
    out: NDArray[Any], path: tuple[Any, ...], members: list[tuple[int, Kernel]], pair: Pair
) -> None:
    for block in path:
        pair = pair.on(block)
    for k, kernel in members:
        kernel.evaluate_into(pair, out[k])
        if len(pair) > _KEPT_BLOCKS:
            pair.clear()
