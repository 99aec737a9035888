"""Many kernels on one pair of sample sets, block by block, sharing what they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kernelweave.compiled.blocks import CACHED_ENTRIES, FEW_ENTRIES, SHARED_CACHE_ENTRIES, rows_of
from kernelweave.compiled.dense_rows import add_rectangle, add_weighted_rows
from kernelweave.compiled.matrix_checks import all_finite
from kernelweave.compiled.threads import map_blocks, one_blas_thread
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.pair import Pair
from kernelweave.kernels.samples import Samples

__all__ = ["NotFiniteError", "Plan", "evaluate_stack"]

# Rows are cut so that intermediate matrices stay in the cache, but not below this many.
_CHUNK_ROWS = 32
# Numbers that memory hands out together.
_CACHE_LINE = 8
# Below this many entries starting threads costs more than it saves.
_THREAD_ENTRIES = 2**18
# From this many multiplications on BLAS starts threads of its own, which cost more than they save
# on blocks this small (limiting them costs some 50 microseconds, hence not always).
_BLAS_THREADS = 2**18
# Values that overflow are found by looking at all of them, which names the kernel as well.
_QUIET = partial(np.errstate, over="ignore", invalid="ignore", divide="ignore")
# Products and sums read many column blocks through one pair; it is emptied beyond this number.
_KEPT_BLOCKS = 64


class NotFiniteError(InvalidInputError):
    """Kernel values are infinite or NaN; compiled code must not see them."""

    def __init__(self, kernel: str, dtype: Any = np.float64) -> None:
        super().__init__(
            f"kernel '{kernel}' has values that are infinite or NaN in {np.dtype(dtype).name}. "
            f"Scale the columns it reads (for instance with kernel.on(columns, StandardScaler())), "
            f"lower its degree or its factor, or leave it out."
        )


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
        Finite: an error names the first kernel with another value.

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
        self._kernels = kernels
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
        rows = max(_CHUNK_ROWS, rows_of(right.n, FEW_ENTRIES))
        starts = range(0, left.n, rows)

        def run(first: int, last: int) -> None:
            for task in range(first, last):
                path, members = self._groups[task // len(starts)]
                start = starts[task % len(starts)]
                stop = min(start + rows, left.n)
                part = left if len(starts) == 1 else left.take(np.arange(start, stop))
                with _QUIET():
                    _fill(out[:, start:stop], path, members, Pair(part, right, kind))
                for k, _ in members:
                    if not all_finite(out[k, start:stop]):
                        raise NotFiniteError(self._kernels[k].name, kind)

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

    def weighted(
        self, weights: NDArray[Any], left: Samples, right: Samples, dtype: DTypeLike = np.float64
    ) -> NDArray[Any]:
        """Return sum_k weights[k] K_k for two sets of samples, shape (q, n), in bounded memory.

        A few rows at a time: what is added up stays in the processor's cache.
        """
        kind = np.dtype(dtype)
        out = np.zeros((left.n, right.n), dtype=kind)
        widest = max((len(members) for _, members in self._groups), default=1)
        rows = int(max(_CHUNK_ROWS, rows_of(widest * right.n, CACHED_ENTRIES)))

        def run(first: int, last: int) -> None:
            part = left if last - first == left.n else left.take(np.arange(first, last))
            with _QUIET():
                for path, members in self._groups:
                    _add(out[first:last], path, members, weights, Pair(part, right, kind))
            if not all_finite(out[first:last]):
                self.evaluate(part, right, kind)  # raises an error that names the kernel
                raise NotFiniteError("sum of all kernels", kind)

        if left.n > rows:
            self._warm(left, right)
        work = float(self.m) * out.size * right.n_columns
        map_blocks(run, left.n, rows, work if work < _BLAS_THREADS else float("inf"))
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


def _add(
    out: NDArray[Any],
    path: tuple[Any, ...],
    members: list[tuple[int, Kernel]],
    weights: NDArray[Any],
    pair: Pair,
) -> None:
    for block in path:
        pair = pair.on(block)
    given = [(k, K) for k, kernel in members if (K := _readable(kernel)) is not None]
    for size in {len(K) for _, K in given}:
        alike = [(k, K) for k, K in given if len(K) == size]
        kernel = dict(members)[alike[0][0]]
        left, right = (np.asarray(kernel.ids(side)) for side in (pair.left, pair.right))
        _add_given([K for _, K in alike], weights[[k for k, _ in alike]], left, right, out)
    done = {k for k, _ in given}
    computed = [(k, kernel) for k, kernel in members if k not in done]
    if not computed:
        return
    many = rows_of(out.size, SHARED_CACHE_ENTRIES)
    for first in range(0, len(computed), many):
        some = computed[first : first + many]
        values = np.empty((len(some), *out.shape), out.dtype)
        for place, (_, kernel) in enumerate(some):
            kernel.evaluate_into(pair, values[place])
            if len(pair) > _KEPT_BLOCKS:
                pair.clear()
        own = weights[[k for k, _ in some]].astype(out.dtype, copy=False)
        out += (own @ values.reshape(len(some), -1)).reshape(out.shape)


def _readable(kernel: Kernel) -> NDArray[Any] | None:
    """Return the matrix of a precomputed kernel, if its rows can be read one by one."""
    matrix = kernel.whole_matrix()
    return matrix if matrix is not None and matrix.flags.c_contiguous else None


def _add_given(
    matrices: list[NDArray[Any]],
    weights: NDArray[Any],
    left: NDArray[np.intp],
    right: NDArray[np.intp],
    out: NDArray[Any],
) -> None:
    """out += sum_k weights[k] matrices[k][left][:, right]."""
    size = len(matrices[0])
    if _CACHE_LINE * len(right) < size:
        for K, weight in zip(matrices, weights, strict=True):
            add_rectangle(K, left, right, weight, out)
        return
    # Nearly all of a row has to be read anyway: from front to back that is quicker.
    rows = np.zeros((len(left), size))
    add_weighted_rows(matrices, weights, left, rows)
    add_rectangle(rows, np.arange(len(left)), right, 1.0, out)
