"""How sure are the weights? Refit on replicates of the rows, and see how far they move."""

from __future__ import annotations

import re
import threading
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils import _safe_indexing, check_random_state, column_or_1d
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import (
    _check_method_params,
    _num_samples,
    check_consistent_length,
)

from kernelweave.arrays import Array, Index
from kernelweave.errors import InterruptedFitWarning, InvalidInputError
from kernelweave.inspect.ranking import find_estimator
from kernelweave.inspect.stability_result import Stability, check_level
from kernelweave.validation import positive_number, unknown_name, whole_number

# Below this many there is no interval to speak of.
_FEWEST = 2
# What a kernel may learn from the rows and show in its name, as in "rbf(gamma=0.0312)".
_LEARNT_NUMBER = re.compile(r"=-?\d[\d.e+-]*")

Note = tuple[type[Warning], str]


@dataclass(frozen=True)
class Rows:
    """Samples, targets and arguments of `fit`, cut together."""

    X: Any
    y: Any
    fit_params: dict[str, Any]

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(_num_samples(self.X))

    def take(self, index: Index) -> Rows:
        """Return the rows at these positions, with their targets and arguments."""
        y = None if self.y is None else _safe_indexing(self.y, index)
        params = _check_method_params(self.X, self.fit_params, index)
        return Rows(_safe_indexing(self.X, index), y, params)


def find_strata(y: Any, n: int) -> list[Index]:
    """Return the rows of each class, or all rows where there are no classes."""
    if y is None:
        return [np.arange(n)]
    codes = np.unique(column_or_1d(y), return_inverse=True)[1]
    return [np.flatnonzero(codes == c) for c in range(codes.max() + 1)]


def draw_rows(strata: list[Index], sampling: str, rng: np.random.Generator) -> Index:
    """Draw the rows of a replicate: as many as there are with replacement, or half without."""
    if sampling == "bootstrap":
        parts = [rng.choice(rows, len(rows)) for rows in strata]
    else:
        parts = [rng.choice(rows, max(1, len(rows) // 2), replace=False) for rows in strata]
    # In the order of the data, copies of a row are neighbours: splits of a search that do not
    # shuffle then keep them on one side, and rows in order of time stay so.
    return np.sort(np.concatenate(parts))


def stability(
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    n_bootstrap: int = 100,
    level: float = 0.95,
    threshold: float = 0.0,
    sampling: str = "bootstrap",
    stratify: bool = True,
    fit_params: Mapping[str, Any] | None = None,
    n_jobs: int | None = None,
    random_state: Any = None,
    verbose: bool = False,
) -> Stability:
    r"""Refit an estimator on replicates of the rows, and say how sure its kernel weights are.

    Every replicate is a fit of a clone, so everything that is learnt from rows (scaling,
    normalisation, the C of a search) is learnt anew. Kernels that carry information are selected in
    nearly all replicates, the others only in some (Bach 2008, Meinshausen and Bühlmann 2010).

    An interval says how far a weight moves when other rows of the same kind are drawn. Kernels that
    resemble each other take turns: their intervals are wide and their frequencies low, however
    much they matter together. For a weight that is truly zero the interval is only a rough guide
    (Andrews 2000), so read its frequency.

    Parameters
    ----------
    estimator : MKLClassifier, MKLRegressor, MKLOneClass, or a pipeline or search that ends in one
        Fitted or not; it is cloned and left as it is.
    X : array, sparse matrix, DataFrame or sequence of shape (n, ...)
        Samples; for precomputed kernels :func:`~kernelweave.sample_ids`.
    y : array-like of shape (n,), optional
        Targets, for estimators that have any.
    n_bootstrap : int, default=100
        Number of replicates, 2 or more.
    level : float, default=0.95
        Share of the replicates inside an interval.
    threshold : float, default=0.0
        A kernel is selected where its weight is larger. Sparse regularizers set weights to exactly
        zero; for others, such as the lp ball, say what counts.
    sampling : {"bootstrap", "subsample"}, default="bootstrap"
        n rows drawn with replacement, or half of the rows without. With the same total loss both
        move the weights about as much (Buja and Stuetzle 2006), but half of the rows have half of
        it: the same C weighs less, and fewer kernels are selected. In a bootstrap a row drawn twice
        counts as one with twice the C; where a search shuffles its splits, such copies get on both
        sides and make its scores too good.
    stratify : bool, default=True
        For classifiers: draw from every class its own number of rows, so that no replicate loses
        a class.
    fit_params : dict, optional
        Arguments of `fit`, such as ``{"sample_weight": w}``; those with one entry for each row
        are drawn with the rows.
    n_jobs : int or None, default=None
        Replicates fitted at the same time, as in joblib. With more than one, each fit runs on one
        thread, in a process that takes seconds to start. The result does not depend on it.
    random_state : int, RandomState or None, default=None
        Draws the rows. The first replicates are the same whatever `n_bootstrap` is.
    verbose : bool, default=False
        Whether to show a progress bar.

    Returns
    -------
    Stability
        Weights, selection frequencies and intervals; `print`, `plot` or `to_frame` it.

    Warns
    -----
    ConvergenceWarning
        Once, with the number of fits that did not reach the tolerance.
    InterruptedFitWarning
        After Ctrl-C, when at least two replicates were done: the result has these.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from kernelweave import MKLRegressor, stability
    >>> from kernelweave.kernels import RBF
    >>> X, _ = load_wine(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> kernels = [RBF(width=1.0).on(j) for j in range(4)]
    >>> result = stability(MKLRegressor(kernels), X, X[:, 2], n_bootstrap=10, random_state=0)
    >>> result.frequency.argmax(), result.replicates.shape
    (np.int64(2), (10, 4))
    """
    _check(estimator, n_bootstrap, level, threshold, sampling, n_jobs)
    X = X.tocsr() if sparse.issparse(X) else X
    check_consistent_length(X, y)
    rows = Rows(X, y, dict(fit_params or {}))
    whole = _fit(clone(estimator), rows)
    if whole.interrupted:
        raise KeyboardInterrupt("interrupted before the first replicate")
    strata = find_strata(y if stratify and is_classifier(estimator) else None, rows.n)
    seed = int(check_random_state(random_state).randint(2**31))
    parallel = Parallel(n_jobs=n_jobs, return_as="generator")
    template = clone(estimator)
    if parallel.n_jobs != 1:
        # The cores are busy with other replicates.
        names = [name for name in template.get_params() if name.split("__")[-1] == "n_jobs"]
        template.set_params(**dict.fromkeys(names, 1))
    refit = partial(_refit, template, rows, strata, sampling, seed, whole.names, n_bootstrap)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        fits = parallel(delayed(refit)(b) for b in range(n_bootstrap))
        done = _collect(fits, n_bootstrap, f"{sampling} replicates" if verbose else "")
    notes = [_note(warning) for warning in heard] + [note for fit in done for note in fit.notes]
    _tell(n_bootstrap, whole, done, notes)
    return Stability(
        names=whole.names,
        weights=whole.weights,
        replicates=np.array([fit.weights for fit in done]),
        level=level,
        threshold=threshold,
        sampling=sampling,
        matched_by="position" if any(f.matched_by == "position" for f in done) else "name",
        n_unconverged=sum(not fit.converged for fit in done),
        title=whole.title,
    )


def _check(
    estimator: Any, n_bootstrap: Any, level: Any, threshold: Any, sampling: Any, n_jobs: Any
) -> None:
    is_class = isinstance(estimator, type)
    if is_class or not hasattr(estimator, "fit") or not hasattr(estimator, "get_params"):
        got = f"the class {estimator.__name__}" if is_class else type(estimator).__name__
        raise InvalidInputError(
            "stability refits an MKL estimator, or a pipeline or search that ends in one; got "
            f"{got}."
        )
    whole_number("n_bootstrap", n_bootstrap, _FEWEST)
    check_level(level)
    positive_number("threshold", threshold, allow_zero=True)
    if sampling not in ("bootstrap", "subsample"):
        raise unknown_name("sampling", sampling, ("bootstrap", "subsample"))
    if not (n_jobs is None or (isinstance(n_jobs, Integral) and n_jobs != 0)):
        raise InvalidInputError(f"n_jobs must be None or an integer other than 0; got {n_jobs!r}.")


class _Fit(NamedTuple):
    """What is left of a fit once it is done, as it travels between processes."""

    title: str
    names: Sequence[str]
    weights: Array
    converged: bool
    notes: list[Note]
    matched_by: str = "name"

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the fit early; the solvers' loop turns it into a warning."""
        return any(issubclass(kind, InterruptedFitWarning) for kind, _ in self.notes)


def _fit(model: Any, rows: Rows) -> _Fit:
    # Recording is for the whole process: threads leave it to the one that started them.
    alone = threading.current_thread() is threading.main_thread()
    with warnings.catch_warnings(record=True) if alone else nullcontext() as heard:
        if alone:
            warnings.simplefilter("always")
        model.fit(rows.X, rows.y, **rows.fit_params)
    try:
        found = find_estimator(model)
    except NotFittedError as error:
        raise InvalidInputError(
            f"{type(model).__name__} learns no kernel weights, so there is nothing to look at; "
            "stability takes an MKL estimator, or a pipeline or search (with refit=True) that ends "
            "in one."
        ) from error
    weights = np.atleast_2d(np.asarray(found.weights_, dtype=float)).mean(axis=0)
    notes = [_note(warning) for warning in heard or ()]
    return _Fit(type(found).__name__, found.kernel_names_, weights, bool(found.converged_), notes)


def _refit(
    template: Any,
    rows: Rows,
    strata: list[Index],
    sampling: str,
    seed: int,
    names: Sequence[str],
    total: int,
    b: int,
) -> _Fit:
    # A stream for each replicate: neither the order of the fits nor their number matters.
    index = draw_rows(strata, sampling, np.random.default_rng([seed, b]))
    try:
        fit = _fit(clone(template), rows.take(index))
        weights, matched_by = align_weights(fit.weights, fit.names, names)
    except Exception as error:
        raise RuntimeError(
            f"replicate {b + 1} of {total} ({len(index)} rows, {len(np.unique(index))} of them "
            f"different) failed: {type(error).__name__}: {error}"
        ) from error
    return fit._replace(names=(), weights=weights, matched_by=matched_by)


def _collect(fits: Iterator[_Fit], total: int, bar: str) -> list[_Fit]:
    """Take the replicates as they come, with a bar of this name if it has one.

    After Ctrl-C return those that are done.
    """
    shown: Iterable[_Fit] = fits
    if bar:
        from rich.console import Console
        from rich.progress import track

        # On stderr: what is printed there does not get into a pipe.
        shown = track(fits, bar, total, console=Console(stderr=True))
    done: list[_Fit] = []
    try:
        for fit in shown:
            if fit.interrupted:
                raise KeyboardInterrupt
            done.append(fit)
    except KeyboardInterrupt:
        fits.close()  # type: ignore[attr-defined]
        if len(done) < _FEWEST:
            raise
    return done


def _note(warning: warnings.WarningMessage) -> Note:
    return warning.category, str(warning.message)


def _tell(n_bootstrap: int, whole: _Fit, done: list[_Fit], notes: list[Note]) -> None:
    """Say once what many fits had to say."""
    own = (ConvergenceWarning, InterruptedFitWarning)
    told = [note for note in dict.fromkeys(whole.notes) if not issubclass(note[0], own)]
    new = [note for note in notes if note not in whole.notes and not issubclass(note[0], own)]
    first = dict(reversed(new))
    for kind, count in Counter(kind for kind, _ in new).items():
        also = f" (and {count - 1} more like this in other replicates)" if count > 1 else ""
        told.append((kind, f"{first[kind]}{also}"))
    short = sum(not fit.converged for fit in done)
    if short or not whole.converged:
        too = "" if whole.converged else ", nor did the fit on all rows"
        text = (
            f"{short} of {len(done)} replicates did not reach the tolerance{too}, so a part of the "
            "spread is the solver's. Raise max_iter or tol of the estimator."
        )
        told.append((ConvergenceWarning, text))
    if len(done) < n_bootstrap:
        stopped = f"stopped from the keyboard after {len(done)} of {n_bootstrap} replicates"
        told.append((InterruptedFitWarning, f"{stopped}; the result has these."))
    for kind, text in told:
        warnings.warn(text, kind, stacklevel=3)


def align_weights(
    weights: Array, names: Sequence[str], reference: Sequence[str]
) -> tuple[Array, str]:
    """Return the weights of one fit in the order of the kernels of another, and how they match.

    Kernels match by name. One that is missing has weight zero: a family leaves out a kernel that
    would be constant on these rows. Where kernels show numbers that they learn from the rows, as
    ``rbf(gamma=0.0312)``, and nothing else differs, they match by position.
    """
    if names == reference:
        return weights, "name"
    places = {name: k for k, name in enumerate(reference)}
    unique = len(places) == len(reference) and len(set(names)) == len(names)
    if unique and all(name in places for name in names):
        aligned = np.zeros(len(reference))
        aligned[[places[name] for name in names]] = weights
        return aligned, "name"
    if len(names) == len(reference) and all(
        _LEARNT_NUMBER.sub("=", mine) == _LEARNT_NUMBER.sub("=", theirs)
        for mine, theirs in zip(names, reference, strict=True)
    ):
        return weights, "position"
    known = set(reference)
    strange = next((name for name in names if name not in known), None)
    what = "several have the same name" if strange is None else f"{strange!r} is not among them"
    raise InvalidInputError(
        f"the {len(names)} kernels cannot be matched with the {len(reference)} of the fit on all "
        f"rows: {what}. Give every kernel a name of its own that does not depend on the rows, such "
        "as RBF(width=1.0, name='narrow')."
    )
