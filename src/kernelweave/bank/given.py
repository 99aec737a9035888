"""A bank of matrices that the user holds over more samples than those of the fit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike

from kernelweave.bank.dense import DenseBank
from kernelweave.bank.protocol import Array, ErrorBound, KernelBank, as_tasks
from kernelweave.bank.running import RunningProducts
from kernelweave.bank.source import Source
from kernelweave.compiled.blocks import FEW_ENTRIES, rows_of
from kernelweave.compiled.dense_rows import copy_rectangle
from kernelweave.compiled.threads import map_blocks
from kernelweave.kernels.tile import Tile

__all__ = ["GivenBank"]

# Up to this many given samples for each one of the fit their matrices are read in place.
_MOST_SHARE = 2.0
# Cutting an entry out takes as long as reading so many.
_CUT_COST = 2.0


class GivenBank(KernelBank):
    r"""Matrices over all samples, training and test, of which a fit needs a part.

    With P the matrix that picks the samples of the fit, its kernels are :math:`P K_k P'`, so that
    :math:`v'P K_k P'v` and :math:`P K_k P'v` are those of the whole matrix for a longer vector:
    nothing has to be cut out. That costs a little more a pass. Once passes have cost as much as
    cutting would have, the matrices are cut out after all, into a :class:`DenseBank`.

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
    >>> bank = GivenBank([K], np.array([2, 0]), np.array([10.0]), ["K"])
    >>> bank.combine(np.array([1.0]))
    array([[30.,  0.],
           [ 0., 10.]])
    """

    matrix_limit = DenseBank.matrix_limit
    keeps_rows = True

    def __init__(
        self, matrices: Sequence[Array], ids: Array, scale: Array, names: Sequence[str]
    ) -> None:
        self._matrices, self._scale = matrices, np.asarray(scale)
        self._whole = DenseBank().from_matrices(matrices, names, scale)
        self._ids = np.asarray(ids, dtype=np.int64)
        self.n, self.m, self.names = len(self._ids), self._whole.m, self._whole.names
        self._cut: DenseBank | None = None
        # Entries read in place so far beyond those that a cut would have had.
        self._spent = 0.0

    @classmethod
    def of(cls, source: Source) -> GivenBank | None:
        """Return a bank of these kernels; None unless all are given in a way that it can read."""
        given = [source.given(k) for k in range(source.m)]
        if not given or any(part is None for part in given):
            return None
        matrices, ids, scale = zip(*given, strict=True)
        size, first = len(matrices[0]), ids[0]
        if size > _MOST_SHARE * source.n or any(len(K) != size for K in matrices):
            return None
        if size == source.n and np.array_equal(first, np.arange(size)):
            return None  # A DenseBank takes whole matrices as they are.
        if not all(K.flags.c_contiguous for K in matrices):
            return None
        if not all(own is first or np.array_equal(own, first) for own in ids):
            return None
        return cls(matrices, first, np.array(scale), source.names)

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

    def _dense(self) -> DenseBank:
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

    def matvec(self, v: Array, kernels: Array | None = None) -> Array:
        if not self._here(self._pass_cost(v, kernels)):
            return self._dense().matvec(v, kernels)
        return self._whole.matvec(self._spread_out(v), kernels)[..., self._ids]

    def quad(self, v: Array, kernels: Array | None = None) -> Array:
        if not self._here(0.5 * self._pass_cost(v, kernels)):
            return self._dense().quad(v, kernels)
        return self._whole.quad(self._spread_out(v), kernels)

    def combine(self, d: Array, out: Array | None = None) -> Array:
        if not self._here(float(np.count_nonzero(d)) * self.n * (self._whole.n - self.n)):
            return self._dense().combine(d, out)
        out = np.empty((self.n, self.n)) if out is None else out
        few = rows_of(self._whole.n, FEW_ENTRIES)

        def work(start: int, stop: int) -> None:
            rows = np.empty((stop - start, self._whole.n))
            self._whole.combine_rows(d, self._ids[start:stop], rows)
            every = np.arange(len(rows))
            copy_rectangle(rows, every, self._ids, 1.0, out[start:stop], 0, len(rows))

        map_blocks(work, self.n, few, float(np.count_nonzero(d)) * self.n**2)
        return out

    def combine_block(self, d: Array, idx: Array) -> Array:
        return self._whole.combine_block(d, self._ids[idx])

    def diag(self, kernels: Array | None = None) -> Array:
        return self._whole.diag(kernels)[:, self._ids]

    def error(self, v: Array, d: Array) -> ErrorBound:
        """Return none: the user's own matrices are exact."""
        return ErrorBound.none(self.m)

    def take(self, idx: Array) -> DenseBank:
        return self._whole.take(self._ids[idx])

    def select(self, kernels: Array) -> KernelBank:
        if self._cut is not None:
            return self._cut.select(kernels)
        matrices, names = ([own[k] for k in kernels] for own in (self._matrices, self.names))
        return GivenBank(matrices, self._ids, self._scale[kernels], names)

    # What only a cut answers quickly

    def rows(self, idx: Array, kernels: Array | None = None, columns: Array | None = None) -> Array:
        return self._dense().rows(idx, kernels, columns)

    def products_at(self, v: Array, idx: Array, kernels: Array | None = None) -> Array:
        return self._dense().products_at(v, idx, kernels)

    def combine_rows(self, d: Array, idx: Array, out: Array) -> Array:
        return self._dense().combine_rows(d, idx, out)

    def sum_products(self, V: Array) -> Array:
        return self._dense().sum_products(V)

    def square_sum(self) -> Array:
        return self._dense().square_sum()

    def eigenvalue_bound(self) -> Array:
        return self._dense().eigenvalue_bound()

    def running(self) -> RunningProducts:
        return self._dense().running()

    def tile(self, rows: Array, columns: Array | None = None, dtype: DTypeLike = float) -> Tile:
        return self._dense().tile(rows, columns, dtype)
