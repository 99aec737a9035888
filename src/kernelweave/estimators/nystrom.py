"""The scalable baseline: Nystrom features of every kernel, and a linear SVM on top."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.svm import LinearSVC
from sklearn.utils.validation import check_is_fitted

from kernelweave.arrays import Array, Index
from kernelweave.cached import cached_property
from kernelweave.combine import WeightedSum
from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError
from kernelweave.estimators.decisions import Parts, empty_parts
from kernelweave.estimators.kernel_estimator import KernelEstimator
from kernelweave.estimators.targets import check_loss_weights, read_classes
from kernelweave.kernels.samples import as_samples
from kernelweave.memory import require_bytes
from kernelweave.operators import KernelOperator, bind_kernels
from kernelweave.solvers import Limits
from kernelweave.validation import (
    LARGEST,
    positive_number,
    require_array,
    require_kind,
    unknown_name,
)

_LOSSES = ("squared_hinge", "hinge")
# A feature takes 8 bytes, and LIBLINEAR keeps a copy with an index beside each: 16 more.
_BYTES_EACH = 24.0
# Eigenvalues below this part of the largest are left out. What they would add to the kernel is less
# than that, and dividing by their roots would magnify rounding.
_CUTOFF = 1e-10
# Kernel values that a thread holds at a time, and the fewest rows it takes if kernels are many.
_BLOCK_ENTRIES = 2**21
_FEWEST_ROWS = 256
_LOWER = "Lower n_components, or use fewer kernels or samples."


@dataclass(eq=False, repr=False)
class NystromMKLClassifier(ClassifierMixin, KernelEstimator):
    r"""Linear SVM on the Nystrom features of all kernels, side by side.

    The baseline LIBLINEAR+ of Moeller et al. (MWUMKL, section 5). Every kernel becomes at most
    `n_components` features :math:`K_k(x, L)\, U s^{-1/2}`, with landmarks L and
    :math:`K_k(L, L) = U \operatorname{diag}(s) U^\top`
    (:class:`~kernelweave.estimators.nystrom.NystromMap`), and LIBLINEAR learns on all of them.
    It takes time in proportion to the number of samples, and no kernel weights are learnt: the
    model is about that of ``MKLClassifier(solver="uniform")`` with the same loss and C.

    Parameters
    ----------
    kernels : str, kernel, family, RBFBatch or list of these, default="default"
        What to combine, as for :class:`~kernelweave.MKLClassifier`.
    n_components : int, default=150
        Landmarks: training rows drawn at random, in one draw for all kernels. With fewer rows than
        that all of them are landmarks, and the features are exact. A kernel of lower rank has
        fewer features.
    C : float, default=1.0
        Weight of the loss. Features are divided by the root of the number of kernels, so that C
        does not depend on it.
    loss : {"squared_hinge", "hinge"}, default="squared_hinge"
        LIBLINEAR's losses.
    normalize : {"trace", "diagonal", "center"}, None or a tuple of them, default="trace"
        Normalisation of every kernel, learnt on the training rows.
    tol : float, default=1e-4
        Tolerance of LIBLINEAR; 0 is what float64 can resolve.
    max_iter : int, default=1000
        Most iterations of LIBLINEAR.
    class_weight : dict, "balanced" or None, default=None
        Factor on C for each class.
    n_jobs : int or None, default=None
        Threads that compute features; None means all cores. LIBLINEAR itself has one.
    random_state : int, RandomState or None, default=None
        Draws the landmarks, and the order in which LIBLINEAR looks at samples.

    Attributes
    ----------
    weights_ : ndarray of shape (m,)
        How much each kernel says: its share of :math:`|w|^2`, the squared length of the
        coefficients, added up over classes. They sum to one. `combined_kernel` and `as_kernel`
        weigh the kernels by them.
    kernel_names_ : list of str
        One readable name for each kernel.
    coef_ : ndarray of shape (1, n_features_out) or (n_classes, n_features_out)
        Coefficients of the features.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    landmarks_ : ndarray of shape (n_landmarks,)
        Which training rows are landmarks.
    ranks_ : ndarray of shape (m,)
        How many features each kernel has.
    n_iter_ : int
        Iterations of LIBLINEAR.
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only when X has column names.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from kernelweave import NystromMKLClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = NystromMKLClassifier(n_components=100).fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2]) > 0.95
    True
    >>> model.transform(X).shape[1] == len(model.get_feature_names_out())
    True
    """

    # `fit` takes sample_weight among its keywords (see there), so routing has to be told.
    __metadata_request__fit = {"sample_weight": None}  # noqa: RUF012

    kernels: Any = "default"
    _: KW_ONLY
    n_components: int = 150
    C: float = 1.0
    loss: str = "squared_hinge"
    normalize: Any = "trace"
    tol: float = 1e-4
    max_iter: int = 1000
    class_weight: Any = None
    n_jobs: int | None = None
    random_state: Any = None

    def fit(self, X: Any, y: Any, **fit_params: Any) -> NystromMKLClassifier:
        """Draw the landmarks, compute the features of the training rows, and fit LIBLINEAR.

        Parameters
        ----------
        X : array, CSR matrix, pandas or polars frame of shape (n, n_features), or n sequences
            Training samples; for precomputed kernels a column of
            :func:`~kernelweave.sample_ids`.
        y : array-like of shape (n,)
            Class labels.
        **fit_params : dict
            ``sample_weight``, array-like of shape (n,): factor on C for each sample. It is taken
            as a keyword because landmarks are drawn from the rows whatever their weight, so a fit
            with weights does not equal a fit with repeated rows, as scikit-learn requires of a
            `sample_weight` in the signature.
        """
        svm = self._linear_svm()
        X = self._check_X(X, reset=True)
        name = type(self).__name__
        self.classes_, codes, weight = read_classes(name, X, y, self.class_weight, fit_params)
        check_loss_weights(svm.C, weight)
        with self._threads():
            kernels = bind_kernels(self.kernels, X, normalize=self.normalize)
            count = min(int(self.n_components), kernels.n)
            rng = np.random.default_rng(self._seed())
            landmarks = np.sort(rng.choice(kernels.n, count, replace=False))
            features = NystromMap(kernels, landmarks)
            if not features.width:
                raise InvalidInputError(
                    f"every kernel is zero between the {len(landmarks)} landmarks, so there are "
                    "no features to learn from; raise n_components or take other kernels."
                )
            features.require_bytes(kernels.n, _BYTES_EACH)
            training = features.of_training()
            # No features of a kernel are larger, and liblinear never ends on such numbers.
            if not max(training.max(), -training.min()) ** 2 <= LARGEST:
                raise self._overflow()
            svm.fit(training, self.classes_[codes], sample_weight=weight)
        self._require_finite(svm.coef_, svm.intercept_)
        self._keep(kernels, WeightedSum())
        self._map = features
        self.landmarks_, self.ranks_ = landmarks, features.ranks
        self.coef_, self.intercept_ = svm.coef_, svm.intercept_
        self.n_iter_ = int(svm.n_iter_)
        self.weights_ = self._shares()
        _ = self._decide  # Now: predicting must not change an estimator.
        return self

    def _check_fitted(self) -> None:
        super()._check_fitted()
        require_kind("the Nystrom map", self._map, NystromMap)
        self._map.check(self._kernel_set)
        require_array("coef_", self.coef_, (len(self.intercept_), self._map.width))
        self.landmarks_, self.ranks_ = self._map.landmarks, self._map.ranks
        self._linear_svm()

    def _linear_svm(self) -> LinearSVC:
        """Check the settings; the linear SVM they ask for."""
        if not isinstance(self.n_components, Integral) or self.n_components < 1:
            raise InvalidInputError(
                f"n_components must be an integer >= 1; got {self.n_components!r}."
            )
        if self.loss not in _LOSSES:
            raise unknown_name("loss", self.loss, _LOSSES)
        if not isinstance(self.max_iter, Integral) or self.max_iter < 1:
            raise InvalidInputError(f"max_iter must be an integer >= 1; got {self.max_iter!r}.")
        C = positive_number("C", self.C)
        # liblinear never ends where the square of C is zero or infinite.
        if not 1 / LARGEST <= C <= LARGEST:
            raise InvalidInputError(
                f"C must lie between {1 / LARGEST:g} and {LARGEST:g}; got {self.C!r}."
            )
        return LinearSVC(
            C=C,
            loss=self.loss,
            dual="auto",
            tol=Limits(positive_number("tol", self.tol, allow_zero=True)).target(),
            max_iter=int(self.max_iter),
            random_state=self._seed(),
        )

    def _shares(self) -> Array:
        squares = (self.coef_**2).sum(axis=0)
        shares = np.bincount(self._map.owner, weights=squares, minlength=len(self.ranks_))
        total = shares.sum()
        return shares / total if total > 0 else np.full(len(shares), 1.0 / len(shares))

    def transform(self, X: Any) -> Array:
        """Nystrom features of X, shape (n_new, n_features_out).

        Their inner products are about the mean of the kernels.
        """
        X = self._check_X(X, reset=False)
        with self._threads():
            return self._map.of_new(X)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the features: that of the kernel and a number.

        Parameters
        ----------
        input_features : None
            Not used; there for scikit-learn.
        """
        check_is_fitted(self)
        names = [
            f"{self.kernel_names_[k]} #{i}" for k, r in enumerate(self.ranks_) for i in range(r)
        ]
        return np.array(names, dtype=object)

    def decision_function(self, X: Any) -> Array:
        """Signed distances: shape (n,) for two classes, (n, n_classes) otherwise."""
        return self._columns(self._decisions(X))

    @cached_property
    def _decide(self) -> Callable[[Any], Array]:
        return partial(self._map.decide, coef=self.coef_)

    def _parts(self, X: Any) -> Parts:
        used = np.flatnonzero(self.weights_)
        parts = empty_parts(X.shape[0], len(self.coef_), used)
        phi = self._map.of_new(X)
        for place, own in enumerate(map(self._map.own, used.tolist())):
            parts.values[:, :, place] = phi[:, own] @ self.coef_[:, own].T
        return parts._replace(constant=self.intercept_)

    def predict(self, X: Any) -> Array:
        """Return the most likely class of every sample."""
        return self._likeliest(self._decisions(X))


class NystromMap:
    r"""Features of finite length whose inner products are about the mean of the kernels.

    With landmarks L, :math:`K_k(L, L) = U_k \operatorname{diag}(s_k) U_k^\top` and m kernels,

    .. math:: \varphi(x) = \tfrac{1}{\sqrt m} \big( K_1(x, L)\, U_1 s_1^{-1/2},\; \dots,\;
              K_m(x, L)\, U_m s_m^{-1/2} \big)

    (Williams and Seeger 2001). Between landmarks :math:`\varphi(x)^\top \varphi(x')` is the mean of
    the kernels exactly, but for directions whose eigenvalue is below 1e-10 of the kernel's largest,
    which are left out. All kernels have the same landmarks, so that those on the same columns share
    what they compute.

    Parameters
    ----------
    kernel_set : KernelOperator
        Kernels on the training samples.
    landmarks : array of int
        Which of the samples are landmarks.

    Attributes
    ----------
    ranks : ndarray of shape (m,)
        How many features each kernel has.
    owner : ndarray of shape (width,)
        Which kernel each feature belongs to.
    width : int
        Number of features.

    Examples
    --------
    >>> from kernelweave.kernels import Linear, RBF
    >>> from kernelweave.operators import ComputedOperator
    >>> kernels = ComputedOperator.build([Linear(), RBF(width=1.0)], [[1.0], [2.0], [3.0]])
    >>> features = NystromMap(kernels, [0, 1, 2])
    >>> features.ranks
    array([1, 3])
    >>> phi = features.of_training()
    >>> np.allclose(phi @ phi.T, kernels.block().mean(axis=0))
    True
    """

    def __init__(self, kernel_set: KernelOperator, landmarks: Any) -> None:
        self._kernel_set = kernel_set
        self._landmarks = np.asarray(landmarks, dtype=np.int64)
        self._maps = self._learn()
        self._count()

    def _count(self) -> None:
        self.ranks = np.array([W.shape[1] for W in self._maps])
        self._offsets = np.concatenate([[0], np.cumsum(self.ranks)])
        self.owner = np.repeat(np.arange(len(self.ranks)), self.ranks)

    @property
    def landmarks(self) -> Index:
        """Which of the samples are landmarks."""
        return self._landmarks

    def check(self, kernel_set: KernelOperator) -> None:
        """Raise unless this, which came from a file, is a map of these kernels."""
        if self._kernel_set is not kernel_set:
            raise InvalidInputError("the Nystrom map must be one of the kernels of the model.")
        high = kernel_set.n - 1
        require_array("the landmarks", self._landmarks, (None,), whole=True, low=0, high=high)
        require_kind("the maps of the kernels", self._maps, list)
        if len(self._maps) != kernel_set.m:
            raise InvalidInputError(f"there must be {kernel_set.m} maps; got {len(self._maps)}.")
        for W in self._maps:
            require_array("the map of a kernel", W, (len(self._landmarks), None))
        self._count()

    @property
    def width(self) -> int:
        return int(self._offsets[-1])

    def _learn(self) -> list[Array]:
        """U s^(-1/2) / sqrt(m) of every kernel, (n_landmarks, rank)."""
        m, size = self._kernel_set.m, len(self._landmarks)
        maps: list[Array] = [np.empty((size, 0))] * m
        many = max(1, _BLOCK_ENTRIES // size**2)
        held = 0
        for first in range(0, m, many):
            part = np.arange(first, min(first + many, m))
            # They grow with each part, and how much is only known when it is there.
            needed = 8.0 * (held / max(1, first)) * m - 8.0 * held
            require_bytes(needed, f"Nystrom maps of {m} kernels, {size} landmarks each", _LOWER)
            gram = self._kernel_set.block(self._landmarks, self._landmarks, part)

            def work(start: int, stop: int, gram: Array = gram, part: Index = part) -> None:
                for i in range(start, stop):
                    maps[part[i]] = _inverse_root(gram[i]) / np.sqrt(m)

            map_blocks(work, len(part), 1, 10.0 * gram.size * size)
            held += sum(maps[k].size for k in part)
        return maps

    # Values

    def require_bytes(self, n: int, bytes_each: float) -> None:
        """Refuse what the features of n samples take if they do not fit in memory."""
        what = f"{self.width} Nystrom features of {n} samples ({len(self.ranks)} kernels)"
        require_bytes(bytes_each * n * self.width, what, _LOWER)

    def of_training(self) -> Array:
        """Features of the training samples, shape (n, width)."""
        return self._features(self._kernel_set, self._kernel_set.n)

    def of_new(self, X: Any) -> Array:
        """Features of new samples, shape (n_new, width)."""
        new = as_samples(X)
        return self._features(self._kernel_set.against(new), new.n)

    def _features(self, kernels: KernelOperator, n: int) -> Array:
        self.require_bytes(n, 8.0)
        out = np.empty((n, self.width))

        def take(rows: slice, k: int, phi: Array) -> None:
            out[rows, self.own(k)] = phi

        self._walk(kernels, n, take)
        return out

    def decide(self, X: Any, coef: Array) -> Array:
        """Features of new samples times `coef` (T, width), shape (n_new, T), in little memory."""
        new = as_samples(X)
        out = np.zeros((new.n, len(coef)))

        def take(rows: slice, k: int, phi: Array) -> None:
            out[rows] += phi @ coef[:, self.own(k)].T

        self._walk(self._kernel_set.against(new), new.n, take)
        return out

    def own(self, k: int) -> slice:
        """Which features are those of kernel k."""
        return slice(self._offsets[k], self._offsets[k + 1])

    def _walk(
        self, kernels: KernelOperator, n: int, take: Callable[[slice, int, Array], None]
    ) -> None:
        """Call ``take(rows, k, features)`` for all kernels and blocks of rows, on threads.

        `kernels` are those of n samples against the training samples. Kernels of one block of rows
        come one after the other, in one thread.
        """
        m, size = len(self._maps), len(self._landmarks)
        many = max(1, min(m, _BLOCK_ENTRIES // (_FEWEST_ROWS * size)))
        # Small enough for a few blocks for every thread.
        height = int(np.clip(_BLOCK_ENTRIES // (many * size), 1, max(_FEWEST_ROWS, n // 16)))
        # Transformers run here, before threads would each run them.
        kernels.block(np.arange(1), self._landmarks, np.arange(m))

        def work(start: int, stop: int) -> None:
            rows = np.arange(start, stop)
            for first in range(0, m, many):
                part = np.arange(first, min(first + many, m))
                blocks = kernels.block(rows, self._landmarks, part)
                for k, block in zip(part.tolist(), blocks, strict=True):
                    take(slice(start, stop), k, block @ self._maps[k])

        map_blocks(work, n, height, 10.0 * n * m * size)


def _inverse_root(gram: Array) -> Array:
    """U s^(-1/2) of the eigenvalues that count."""
    s, U = np.linalg.eigh(gram)
    kept = s > _CUTOFF * max(float(s[-1]), 0.0)
    return U[:, kept] / np.sqrt(s[kept])
