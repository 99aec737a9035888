"""Combinations of kernels, K(d) and its derivative: a sum, a product, a mixture of polynomials."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.polynomial import polynomial
from numpy.typing import DTypeLike

from kernelweave.arrays import Array
from kernelweave.combine.combined import CombinedOperator
from kernelweave.compiled.blocks import CACHED_COLUMNS, STACK_ENTRIES
from kernelweave.compiled.dense_rows import add_rows, fits_float32, rectangle, rows_product
from kernelweave.compiled.exp import exp_inplace
from kernelweave.compiled.threads import map_blocks, rows_of
from kernelweave.errors import InvalidInputError
from kernelweave.operators.base import KernelOperator, as_tasks
from kernelweave.operators.row_cache import RowCache
from kernelweave.registry import Named

# Rows and columns of a part: a few of them fit in the cache of a core.
_SIDE = 512


class Gram:
    """One combined kernel matrix sum_k d_k K_k, as the single-kernel solvers see it.

    Where the operator finds it cheaper (moderate n, matrices in memory) the matrix is formed once.
    Elsewhere a product is taken kernel by kernel and remembered in `parts`, so that K_k alpha stays
    known for every active kernel and the next weights need no pass of their own. Where rows are
    computed as they are asked for (`computes_rows`), those of the sum are kept.

    Parameters
    ----------
    bank : KernelOperator
        The kernels.
    d : ndarray of shape (m,)
        Their weights.
    dtype : numpy dtype
        Storage of the matrix, if it is formed, or of the rows; sums are float64.
    reuse : Gram, optional
        The memory of its matrix is taken over, and what it holds if it is of the same weights.

    Attributes
    ----------
    active : ndarray of int
        The kernels of weight not zero.
    parts : ndarray of shape (len(active), n) or None
        Sum of all products taken so far, kernel by kernel, where they are taken so.
    round_size : int or None
        Variables that a decomposition solver should move at a time; None if it does not matter.

    Examples
    --------
    >>> from kernelweave.operators import DenseOperator
    >>> bank = DenseOperator([np.eye(2), np.ones((2, 2))])
    >>> Gram(bank, np.array([0.5, 0.5])).product(np.array([0]), np.array([2.0]))
    array([2., 1.])
    """

    def __init__(
        self,
        bank: KernelOperator,
        d: Array,
        dtype: DTypeLike = np.float64,
        reuse: Gram | None = None,
    ) -> None:
        self.n, self.bank, self.d = bank.n, bank, d
        self.active = np.flatnonzero(d)
        self.round_size = bank.round_size
        self.parts: Array | None = None
        self._matrix: Array | None = None
        self._rows: RowCache | None = None
        # The block asked for last, and its samples.
        self._known: tuple[Array, Array] | None = None
        kind = np.dtype(dtype)
        old = None if reuse is None else reuse._matrix
        rows = None if reuse is None else reuse._rows
        if reuse is not None and reuse.bank is bank and np.array_equal(reuse.d, d):
            self._known = reuse._known
            self._matrix = old if old is not None and old.dtype == kind else None
            self._rows = rows if rows is not None and rows.dtype == kind else None
        if self._matrix is None and bank.forms_matrix:
            fits = old is not None and old.shape == (self.n, self.n) and old.dtype == kind
            self._matrix = bank.weighted(d, out=old if fits else np.empty((self.n, self.n), kind))
        elif self._matrix is None and self._rows is None and bank.computes_rows:
            if kind == np.float32 and not fits_float32(self.diagonal()):
                kind = np.dtype(np.float64)

            def compute(idx: Array) -> Array:
                return bank.weighted(d, idx)[None]

            self._rows = RowCache(compute, 1, self.n, bank.bytes_for_rows, kind)
        if reuse is not None:
            reuse._rows = None  # Its memory is free before rows of this one are asked for.

    def square_limit(self, most: int, copies: float) -> int:
        return self.bank.square_limit(most, copies)

    def dense(self) -> Array | None:
        return self._matrix

    def diagonal(self) -> Array:
        if self._matrix is not None:
            return self._matrix.diagonal().astype(np.float64)
        return self.d[self.active] @ self.bank.diagonal(self.active)

    def block(self, idx: Array) -> Array:
        """K(d)[idx][:, idx]."""
        idx = np.asarray(idx, dtype=np.int64)
        if self._matrix is not None:
            return rectangle(self._matrix, idx, idx)
        # A solver that narrows down its variables asks for parts of what it had before.
        if self._known is not None:
            known, block = self._known
            places = np.searchsorted(known, idx)
            if places[-1] < len(known) and np.array_equal(known[places], idx):
                return block if len(idx) == len(known) else rectangle(block, places, places)
        block = self.bank.weighted(self.d, idx, idx)
        self._known = (idx, block)
        return block

    def product(self, idx: Array, delta: Array) -> Array:
        """K(d)[:, idx] @ delta."""
        idx = np.asarray(idx, dtype=np.int64)
        if self._matrix is not None:
            return rows_product(self._matrix, idx, delta)
        if self._rows is not None:
            return self._sum_of_rows(self._rows, idx, np.asarray(delta, dtype=np.float64))
        v = np.zeros(self.n)
        v[idx] = delta
        parts = self.bank.apply(v, self.active)
        self.parts = parts if self.parts is None else self.parts + parts
        return self.d[self.active] @ parts

    def _sum_of_rows(self, rows: RowCache, idx: Array, delta: Array) -> Array:
        out = np.zeros(self.n)
        for first in range(0, len(idx), rows.capacity):
            slab, slots = rows.slots(idx[first : first + rows.capacity])
            values = delta[first : first + rows.capacity]

            def work(
                start: int, stop: int, slab: Array = slab, slots: Array = slots, v: Array = values
            ) -> None:
                add_rows(slab[:, 0], slots, v, out, start, stop)

            map_blocks(work, self.n, CACHED_COLUMNS, float(self.n) * len(values))
        return out


class Combination(Named):
    r"""A differentiable map from weights :math:`d \ge 0` to one kernel :math:`K(d)`.

    A new one supplies `values` and `derivative` on any part of the base matrices, a rectangular
    :class:`~kernelweave.operators.KernelOperator`; training, gradients and prediction all follow
    from these two, a few rows at a time. A subclass that sets `name` can be asked for by it and
    joins the contract tests.

    Attributes
    ----------
    base : {"kernels", "distances"}
        What the base matrices B_k are.
    linear : bool
        Whether K(d) is linear in d, with K(0) = 0. The problem is then convex and a fit ends with a
        duality gap; otherwise it ends at a stationary point. Before a fit a linear combination is
        reduced to a weighted sum (:meth:`Problem.as_sum <kernelweave.problem.Problem.as_sum>`).
    is_sum : bool
        Whether K(d) is the weighted sum of the base matrices itself.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.operators import DenseOperator
    >>> from kernelweave.combine import PolynomialMixture
    >>> bank = DenseOperator([np.eye(2), np.ones((2, 2))])
    >>> PolynomialMixture((1.0, 1.0)).matrix(bank, np.array([1.0, 2.0]))
    array([[12.,  6.],
           [ 6., 12.]])
    """

    kind = "combination"
    base: ClassVar[str] = "kernels"
    linear: ClassVar[bool] = False
    is_sum: ClassVar[bool] = False

    @abstractmethod
    def values(self, tile: KernelOperator, d: Array) -> Array:
        """K(d) on the tile, shape `tile.shape`."""

    @abstractmethod
    def derivative(self, tile: KernelOperator, d: Array, M: Array) -> Array:
        """sum_ij M_ij dK(d)_ij / dd_k over the tile, for every k: shape (m,)."""

    # Who brought how much

    def at_zero(self, tile: KernelOperator) -> Array:
        """K(0) on the tile: what is there before any kernel has weight."""
        return self.values(tile, np.zeros(tile.m))

    def mean_slope(self, tile: KernelOperator, d: Array) -> Array | None:
        r"""Slope of K in S = sum_k d_k B_k, averaged on the way from 0 to d; None if it is one.

        .. math:: \int_0^1 K'(t S)\, dt = \frac{K(S) - K(0)}{S}

        entry by entry, for K that depends on the weights through S, as all of ours do.
        """
        S = np.asarray(tile.weighted(d))
        gained = self.values(tile, d) - self.at_zero(tile)
        return np.divide(gained, S, out=np.zeros_like(gained), where=S != 0)

    def shares(self, tile: KernelOperator, d: Array, coef: Array, kernels: Array) -> Array:
        r"""What each kernel adds to (K(d) - K(0)) coef', shape (len(kernels), q, T).

        Aumann and Shapley's share: every weight grows from nothing at the same pace, and a kernel
        is given what its own growth adds,

        .. math:: \int_0^1 d_k \frac{\partial K}{\partial d_k}(t d)\, dt
                  = d_k B_k \circ \int_0^1 K'(t S)\, dt .

        The shares of all kernels sum to K(d) - K(0), exactly. A few kernels at a time are held.
        """
        slope = self.mean_slope(tile, d)
        out = np.empty((len(kernels), tile.shape[0], len(coef)))
        many = rows_of(tile.shape[0] * tile.shape[1], STACK_ENTRIES)
        for first in range(0, len(kernels), many):
            part = kernels[first : first + many]
            base = tile.block(kernels=part)
            if slope is not None:
                base = base * slope
            out[first : first + many] = d[part, None, None] * (base @ coef.T)
        return out

    def gram(
        self, bank: Any, d: Array, dtype: DTypeLike = np.float64, reuse: Gram | None = None
    ) -> Gram:
        """Return K(d) for the single-kernel solvers; `reuse` lends its memory and is lost."""
        if self.is_sum:
            return Gram(bank, d, dtype, reuse)
        return Gram(self._kernel(bank, d, dtype), np.ones(1), dtype, reuse)

    def matrix(self, bank: KernelOperator, d: Array) -> Array:
        """K(d) on all samples, (n, n) in float64."""
        return self._kernel(bank, d, np.float64).weighted(np.ones(1))

    def _kernel(self, bank: KernelOperator, d: Array, dtype: DTypeLike) -> CombinedOperator:
        """K(d) as an operator of one kernel."""
        return CombinedOperator(self, bank, np.atleast_2d(d), [type(self).__name__], dtype)

    def contract(self, bank: KernelOperator, d: Array, W: Array) -> Array:
        """sum_ij W_ij dK(d)_ij / dd_k over all samples, for every k; W is symmetric."""
        return self._sum_slopes(bank, d, np.arange(bank.n), lambda i, j: W[np.ix_(i, j)])

    def derivative_quad(
        self, bank: Any, d: Array, alpha: Array, kernels: Array | None = None
    ) -> Array:
        """alpha'(dK/dd_k) alpha for every k, summed over the rows of alpha, from its support.

        Entries outside `kernels` (None: all) need not be computed and may be zero.
        """
        tasks = as_tasks(alpha)
        support = np.flatnonzero(tasks.any(axis=0))
        values = tasks[:, support]
        return self._sum_slopes(bank, d, support, lambda i, j: values[:, i].T @ values[:, j])

    def evaluate(self, bank: Any, d: Array, alpha: Array) -> tuple[Array, Array]:
        """(K(d) alpha, alpha'(dK/dd_k) alpha), computed afresh: for the certificate."""
        tasks = as_tasks(alpha)
        fitted = self._kernel(bank, d, bank.tile_dtype).apply(tasks)[0]
        return fitted, self.derivative_quad(bank, d, tasks)

    def _sum_slopes(
        self,
        bank: KernelOperator,
        d: Array,
        samples: Array,
        factors: Callable[[Array, Array], Array],
    ) -> Array:
        """sum_ij M_ij dK(d)_ij / dd_k over pairs of these samples, for every k.

        M is symmetric; ``factors(i, j)`` is its part at these places among the samples. Tiles, of
        the operator's own precision, are always added up in the same order, and those above the
        diagonal stand for those below it as well.
        """
        pieces = [np.zeros(bank.m)] * (-(-len(samples) // _SIDE))

        def work(first: int, last: int) -> None:
            i = np.arange(first, last)
            for start in range(first, len(samples), _SIDE):
                j = np.arange(start, min(start + _SIDE, len(samples)))
                tile = bank.part(samples[i], samples[j], bank.tile_dtype)
                slopes = self.derivative(tile, d, factors(i, j))
                pieces[first // _SIDE] = pieces[first // _SIDE] + (1 + (start > first)) * slopes

        map_blocks(work, len(samples), _SIDE)
        return np.sum([np.zeros(bank.m), *pieces], axis=0)


class WeightedSum(Combination):
    """The combination "sum": K(d) = sum_k d_k K_k, so dK/dd_k = K_k.

    Examples
    --------
    >>> WeightedSum()
    WeightedSum()
    """

    name = "sum"
    linear = True
    is_sum = True

    def values(self, tile: KernelOperator, d: Array) -> Array:
        """sum_k d_k K_k."""
        return tile.weighted(d)

    def derivative(self, tile: KernelOperator, d: Array, M: Array) -> Array:
        """sum_ij M_ij K_k[i, j]."""
        return tile.contract(M)

    def mean_slope(self, tile: KernelOperator, d: Array) -> None:
        """K is S itself."""

    def derivative_quad(
        self, bank: KernelOperator, d: Array, alpha: Array, kernels: Array | None = None
    ) -> Array:
        """q_k(alpha) = alpha'K_k alpha, from the bank's own pass."""
        if kernels is None:
            return bank.quad(alpha)
        quad = np.zeros(bank.m)
        quad[kernels] = bank.quad(alpha, kernels)
        return quad

    def evaluate(self, bank: KernelOperator, d: Array, alpha: Array) -> tuple[Array, Array]:
        """(K(d) alpha, q(alpha)), in one pass where the bank can."""
        quad, product = bank.quad_and_product(alpha, d)
        return product, quad


class Product(Combination):
    r"""Product of kernels (SPG-GMKL, section 2).

    .. math:: K(d) = \prod_k \exp(-d_k D_k) = \exp\Big(-\sum_k d_k D_k\Big), \qquad
              \frac{\partial K}{\partial d_k} = -D_k \circ K(d).

    The base matrices are distances: of a kernel :math:`\exp(-D)` the matrix D. With the default
    kernels there is one squared distance for each standardised feature, so that d are the inverse
    squared widths of a Gaussian kernel, one for each feature; with the `L1` regularizer irrelevant
    features get weight zero.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import MKLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier(combination="product", regularizer="l1", C=10).fit(X, y)
    >>> model.gap_kind_, model.score(X, y) > 0.95
    ('projected_gradient', True)
    """

    name = "product"
    base = "distances"

    def values(self, tile: KernelOperator, d: Array) -> Array:
        """exp(-sum_k d_k D_k)."""
        return exp_inplace(np.ascontiguousarray(tile.weighted(d)), -1.0)

    def derivative(self, tile: KernelOperator, d: Array, M: Array) -> Array:
        """-sum_ij M_ij K(d)_ij D_k[i, j]."""
        return -tile.contract(M * self.values(tile, d))


class PolynomialMixture(Combination):
    r"""Mixture of powers of a weighted sum (SPG-GMKL names it as one more combination).

    .. math:: K(d) = \sum_{q=1}^Q c_q\, S^{\circ q}, \quad S = \sum_k d_k K_k, \qquad
              \frac{\partial K}{\partial d_k} = \Big( \sum_q q\, c_q\, S^{\circ (q-1)} \Big)
              \circ K_k,

    with powers taken entry by entry: a power of degree q holds the products of all q-tuples of
    kernels. Products and sums of kernels with positive coefficients are kernels.

    Parameters
    ----------
    coefficients : sequence of float, default=(1.0, 0.5)
        :math:`c_1, \dots, c_Q`, none negative, not all zero.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import MKLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier(combination=PolynomialMixture((1.0, 1.0))).fit(X, y)
    >>> model.gap_kind_, bool(model.gap_ <= 1e-3)
    ('projected_gradient', True)
    """

    name = "polynomial_mixture"

    def __init__(self, coefficients: Sequence[float] = (1.0, 0.5)) -> None:
        self.coefficients = coefficients

    @classmethod
    def examples(cls) -> list[Self]:
        """Instances that the contract tests check."""
        return [cls(), cls((0.0, 1.0)), cls((0.5, 0.0, 2.0))]

    def _after_load(self) -> None:
        self._checked()

    def _checked(self) -> Array:
        c = np.asarray(self.coefficients, dtype=np.float64)
        if c.ndim != 1 or not np.all(np.isfinite(c)) or np.any(c < 0) or not np.any(c > 0):
            raise InvalidInputError(
                "coefficients of PolynomialMixture must be finite numbers >= 0, at least one of "
                f"them > 0; got {self.coefficients!r}."
            )
        return np.concatenate([[0.0], c])

    def values(self, tile: KernelOperator, d: Array) -> Array:
        """sum_q c_q S^q, entry by entry."""
        S = tile.weighted(d)
        return polynomial.polyval(S, self._checked().astype(S.dtype), tensor=False)

    def derivative(self, tile: KernelOperator, d: Array, M: Array) -> Array:
        """sum_ij M_ij (sum_q q c_q S_ij^(q-1)) K_k[i, j]."""
        slope = polynomial.polyder(self._checked())
        return tile.contract(M * polynomial.polyval(tile.weighted(d), slope, tensor=False))


def get_combination(spec: str | Combination) -> Combination:
    """Return the combination of that name, or `spec` itself if it is one already."""
    return spec if isinstance(spec, Combination) else Combination.find(spec)()
