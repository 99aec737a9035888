"""What every estimator does: samples at the door, kernels in a bank, files, the learnt kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import wraps
from numbers import Integral
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from kernelweave.arrays import Array
from kernelweave.cached import cached_property
from kernelweave.combine import Combination
from kernelweave.compiled.first_run import compile_notice
from kernelweave.compiled.threads import one_blas_thread, use_threads
from kernelweave.errors import InvalidInputError, MemoryBudgetError
from kernelweave.estimators.decisions import LearntKernel, Parts
from kernelweave.inspect.explanation import Explanation, sample_names
from kernelweave.inspect.kernel_info import describe_kernels
from kernelweave.inspect.summary import html_repr, summary_text
from kernelweave.kernels.names import LazyNames
from kernelweave.kernels.samples import as_text, is_frame
from kernelweave.memory import out_of_memory
from kernelweave.operators import (
    KernelOperator,
)
from kernelweave.solvers import Checkpoint, Limits
from kernelweave.validation import (
    positive_number,
    require_array,
    require_kind,
    require_names,
    require_sparse,
)

# What an estimator says of every row by itself.
_ROWWISE = ("decision_function", "predict", "predict_proba", "_predict_proba", "score_samples")
# Those who watched a fit and what it started from are not part of what was learnt.
_OF_THE_FIT = {"callbacks": (), "warm_start_from": None, "_solutions": None}
# Made from the rest when they are first asked for.
_CACHED = ("kernel_names_", "_decide")


def _is_collection(X: Any) -> bool:
    """Whether X is a Dask array or DataFrame."""
    return hasattr(X, "__dask_graph__") and hasattr(X, "to_delayed")


def _in_blocks(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a prediction method take Dask collections too."""

    @wraps(method)
    def predict(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_collection(X):
            return method(self, X, *args, **kwargs)
        from kernelweave.estimators.dask_blocks import predict_in_blocks

        return predict_in_blocks(self, X, method.__name__, args, kwargs)

    return predict


class KernelEstimator(TransformerMixin, BaseEstimator):
    """Shared by the estimators, whatever their model is.

    A fit leaves `weights_`, `intercept_`, and behind them `_kernel_set` and `_combination`. A
    subclass says by `_decide` what comes to the intercepts for new samples, as :class:`Decisions`.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in _ROWWISE:
            if callable(method := cls.__dict__.get(name)):
                setattr(cls, name, _in_blocks(method))

    @contextmanager
    def _threads(self) -> Iterator[None]:
        """Our threads and no others: BLAS would add up in an order that depends on its own.

        Memory that runs out inside is told with what can be done about it.
        """
        self._check_n_jobs()
        # Overflow is no news of NumPy's: kernel values and results are looked at themselves.
        quiet = np.errstate(over="ignore", invalid="ignore", divide="ignore")
        with use_threads(self.n_jobs), one_blas_thread(), compile_notice(), quiet:
            try:
                yield
            except MemoryBudgetError:
                raise
            except MemoryError as error:
                raise out_of_memory(type(self).__name__, error) from error

    # Validation at the door

    def _limits(self) -> Limits:
        positive_number("tol", self.tol, allow_zero=True)
        if not isinstance(self.max_iter, Integral) or self.max_iter < 1:
            raise InvalidInputError(f"max_iter must be an integer >= 1; got {self.max_iter!r}.")
        if self.max_time is not None:
            positive_number("max_time", self.max_time)
        callbacks = self.callbacks
        if callable(callbacks) or isinstance(callbacks, Checkpoint):
            callbacks = (callbacks,)
        if not isinstance(callbacks, Sequence) or not all(
            callable(c) or isinstance(c, Checkpoint) for c in callbacks
        ):
            raise InvalidInputError(
                "callbacks must be a sequence of callables and of Checkpoint objects; got "
                f"{self.callbacks!r}."
            )
        for callback in callbacks:
            if isinstance(callback, Checkpoint):
                callback.check()
        return Limits(self.tol, int(self.max_iter), self.max_time, tuple(callbacks), self.verbose)

    def _check_n_jobs(self) -> None:
        ok = self.n_jobs is None or (isinstance(self.n_jobs, Integral) and self.n_jobs != 0)
        if not ok:
            raise InvalidInputError(
                f"n_jobs must be None or an integer other than 0; got {self.n_jobs!r}."
            )

    def _check_X(self, X: Any, reset: bool) -> Any:
        """Check X; frames and text pass as they are, so that kernels can choose columns.

        Sequences in one dimension become a table with one column.
        """
        if not reset:
            check_is_fitted(self)
        if _is_collection(X):
            raise InvalidInputError(
                f"X is a Dask {type(X).__name__}, which predict, decision_function and "
                "predict_proba take block by block; here samples in memory are needed: "
                "X.compute(). To fit on a cluster, pass them with bank=DaskBank(client)."
            )
        if sparse.issparse(X):
            require_sparse("sparse X", X)
        text = None if is_frame(X) else as_text(X)
        if reset:
            self._reads_sequences = text is not None and text.shape[1] == 1
        if text is None and not is_frame(X):
            if not reset and self._reads_sequences:
                raise InvalidInputError(
                    f"X holds no text, but {type(self).__name__} was fitted on sequences; give a "
                    f"list, array or Series of str or bytes."
                )
            with np.errstate(invalid="ignore"):  # by a sum that is to show whether X is finite
                return validate_data(self, X, reset=reset, accept_sparse="csr", dtype="numeric")
        table = X if text is None else text
        validate_data(self, table, reset=reset, skip_check_array=True)
        if table.shape[0] == 0:
            raise InvalidInputError("X holds no samples (0 rows); at least one is needed.")
        return table

    def _require_finite(self, *numbers: Any) -> None:
        """Refuse to store or to return what overflow has made of the numbers of a fit."""
        if not all(np.isfinite(values).all() for values in numbers):
            raise self._overflow()

    def _overflow(self) -> InvalidInputError:
        return InvalidInputError(
            f"{type(self).__name__}: numbers overflow float64 on the way from the kernels to the "
            f"result. Bring the columns of X, the targets, sample_weight and C nearer to 1 in "
            f"size, and use normalize='trace'."
        )

    def _seed(self) -> int:
        if self.random_state is None:
            return 0  # A fit should not change between runs.
        return int(check_random_state(self.random_state).randint(2**31))

    def _keep(self, kernels: KernelOperator, combination: Combination) -> None:
        """Keep the kernels of a fit, and forget what was made from those of the last one."""
        self._kernel_set: Any = kernels
        self._combination = combination
        for name in _CACHED:
            self.__dict__.pop(name, None)

    @cached_property
    def kernel_names_(self) -> Sequence[str]:
        """One readable name for each kernel."""
        check_is_fitted(self)
        names: Sequence[str] = self._kernel_set.names
        # Those of a batch are written when they are read; a list of a million takes long.
        return names if isinstance(names, LazyNames) else list(names)

    # Model files; pickles hold everything

    def _file_state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.__getstate__()  # type: ignore[assignment]
        return state | {name: value for name, value in _OF_THE_FIT.items() if name in state}

    def _after_load(self) -> None:
        for name in ("_solutions", *_CACHED):
            self.__dict__.pop(name, None)
        if hasattr(self, "weights_"):
            self._check_fitted()

    def _check_fitted(self) -> None:
        """Raise unless what was learnt, and came from a file, fits together."""
        require_kind("the kernels of the model", self._kernel_set, KernelOperator)
        require_kind("the combination of the kernels", self._combination, Combination)
        require_kind("what the model reads", self._reads_sequences, bool)
        width = self._kernel_set.samples.n_columns
        if self.n_features_in_ != width:
            raise InvalidInputError(f"n_features_in_ must be {width}; got {self.n_features_in_!r}.")
        if hasattr(self, "feature_names_in_"):
            names = self.feature_names_in_
            require_kind("feature_names_in_", names, np.ndarray)
            require_names("feature_names_in_", names.tolist(), width)
        require_kind("weights_", self.weights_, np.ndarray)
        groups = (None,) if self.weights_.ndim > 1 else ()
        require_array("weights_", self.weights_, (*groups, self._kernel_set.m))
        if groups and len(self.weights_) != len(self.intercept_):
            raise InvalidInputError("weights_ must have one row, or one for each decision value.")
        require_array("intercept_", self.intercept_, (None,))
        require_kind("n_iter_", self.n_iter_, Integral)
        self._check_n_jobs()
        if hasattr(self, "classes_"):
            n_values, classes = len(self.intercept_), self.classes_
            require_kind("classes_", classes, np.ndarray)
            if classes.shape not in ((2,) if n_values == 1 else (n_values,), (n_values, 2)):
                raise InvalidInputError(
                    f"classes_ must fit {n_values} decision values; got shape {classes.shape}."
                )

    # From a fit to numbers

    def _decisions(self, X: Any) -> Array:
        """Decision values of new samples, shape (n_new, T)."""
        X = self._check_X(X, reset=False)
        with self._threads():
            values = self._decide(X) + self.intercept_
        self._require_finite(values)
        return values

    def _columns(self, values: Array) -> Array:
        """Values of shape (n, T) as users see them: a single one for each sample is no table."""
        return values[:, 0] if self._one_value else values

    def _likeliest(self, decisions: Array) -> Array:
        """The class of the largest decision value, or by the sign of a single one."""
        alone = decisions.shape[1] == 1
        best = (decisions[:, 0] > 0).astype(int) if alone else decisions.argmax(axis=1)
        return self.classes_[best]

    def _parts(self, X: Any) -> Parts:
        parts = self._decide.parts(X)
        return parts._replace(constant=parts.constant + self.intercept_)

    def _learnt(self) -> LearntKernel:
        weights = np.atleast_2d(self.weights_).mean(axis=0)
        return LearntKernel(self._kernel_set, weights, self._combination)

    def combined_kernel(self, X: Any, Z: Any = None) -> Array:
        """Gram matrix of the learnt combination, of X against Z (None: against X itself).

        With one set of weights per class (``multi_class="ovr"``) the mean of the sets is used.
        Weights of a Bayesian model may be negative, and their sum then need not be positive
        semi-definite.
        """
        X = self._check_X(X, reset=False)
        if Z is not None:
            Z = self._check_X(Z, reset=False)
        with self._threads():
            return self._learnt()(X, Z)

    def transform(self, X: Any) -> Array:
        """Learnt kernel of X against the training rows, shape (n_new, n_train).

        Put the estimator as a step before any estimator with ``kernel="precomputed"``.
        """
        X = self._check_X(X, reset=False)
        with self._threads():
            return self._learnt().against_training(X)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the columns of `transform`: ``kernel_to_row_0``, ``kernel_to_row_1``, ...

        Parameters
        ----------
        input_features : None
            Not used; there for scikit-learn.
        """
        check_is_fitted(self)
        names = [f"kernel_to_row_{i}" for i in range(self._kernel_set.n)]
        return np.array(names, dtype=object)

    def as_kernel(self) -> LearntKernel:
        """Return the learnt combination as a callable for any scikit-learn ``kernel=`` argument."""
        check_is_fitted(self)
        return self._learnt()

    # What a model says of itself

    def explain(self, X: Any) -> Explanation:
        r"""Take the decision values of samples apart: what does each kernel add?

        In a weighted sum of kernels, kernel k adds
        :math:`f_k(x) = d_k \sum_j \alpha_j K_k(x_j, x)`, and the decision value is
        :math:`\sum_k f_k(x) + b`. Other combinations are shared out as Aumann and Shapley do
        (:meth:`Combination.shares <kernelweave.combine.Combination.shares>`): every weight grows
        from nothing at the same pace, and a kernel is given what its own growth adds. Kernels of
        weight zero are never evaluated.

        Parameters
        ----------
        X : array, CSR matrix, pandas or polars frame, or sequences
            New samples.

        Returns
        -------
        Explanation
            Its contributions and its baseline sum to `decision_function`, or to `predict` of a
            regressor. ``explanation.by("view")`` adds up views.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from kernelweave import MKLClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> model = MKLClassifier().fit(X, y)
        >>> model.explain(X[:2])
        <Explanation of 2 samples by 3 kernels, 3 values each>
        """
        table = self._check_X(X, reset=False)
        with self._threads():
            values, kernels, constant = self._parts(table)
        infos = tuple(describe_kernels(self, kernels))
        decision = values.sum(axis=-1) + constant
        baseline: Any = constant
        if self._one_value:
            values, decision, baseline = values[:, 0], decision[:, 0], float(constant[0])
        outputs, meaning = self._decision_names()
        return Explanation(
            values=values,
            baseline=baseline,
            decision=decision,
            kernel_names=tuple(info.name for info in infos),
            kernels=kernels,
            infos=infos,
            outputs=outputs,
            meaning=meaning,
            samples=sample_names(X, len(values)),
        )

    @property
    def _one_value(self) -> bool:
        """Whether a sample has a single decision value, which is then no row of a table."""
        return len(self.intercept_) == 1

    def _decision_names(self) -> tuple[tuple[str, ...], str]:
        """Names of the decision values, and what they mean."""
        classes: Any = self.classes_
        if np.ndim(classes) == 2:
            labels = tuple(f"label {t}" for t in range(len(classes)))
            return labels, "a value for each label: above 0 the sample has it"
        names = tuple(str(name) for name in classes)
        if len(names) == 2:
            return names[1:], f"above 0 speaks for {names[1]}, below 0 for {names[0]}"
        return names, "a value for each class: the largest wins, and is shown"

    def summary(self, top: int = 10) -> None:
        """Print what was learnt: how good, how sure of it, the heaviest kernels.

        :func:`~kernelweave.report.summary_text` returns the same lines.

        Parameters
        ----------
        top : int, default=10
            How many kernels to list.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from kernelweave import MKLClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> MKLClassifier("linear").fit(X, y).summary()  # doctest: +ELLIPSIS
        MKLClassifier: converged after 1 iteration
          objective  ...
          gap        ... (relative, tolerance 1.0e-03)
          kernels    1 of 1 have a non-zero weight
              1.0000  linear
        """
        print(summary_text(self, top))

    # What notebooks show. scikit-learn decides whether it is a diagram or text.

    def _repr_html_inner(self) -> str:
        return html_repr(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] = html_repr(self)
        return bundle

    # What scikit-learn asks

    def __sklearn_clone__(self) -> Any:
        # A fitted estimator to start from stays what it is: a clone of it would be unfitted.
        twin = copy(self)
        source = getattr(self, "warm_start_from", None)
        if source is not None:
            twin.warm_start_from = None
        made = super(KernelEstimator, twin).__sklearn_clone__()
        if source is not None:
            made.warm_start_from = source
        return made

    def __sklearn_is_fitted__(self) -> bool:
        # Not by other attributes: an interrupted fit has set some of them.
        return hasattr(self, "weights_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags
