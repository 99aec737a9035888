"""Matrices that the user holds over more samples than those of the fit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from kernelweave.compiled.blocks import FEW_ENTRIES, rows_of
from kernelweave.compiled.dense_rows import copy_rectangle
from kernelweave.compiled.threads import map_blocks
from kernelweave.operators.base import Array, KernelOperator, Kind, Which, as_tasks
from kernelweave.operators.computed import ComputedOperator
from kernelweave.operators.dense import DenseOperator
from kernelweave.operators.running import RunningProducts

__all__ = ["GivenOperator"]

# Up to this many given samples for each one of the fit their matrices are read in place.
_MOST_SHARE = 2.0
# Cutting an entry out takes as long as reading so many.
_CUT_COST = 2.0


class GivenOperator(KernelOperator):
    r"""Matrices over all samples, training and test, of which a fit needs a part.

    With P the matrix that picks the samples of the fit, its kernels are :math:`P K_k P'`, so that
    :math:`v'P K_k P'v` and :math:`P K_k P'v` are those of the whole matrix for a longer vector:
    nothing has to be cut out. That costs a little more a pass. Once passes have cost as much as
    cutting would have, the matrices are cut out after all, into a :class:`DenseOperator`.

    Parameters
    ----------
    matrices : sequence of ndarray of shape (N, N)
        The kernels over all samples.
    ids : ndarray of int, shape (n,)
        The samples of the fit among them; the same one may occur more than once.
    scale : ndarray of shape (m,)
        A factor on each kernel.
    names : sequence of str
        Their names.

    Examples
    --------
    >>> K = np.diag([1.0, 2.0, 3.0])
    >>> operator = GivenOperator([K], np.array([2, 0]), np.array([10.0]), ["K"])
    >>> operator.weighted(np.array([1.0]))
    array([[30.,  0.],
           [ 0., 10.]])
    """

    matrix_limit = DenseOperator.matrix_limit
    keeps_rows = True

    def __init__(
        self, matrices: Sequence[Array], ids: Array, scale: Array, names: Sequence[str]
    ) -> None:
        self._matrices, self._scale = matrices, np.asarray(scale)
        self._whole = DenseOperator(matrices, names, scale)
        self._ids = np.asarray(ids, dtype=np.int64)
        self.n, self.m, self.names = len(self._ids), self._whole.m, self._whole.names
        self._cut: DenseOperator | None = None
        # Entries read in place so far beyond those that a cut would have had.
        self._spent = 0.0

    @classmethod
    def of(cls, kernels: ComputedOperator) -> GivenOperator | None:
        """Return these kernels so; None unless all are given in a way that can be read."""
        given = [kernels.given_matrix(k) for k in range(kernels.m)]
        if any(part is None for part in given):
            return None
        matrices, ids, scale = zip(*given, strict=True)
        size, first = len(matrices[0]), ids[0]
        if size > _MOST_SHARE * kernels.n or any(len(K) != size for K in matrices):
            return None
        if size == kernels.n and np.array_equal(first, np.arange(size)):
            return None  # Whole matrices are taken as they are.
        if not all(K.flags.c_contiguous for K in matrices):
            return None
        if not all(own is first or np.array_equal(own, first) for own in ids):
            return None
        return cls(matrices, first, np.array(scale), kernels.names)

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices, the user's own included."""
        return self._whole.nbytes + (0 if self._cut is None else self._cut.nbytes)

    def _here(self, entries: float) -> bool:
        """Whether to read in place once more what costs that many entries more than in a cut."""
        if self._cut is None:
            self._spent += entries
            if self._spent > _CUT_COST * self.m * self.n**2:
                self._dense()
        return self._cut is None

    def _dense(self) -> DenseOperator:
        if self._cut is None:
            self._cut = self._whole.take(self._ids)
        return self._cut

    def _spread_out(self, v: Array) -> Array:
        """P'v for each row of v."""
        tasks = as_tasks(v)
        out = np.zeros((len(tasks), self._whole.n))
        for row, longer in zip(tasks, out, strict=True):
            np.add.at(longer, self._ids, row)
        return out if np.ndim(v) == 2 else out[0]

    def _pass_cost(self, v: Array, kernels: Array | None) -> float:
        count = self.m if kernels is None else len(kernels)
        return float(count) * np.count_nonzero(v) * (self._whole.n - self.n)

    def apply(self, v: Array, kernels: Which = None, rows: Which = None) -> Array:
        if rows is not None or not self._here(self._pass_cost(v, kernels)):
            return self._dense().apply(v, kernels, rows)
        return self._whole.apply(self._spread_out(v), kernels)[..., self._ids]

    def quad(self, v: Array, kernels: Which = None) -> Array:
        if not self._here(0.5 * self._pass_cost(v, kernels)):
            return self._dense().quad(v, kernels)
        return self._whole.quad(self._spread_out(v), kernels)

    def weighted(
        self, d: ArrayLike, rows: Which = None, columns: Which = None, out: Array | None = None
    ) -> Array:
        d = np.asarray(d, dtype=np.float64)
        if columns is not None:
            left = self._ids if rows is None else self._ids[rows]
            return self._whole.weighted(d, left, self._ids[columns], out)
        active = float(np.count_nonzero(d))
        if rows is not None or not self._here(active * self.n * (self._whole.n - self.n)):
            return self._dense().weighted(d, rows, None, out)
        out = np.empty((self.n, self.n)) if out is None else out

        def work(start: int, stop: int) -> None:
            found = self._whole.weighted(d, self._ids[start:stop])
            every = np.arange(len(found))
            copy_rectangle(found, every, self._ids, 1.0, out[start:stop])

        map_blocks(work, self.n, rows_of(self._whole.n, FEW_ENTRIES), active * self.n**2)
        return out

    def diagonal(self, kernels: Which = None) -> Array:
        return self._whole.diagonal(kernels)[:, self._ids]

    def take(self, idx: Array) -> DenseOperator:
        return self._whole.take(self._ids[idx])

    def select(self, kernels: Array) -> KernelOperator:
        if self._cut is not None:
            return self._cut.select(kernels)
        matrices, names = ([own[k] for k in kernels] for own in (self._matrices, self.names))
        return GivenOperator(matrices, self._ids, self._scale[kernels], names)

    # What only a cut answers quickly

    def block(
        self, rows: Which = None, columns: Which = None, kernels: Which = None, dtype: Kind = None
    ) -> Array:
        return self._dense().block(rows, columns, kernels, dtype)

    def sum_products(self, V: Array) -> Array:
        return self._dense().sum_products(V)

    def eigenvalue_bound(self) -> Array:
        return self._dense().eigenvalue_bound()

    def running(self) -> RunningProducts:
        return self._dense().running()
