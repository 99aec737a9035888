"""What a fit has learnt, at new samples: the combined kernel, and decision values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from kernelweave.arrays import Array, Index
from kernelweave.combine import Combination, WeightedSum
from kernelweave.compiled.threads import rows_of
from kernelweave.kernels import Kernel, Sum
from kernelweave.kernels.samples import Samples, as_samples
from kernelweave.kernels.strings.parts import StringKernel, Terms
from kernelweave.memory import available_bytes, require_bytes
from kernelweave.operators import ComputedOperator, KernelOperator

# Entries of K(d) that are held at a time: several arrays of that size, of 8 MB each, are there at
# once. Fewer rows where memory is short.
_BLOCK_ENTRIES = 2**20
_BYTES_AN_ENTRY = 128
# So few, 16 MB, are there whatever else is: asking how much there is takes half a millisecond.
_FEW_ENTRIES = 2**17
# Values of single kernels that are held at a time, and of how many kernels: those on the same
# columns share distances.
_PART_ENTRIES = 2**22
_TOGETHER = 64
# Columns of features up to which they have a vector of weights, of 0.5 GB.
_MOST_FEATURES = 2**26


class LearntKernel:
    """K(d) between any samples, with the kernels' learnt constants and the learnt weights.

    Parameters
    ----------
    kernel_set : KernelOperator
        Bound to and normalised on the training rows.
    weights : ndarray of shape (m,)
        Their weights; in a sum, kernels of weight zero are never evaluated.
    combination : Combination, optional
        How they are combined; a sum by default.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.svm import SVC
    >>> from kernelweave import MKLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> kernel = MKLClassifier().fit(X, y).as_kernel()
    >>> SVC(kernel=kernel).fit(X, y).score(X, y) > 0.9
    True
    """

    def __init__(
        self, kernel_set: KernelOperator, weights: Array, combination: Combination | None = None
    ) -> None:
        self.kernel_set = kernel_set
        self.weights = np.asarray(weights, dtype=np.float64)
        self.combination = WeightedSum() if combination is None else combination

    def __call__(self, X: Any, Z: Any = None) -> Array:
        """Gram matrix of X against Z (None: against X itself)."""
        left = as_samples(X)
        right = left if Z is None else as_samples(Z)
        return self._rows(left, right.n, lambda part: self.kernel_set.between(part, right))

    def against_training(self, X: Any, idx: Index | None = None) -> Array:
        """Gram matrix of X against the training rows `idx` (None: all of them)."""
        width = self.kernel_set.n if idx is None else len(idx)
        return self._rows(as_samples(X), width, lambda part: self._against(part, idx))

    def products(self, X: Any, idx: Index, coef: Array) -> Array:
        """Gram matrix of X against the training rows `idx`, times `coef.T`; it is never whole."""
        return self._rows(as_samples(X), len(idx), lambda part: self._against(part, idx), coef)

    def _against(self, part: Samples, idx: Index | None) -> KernelOperator:
        return self.kernel_set.against(part).part(None, idx)

    def _rows(
        self,
        left: Samples,
        width: int,
        tile: Callable[[Samples], KernelOperator],
        coef: Array | None = None,
    ) -> Array:
        """K(d), or its products with `coef.T`, computed a bounded number of rows at a time."""
        out = np.zeros((left.n, width if coef is None else len(coef)))
        if not width:
            return out
        entries = min(_BLOCK_ENTRIES, left.n * width)
        if entries > _FEW_ENTRIES:
            entries = min(entries, int(available_bytes() / _BYTES_AN_ENTRY))
        step = max(1, int(entries // width))
        for first in range(0, left.n, step):
            part = tile(left.rows(first, first + step))
            values = self.combination.values(part, self.weights)
            out[first : first + step] = values if coef is None else values @ coef.T
        return out

    def __sklearn_clone__(self) -> LearntKernel:
        return self


# Values of new samples.
LookUp = Callable[[Samples], Array]


class LookUps:
    r"""The kernels of a weighted sum that have features to look up, and their functions.

    .. math:: f(x) = \sum_k d_k \sum_j v_j\, k_k(x_j, x) = \langle w, \Phi(x) \rangle

    With the weights w put together once, a value takes time in proportion to the features of x,
    whatever the number of :math:`x_j` ("linadd", Sonnenburg et al. 2006, algorithm 3). Kernels that
    can be merged (the parts of one string kernel) are looked up together.

    Parameters
    ----------
    kernels : ComputedOperator
        Bound and normalised.
    d : ndarray of shape (m,)
        Their weights.
    v : ndarray of shape (n,)
        Coefficients of the training samples.

    Attributes
    ----------
    rest : ndarray of shape (m,)
        The weights of the kernels that have to be evaluated against the training samples.

    Examples
    --------
    >>> from kernelweave.kernels import RBF, Samples, Spectrum
    >>> kernels = ComputedOperator.build([Spectrum(1), Spectrum(2)], ["ACG", "TTT"], normalize=None)
    >>> found = LookUps(kernels, np.array([1.0, 2.0]), np.array([1.0, 1.0]))
    >>> found(Samples(["ACT"])), found.rest
    (array([7.]), array([0., 0.]))
    """

    def __init__(self, kernels: ComputedOperator, d: Array, v: Array) -> None:
        self.rest = np.array(d, dtype=np.float64)
        self._functions: list[LookUp] = []
        if not kernels.only_scales and kernels.normalization.divides_centred:
            return  # By norms that the features of a new sample do not tell.
        groups: dict[Any, list[int]] = {}
        for k in np.flatnonzero(d).tolist():
            # Kernels that are only scaled can be one.
            kernel = kernels.kernels[k]
            core = kernel.core
            key = core.merge_key if kernels.only_scales and isinstance(core, StringKernel) else None
            groups.setdefault(k if key is None else (kernel.path, key), []).append(k)
        for group in groups.values():
            function = _look_up_of_group(kernels, group, self.rest[group], v)
            if function is not None:
                self._functions.append(function)
                self.rest[group] = 0.0

    def __call__(self, new: Samples) -> Array:
        """Return the values of new samples, without those of the kernels in `rest`."""
        out = np.zeros(new.n)
        for function in self._functions:
            out += function(new)
        return out


def _look_up_of_group(
    kernels: ComputedOperator, group: list[int], d: Array, v: Array
) -> LookUp | None:
    k, samples = group[0], kernels.samples
    kernel = kernels.kernels[k]
    if kernels.only_scales:
        factors = d * kernels.scale(group)
        if len(group) == 1:
            return _look_up(kernel, samples, factors[0] * v)
        cores = [kernels.kernels[own].core for own in group]
        return _look_up(kernel, samples, v, list(zip(cores, factors.tolist(), strict=True)))
    coefficients, roots, constant = kernels.coefficients(k, d[0] * v)
    raw = _look_up(kernel, samples, coefficients)
    if raw is None:
        return None
    if "diagonal" in kernels.normalization.names:
        return lambda new: kernels.new_roots(k, new) * raw(new) + constant
    return lambda new: roots * raw(new) + constant


def _look_up(
    kernel: Kernel, samples: Samples, v: Array, terms: Terms | None = None
) -> LookUp | None:
    """Return x -> sum_j v_j k(x_j, x) if the kernel has features, or k is the sum of `terms`."""
    parts: list[tuple[Any, LookUp]] = []
    for path, core in kernel.leaves(Sum):
        part = _look_up_of_one(core, samples.through(path), v, terms)
        if part is None:
            return None
        parts.append((path, part))
    return lambda new: np.sum([part(new.through(path)) for path, part in parts], axis=0)


def _look_up_of_one(
    kernel: Kernel, samples: Samples, v: Array, terms: Terms | None
) -> LookUp | None:
    if isinstance(kernel, StringKernel):
        return kernel.weigh(samples, v, terms)
    used = np.flatnonzero(v)
    features = kernel.features(samples.take(used))
    plain = isinstance(features, np.ndarray) or issparse(features)
    if not plain or features.shape[1] > _MOST_FEATURES:
        return None
    w = features.T @ v[used]
    if issparse(features):
        return lambda new: kernel.features(new) @ w
    step = rows_of(len(w), _BLOCK_ENTRIES)

    def value(new: Samples) -> Array:
        out = np.empty(new.n)
        for first in range(0, new.n, step):
            out[first : first + step] = kernel.features(new.rows(first, first + step)) @ w
        return out

    return value


class Parts(NamedTuple):
    """What each kernel adds to decision values.

    `values` has the shape (n, T, m_used), `kernels` are those that have weight in any task, and
    `constant`, of shape (T,), is what the values are when no kernel has weight.
    """

    values: Array
    kernels: Index
    constant: Array


def empty_parts(n: int, n_tasks: int, kernels: Index) -> Parts:
    """Return contributions to be filled in, or refuse if they do not fit in memory."""
    what = f"contributions of {len(kernels)} kernels to {n_tasks} values of each of {n} samples"
    require_bytes(8.0 * n * n_tasks * len(kernels), what, "Explain fewer samples at a time.")
    return Parts(np.zeros((n, n_tasks, len(kernels))), kernels, np.zeros(n_tasks))


class Decisions:
    r"""The learnt functions :math:`f_t(x) = \sum_j \alpha_{tj} K(d)(x_j, x)`, without intercepts.

    Kernels that have features (string kernels, linear ones, explicit maps) cost the same whatever
    the number of support vectors; the others are evaluated against these. Kernels of weight zero
    are never evaluated.

    Parameters
    ----------
    kernel_set : KernelOperator
        Bound to and normalised on the training samples.
    combination : Combination
        How the kernels are combined.
    weights : ndarray of shape (1, m) or (T, m)
        Their weights, shared by all tasks or one set each.
    support : ndarray of int
        The training samples that count.
    coef : ndarray of shape (T, len(support))
        Their coefficients.
    """

    def __init__(
        self,
        kernel_set: KernelOperator,
        combination: Combination,
        weights: Array,
        support: Index,
        coef: Array,
    ) -> None:
        self._kernel_set = kernel_set
        self._combination = combination
        self._weights = weights
        self._support = support
        self._coef = coef
        self._look_ups: list[LookUps] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tables of features can be made again, and would make a large file.
        return {**self.__dict__, "_look_ups": None}

    def __call__(self, X: Any) -> Array:
        """Return the values of samples X, shape (n_new, T)."""
        new = as_samples(X)
        kernels = self._kernel_set
        if isinstance(self._combination, WeightedSum) and isinstance(kernels, ComputedOperator):
            if self._look_ups is None:
                self._look_ups = [self._prepare(kernels, t) for t in range(len(self._coef))]
            out = np.column_stack([found(new) for found in self._look_ups])
            rest = np.array([self._look_ups[t].rest for t in range(len(self._weights))])
        else:
            out, rest = np.zeros((new.n, len(self._coef))), self._weights
        for row, d in enumerate(rest):
            if d.any():
                tasks = slice(row, row + 1) if len(rest) > 1 else slice(None)
                kernel = LearntKernel(kernels, d, self._combination)
                out[:, tasks] += kernel.products(new, self._support, self._coef[tasks])
        return out

    def parts(self, X: Any) -> Parts:
        """Return what each kernel of non-zero weight adds to the values of samples X.

        They sum, with `constant`, to the values. How a kernel's part of anything but a sum is
        told: :meth:`Combination.shares <kernelweave.combine.Combination.shares>`.
        """
        new = as_samples(X)
        used = np.flatnonzero(self._weights.any(axis=0))
        out = empty_parts(new.n, len(self._coef), used)
        if not len(self._support):
            return out
        apart = len(self._weights) > 1
        for row, d in enumerate(self._weights):
            tasks = np.array([row]) if apart else np.arange(len(self._coef))
            places = np.flatnonzero(d[used])
            rest = self._look_up_each(new, tasks, places, out)
            self._evaluate_each(new, tasks, rest, out)
        if new.n:
            tile = self._kernel_set.against(new.take([0])).part(None, self._support)
            out.constant[:] = self._combination.at_zero(tile)[0] @ self._coef.T
        return out

    def _look_up_each(self, new: Samples, tasks: Index, places: Index, out: Parts) -> Index:
        """Fill in the kernels whose features can be looked up; return the places of the others."""
        kernels = self._kernel_set
        if not (
            isinstance(self._combination, WeightedSum) and isinstance(kernels, ComputedOperator)
        ):
            return places
        rest = []
        for place in places:
            # One table at a time: those of all kernels together may be large.
            k = out.kernels[place]
            for t in tasks:
                found = self._prepare(kernels, t, k)
                if found.rest[k]:
                    rest.append(place)
                    break
                out.values[:, t, place] = found(new)
        return np.array(rest, dtype=np.intp)

    def _evaluate_each(self, new: Samples, tasks: Index, places: Index, out: Parts) -> None:
        """Fill in the kernels that are evaluated against the support vectors."""
        if not len(places):
            return
        d = self._weights[tasks[0] if len(self._weights) > 1 else 0]
        coef = self._coef[tasks]
        together = min(len(places), _TOGETHER)
        step = max(1, _PART_ENTRIES // (together * len(self._support)))
        for first in range(0, new.n, step):
            rows = np.arange(first, min(first + step, new.n))
            tile = self._kernel_set.against(new.take(rows)).part(None, self._support)
            shares = self._combination.shares(tile, d, coef, out.kernels[places])
            out.values[np.ix_(rows, tasks, places)] = shares.transpose(1, 2, 0)

    def _prepare(self, kernels: ComputedOperator, task: int, k: int | None = None) -> LookUps:
        """Look-ups of one task, of all kernels or of kernel k alone."""
        v = np.zeros(kernels.n)
        v[self._support] = self._coef[task]
        d = self._weights[task if len(self._weights) > 1 else 0]
        if k is not None:
            d = np.where(np.arange(len(d)) == k, d, 0.0)
        return LookUps(kernels, d, v)
