"""Kernels from distances: any metric, or a given distance matrix."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from sklearn.metrics import pairwise_distances
from sklearn.metrics.pairwise import additive_chi2_kernel

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import ElementwiseForm, Given, Kernel, not_bound
from kernelweave.kernels.evaluate import Pair
from kernelweave.kernels.precomputed import MatrixKernel
from kernelweave.kernels.psd import check_distances
from kernelweave.kernels.samples import Samples
from kernelweave.validation import positive_number, unknown_name

_BOOLEAN = {"dice", "jaccard", "rogerstanimoto", "russellrao", "sokalsneath", "yule"}
_SPARSE = {"cityblock", "cosine", "euclidean", "l1", "l2", "manhattan", "sqeuclidean"}
# Metrics with d(x, x) = 0 for every x, so that the diagonal of the kernel is 1.
_ZERO_SELF = {"canberra", "chebyshev", "chi2", "hamming", "haversine", "minkowski"}
_ZERO_SELF |= _SPARSE - {"cosine"}
_METRICS = _BOOLEAN | _SPARSE | _ZERO_SELF | {"braycurtis", "correlation"}

# The mean distance is taken over at most this many training samples: it is known to their inverse
# root then, 1.4%, and no kernel hangs on more of its width.
_MEAN_SAMPLES = 5000
# Rows of distances at a time, of which 256 by 5,000 are 10 MB; and of a diagonal, for which all but
# one in so many distances are computed in vain.
_BLOCK, _SQUARE = 256, 32


class Distance(MatrixKernel):
    r"""Exponential of minus a distance.

    .. math:: k(x, x') = \exp(-D(x, x') / s)

    Parameters
    ----------
    metric : str, callable or array of shape (n, n)
        A metric of `sklearn.metrics.pairwise_distances` ("euclidean", "sqeuclidean", "cityblock",
        "cosine", "correlation", ...), "chi2" for
        :math:`\sum_j (x_j - x'_j)^2 / (x_j + x'_j)` on histograms, a function of two rows, or a
        matrix of distances between all samples, training and test. A matrix makes this a kernel on
        a column of sample ids, like `Precomputed`; it must be symmetric, with no negative entry
        and zeros on the diagonal.
    scale : "mean" or float, default="mean"
        The number s. "mean" is the mean of the whole matrix of distances between training samples,
        its zero diagonal included, as in the BEMKL experiments (Gönen 2012). Beyond 5,000 training
        samples it is taken over 5,000 of them, chosen with a fixed seed.
    name : str, optional
        What to call it in outputs; the metric by default.

    Notes
    -----
    Not every distance gives a positive semidefinite kernel. It does for "euclidean",
    "sqeuclidean", "cityblock", "chi2", "hamming", "jaccard" and "cosine"; for others and for given
    matrices it may not, and solvers then name the kernel.

    Examples
    --------
    >>> Distance("cityblock")([[0.0], [1.0]]).round(3)
    array([[1.   , 0.135],
           [0.135, 1.   ]])
    >>> Distance("chi2", scale=2).name
    'distance(chi2, scale=2)'
    """

    _call, _kind = "Distance(D)", "distance"

    def __init__(self, metric: Any, scale: str | float = "mean", name: str | None = None) -> None:
        super().__init__(name)
        self.metric = metric
        self.scale = scale
        self._learnt: float | None = None

    def _file_state(self) -> dict[str, Any]:
        metric = np.asarray(self.metric) if self.reads_ids else self.metric
        return {**self.__dict__, "metric": metric}

    @property
    def reads_ids(self) -> bool:  # type: ignore[override]
        return not isinstance(self.metric, str) and not callable(self.metric)

    @property
    def name(self) -> str:
        if self._name is not None:
            return str(self._name)
        title = "matrix" if self.reads_ids else getattr(self.metric, "__name__", self.metric)
        extra = "" if isinstance(self.scale, str) else f", scale={self.scale:g}"
        return f"distance({title}{extra})"

    def bind(self, samples: Samples) -> Distance:
        self._check_metric(samples)
        out = copy.copy(self)
        if isinstance(self.scale, str):
            if self.scale != "mean":
                raise InvalidInputError(
                    f"scale of Distance must be 'mean' or a number > 0; got {self.scale!r}."
                )
            out._learnt = self._mean_distance(samples)
        else:
            out._learnt = positive_number("scale of Distance", self.scale)
        return out

    def _after_load(self) -> None:
        super()._after_load()
        if self._learnt is not None:
            positive_number("scale of Distance", self._learnt)

    def _check_metric(self, samples: Samples) -> None:
        if self.reads_ids:
            self._check_ids(samples)
        elif isinstance(self.metric, str):
            if self.metric == "precomputed":
                raise InvalidInputError(
                    "for precomputed distances write Distance(D) with the matrix itself."
                )
            if self.metric not in _METRICS:
                raise unknown_name("metric", self.metric, _METRICS)
            if samples.is_sparse and self.metric not in _SPARSE:
                raise InvalidInputError(
                    f"metric {self.metric!r} needs a dense X; on sparse ones use one of "
                    f"{', '.join(sorted(_SPARSE))}."
                )

    def _mean_distance(self, samples: Samples) -> float:
        if samples.n > _MEAN_SAMPLES:
            rng = np.random.default_rng(0)
            samples = samples.take(np.sort(rng.choice(samples.n, _MEAN_SAMPLES, replace=False)))
        total = 0.0
        for start in range(0, samples.n, _BLOCK):
            part = samples.rows(start, start + _BLOCK)
            total += float(self._distances(Pair(part, samples)).sum(dtype=np.float64))
        mean = total / samples.n**2
        if not mean > 0:
            raise InvalidInputError(
                f"the mean distance of kernel '{self.name}' on the training samples is {mean:g}, "
                f"so it cannot be the scale: are all samples equal? Give scale a number > 0."
            )
        return mean

    def _distances(self, pair: Pair) -> Array:
        if self.reads_ids:
            return self._entries(pair)
        key = ("distance", self.metric)
        if key not in pair.memo:
            pair.memo[key] = self._compute(pair)
        return pair.memo[key]

    def _check(self) -> tuple[Array, str | None]:
        return check_distances(self.metric, self.name)

    def _compute(self, pair: Pair) -> Array:
        if self.metric == "sqeuclidean":
            return pair.sqdist
        if self.metric in ("euclidean", "l2"):
            return np.sqrt(pair.sqdist)
        U, V = pair.left.array(), pair.right.array()
        if self.metric == "chi2":
            if U.min() < 0 or V.min() < 0:
                raise InvalidInputError(
                    f"metric 'chi2' needs values >= 0 (histograms); got {min(U.min(), V.min()):g}."
                )
            D = -additive_chi2_kernel(U, V)
        else:
            if self.metric in _BOOLEAN:
                U, V = U != 0, V != 0
            # A view: given one object twice, scikit-learn would treat the diagonal differently.
            V = V.view() if isinstance(V, np.ndarray) else V
            D = pairwise_distances(U, V, metric=self.metric)
        if not np.isfinite(D).all():
            i, j = (int(t) for t in np.argwhere(~np.isfinite(D))[0])
            raise InvalidInputError(
                f"kernel '{self.name}': the distance between two samples (row {i} of a block and "
                f"row {j}) is {D[i, j]}; is one of them zero or constant?"
            )
        return D.astype(pair.dtype, copy=False)

    @property
    def _rate(self) -> float:
        if self._learnt is None:
            raise not_bound(self.name)
        return 1.0 / self._learnt

    def evaluate(self, pair: Pair) -> Array:
        return np.exp(self._distances(pair) * -self._rate)

    def exponent(self, pair: Pair) -> Array:
        return self._distances(pair) * self._rate

    @property
    def given(self) -> Given | None:
        return Given(self._matrix, self._rate) if self.reads_ids else None

    def ids(self, samples: Samples) -> Any:
        return super().ids(samples) if self.reads_ids else None

    def form(self) -> ElementwiseForm | None:
        squared = isinstance(self.metric, str) and self.metric == "sqeuclidean"
        return ElementwiseForm("sqdist", 0, self._rate) if squared else None

    def diagonal(self, samples: Samples) -> Array:
        if self.reads_ids:
            own = self._matrix.diagonal()[self.ids(samples)].astype(np.float64)
            return np.exp(-self._rate * own)
        if isinstance(self.metric, str) and self.metric in _ZERO_SELF:
            return np.ones(samples.n)
        out = np.empty(samples.n)
        for start in range(0, samples.n, _SQUARE):
            part = samples.rows(start, start + _SQUARE)
            out[start : start + _SQUARE] = self.evaluate(Pair(part, part)).diagonal()
        return out

    @classmethod
    def examples(cls) -> list[Kernel]:
        metrics = ("euclidean", "sqeuclidean", "cityblock", "cosine", "chi2", "jaccard")
        D = pairwise_distances(np.random.default_rng(6).normal(size=(12, 3)))
        return [*(cls(metric) for metric in metrics), cls("cityblock", scale=3.0), cls(D).on(3)]

    @classmethod
    def example_data(cls, rng: np.random.Generator) -> Any:
        histograms = rng.integers(0, 5, size=(12, 3)) + rng.random((12, 3))
        return np.column_stack([histograms, np.arange(12)])
