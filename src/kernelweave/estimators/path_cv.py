"""Choosing C by cross-validation along a path: what classification and regression share."""

from __future__ import annotations

import copy
import inspect
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from scipy.stats import rankdata
from sklearn import config_context, get_config
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing, column_or_1d

from kernelweave.arrays import Array
from kernelweave.compiled.threads import thread_count
from kernelweave.deadline import Deadline
from kernelweave.errors import InterruptedFitWarning, InvalidInputError
from kernelweave.estimators.base import BaseMKL, SetUp, Tasks
from kernelweave.estimators.targets import check_loss_weights, plain_labels, read_sample_weight
from kernelweave.solvers import Checkpoint, Limits, Result
from kernelweave.solvers.path import first_factor, walk_path
from kernelweave.solvers.solve import reason_for_gap
from kernelweave.validation import positive_number


@dataclass
class _Fit:
    """The fit for one C: a result for each group of tasks, and in a fold the score of them all."""

    results: list[Result] = field(default_factory=list)
    seconds: float = 0.0
    score: float = np.nan
    score_seconds: float = 0.0

    @property
    def gap(self) -> float:
        return max(result.certificate.gap for result in self.results)

    @property
    def n_kernels(self) -> int:
        """How many kernels have weight in any group."""
        return int(np.count_nonzero(sum(result.d for result in self.results)))


_Fits = list[_Fit]


@dataclass(eq=False, repr=False, kw_only=True)
class PathCV(BaseMKL):
    """Fit along a path of C on all samples and in every fold; keep the model of the best C.

    Comes before the estimator whose C it chooses in the list of bases; that is also `_plain`.
    """

    _plain: ClassVar[type[BaseMKL]]

    Cs: int | Sequence[float] = 20
    C_ratio: float = 1e3
    cv: Any = 5
    scoring: Any = None
    # No parameters here: C is chosen, and each fit starts from the one before.
    C: float = field(init=False)
    warm_start: bool = field(init=False)
    warm_start_from: Any = field(init=False)

    def fit(self, X: Any, y: Any, groups: Any = None, **fit_params: Any) -> PathCV:
        """Choose C, and learn the kernel weights and the function with it.

        Parameters
        ----------
        X : array, CSR matrix, pandas or polars frame of shape (n, n_features), or n sequences
            Training samples; for precomputed kernels a column of
            :func:`~kernelweave.sample_ids`.
        y : array-like of shape (n,)
            Class labels or targets.
        groups : array-like of shape (n,), optional
            Group of each sample, for splitters that keep groups together.
        **fit_params : dict
            ``sample_weight``, array-like of shape (n,): factor on C for each sample, and its
            weight in the scores where the scoring takes weights.
        """
        self._check_settings()
        scorer = check_scoring(self, scoring=self.scoring)
        tasks: Tasks = self._tasks(X, y, fit_params)
        target = plain_labels(y) if is_classifier(self) else column_or_1d(y)
        weight = read_sample_weight(fit_params, len(target))
        # Scores weigh the samples where weights were given and the scoring takes them.
        scored = self.score if self.scoring is None else getattr(scorer, "_score_func", scorer)
        takes_weight = "sample_weight" in inspect.signature(scored).parameters
        weighs = fit_params.get("sample_weight") is not None and takes_weight
        folds = self._folds(tasks.X, target, groups)
        with self._threads():
            made = self._set_up(tasks, 1.0, stored=True)
            if isinstance(self.Cs, Integral):
                # In increasing order, for all samples and so for all folds.
                low = min(first_factor(problem) for problem in made.problems)
                self.Cs_ = np.geomspace(low, low * self.C_ratio, int(self.Cs))
            else:
                self.Cs_ = np.sort(np.asarray(self.Cs, dtype=np.float64))
            for C in (self.Cs_[0], self.Cs_[-1]):
                check_loss_weights(float(C), tasks.weight)
            jobs = min(thread_count(), 1 + len(folds))
            stop = threading.Event()
            plain = self._plain_model(max(1, thread_count() // jobs))

            def bind(model: BaseMKL, train: Array) -> SetUp:
                given = {"sample_weight": weight[train]}
                part = model._tasks(_safe_indexing(tasks.X, train), target[train], given)
                deadline = Deadline.after(None, 0.0, stop.is_set)
                return model._set_up(part, 1.0, deadline, stored=True)

            def score(model: BaseMKL, test: Array) -> float:
                given = {"sample_weight": weight[test]} if weighs else {}
                return float(scorer(model, _safe_indexing(tasks.X, test), target[test], **given))

            titles = ["all samples"]
            calls = [partial(self._path, titles[0], plain, stop, lambda model: made)]
            for number, (train, test) in enumerate(folds, start=1):
                titles.append(f"fold {number} of {len(folds)}")
                own = partial(bind, train=train), partial(score, test=test)
                calls.append(partial(self._path, titles[-1], copy.copy(plain), stop, *own))
            found = dict(zip(titles, _run_all(calls, jobs, stop), strict=True))
        if any(len(fits) < len(self.Cs_) for fits in found.values()):
            found = self._keep_what_there_is(found)
        self._conclude(made, found)
        return self

    # Checks

    def _check_settings(self) -> None:
        positive_number("C_ratio", self.C_ratio)
        if not self.C_ratio > 1:
            raise InvalidInputError(
                f"C_ratio, the largest C over the smallest, must be above 1; got {self.C_ratio!r}."
            )
        try:
            values = np.asarray(self.Cs, dtype=np.float64)
        except (TypeError, ValueError):
            values = np.zeros(0)
        good = (
            values.ndim == 1 and values.size > 0 and bool(np.all((values > 0) & (values < np.inf)))
        )
        if isinstance(self.Cs, Integral) and not isinstance(self.Cs, bool):
            good = int(self.Cs) >= 2
        if not good:
            raise InvalidInputError(
                "Cs must be an integer >= 2 (how many) or a sequence of finite numbers > 0 "
                f"(which); got {self.Cs!r}."
            )
        if isinstance(self.cv, Integral) and (isinstance(self.cv, bool) or self.cv < 2):
            raise InvalidInputError(
                "cv must be an integer >= 2 (the number of folds), a splitter or an iterable of "
                f"(train, test) indices; got {self.cv!r}."
            )

    def _limits(self) -> Limits:
        limits = super()._limits()
        if any(isinstance(callback, Checkpoint) for callback in limits.callbacks):
            raise InvalidInputError(
                f"callbacks: a Checkpoint keeps one fit, and {type(self).__name__} makes many, "
                f"some at the same time. Give it to {self._plain.__name__} with the C that was "
                "chosen."
            )
        return limits

    def _folds(self, X: Any, y: Array, groups: Any) -> list[tuple[Array, Array]]:
        """Split the samples, and see that every training part has every class."""
        classify = is_classifier(self)
        try:
            splitter = check_cv(self.cv, y, classifier=classify)
            folds = [(np.asarray(a), np.asarray(b)) for a, b in splitter.split(X, y, groups)]
        except ValueError as error:
            counts = np.unique(y, return_counts=True)[1].min() if classify else None
            detail = f" The smallest class has n_samples = {counts}." if classify else ""
            raise InvalidInputError(
                f"cv={self.cv!r} cannot split these {len(y)} samples: {error}{detail}"
            ) from error
        if not folds:
            raise InvalidInputError(f"cv={self.cv!r} gave no folds; at least one is needed.")
        if classify:
            for number, (train, _) in enumerate(folds, start=1):
                missing = np.setdiff1d(y, y[train])
                if len(missing):
                    raise InvalidInputError(
                        f"the training part of fold {number} of {len(folds)} has no sample of "
                        f"class {missing[0]!r}, which has {np.sum(y == missing[0])} in all. Every "
                        "class needs samples in every training part: use fewer folds or a "
                        "stratified splitter."
                    )
        return folds

    # Paths

    def _plain_model(self, n_jobs: int) -> BaseMKL:
        own = ("Cs", "C_ratio", "cv", "scoring")
        params = {k: v for k, v in self.get_params(deep=False).items() if k not in own}
        # The fits themselves print one level later than the path.
        params |= {"n_jobs": n_jobs, "verbose": max(0, self.verbose - 2)}
        return self._plain(**params)

    def _walk(self, title: str, made: SetUp, stop: threading.Event) -> _Fits:
        """Solve for all C; ends early when asked to stop."""
        fits = [_Fit() for _ in self.Cs_]
        limits = replace(made.limits, verbose=max(0, self.verbose - 2), stop=stop.is_set)
        for problem, solver in zip(made.problems, made.solvers, strict=True):
            began = time.perf_counter()
            walk = walk_path(problem, self.Cs_, solver, limits)
            for C, fit, result in zip(self.Cs_, fits, walk, strict=False):
                if result.reason == "interrupted":
                    stop.set()
                if stop.is_set() and not result.converged:
                    break
                fit.results.append(result)
                fit.seconds += time.perf_counter() - began
                if self.verbose >= 2:
                    kernels = np.count_nonzero(result.d)
                    gap = result.certificate.gap
                    _say(f"{title}: C = {C:.3g}  gap {gap:.1e}  kernels {kernels}")
                if stop.is_set():
                    break
                began = time.perf_counter()
            if stop.is_set():
                break
        return [fit for fit in fits if len(fit.results) == len(made.problems)]

    def _path(
        self,
        title: str,
        model: BaseMKL,
        stop: threading.Event,
        bind: Callable[[BaseMKL], SetUp],
        score: Callable[[BaseMKL], float] | None = None,
    ) -> _Fits:
        """Fit for all C, and score each in a fold; without those for which there was no time."""
        if stop.is_set():
            return []
        with model._threads():
            try:
                made = bind(model)
            except InvalidInputError:
                if not stop.is_set():
                    raise
                # There was no time to centre the kernels.
                return []
            fits = self._walk(title, made, stop)
            for fit in fits:
                if score is None:
                    break
                began = time.perf_counter()
                model._store(made, fit.results)
                fit.score = score(model)
                fit.score_seconds = time.perf_counter() - began
        if self.verbose and fits:
            line = f"{title}: {len(fits)} values of C in {sum(fit.seconds for fit in fits):.2f} s"
            if score:
                best = int(np.argmax([fit.score for fit in fits]))
                line += f", best score {fits[best].score:.4g} at C = {self.Cs_[best]:.3g}"
            _say(line)
        return fits

    @property
    def scorer_(self) -> Any:
        """What the folds were scored by, as a scorer of scikit-learn."""
        return check_scoring(self, scoring=self.scoring)

    # Results

    def _keep_what_there_is(self, paths: dict[str, _Fits]) -> dict[str, _Fits]:
        """After an interruption, cut the paths to the C that were fitted and scored."""
        (name, whole), *folds = paths.items()
        fitted, scored = len(whole), [(title, fits) for title, fits in folds if fits]
        if not fitted:
            raise KeyboardInterrupt("the cross-validation was interrupted before its first fit.")
        if scored:
            fitted = min(fitted, *(len(fits) for _, fits in scored))
            how = f"the best of the first {fitted} that {len(scored)} of {len(folds)} folds scored"
        else:
            # At the start of the path little has been learnt: keep its end.
            self.Cs_, whole = self.Cs_[fitted - 1 :], whole[-1:]
            how, fitted = "the last one fitted, and no fold had scored any", 1
        self.Cs_ = self.Cs_[:fitted]
        warnings.warn(
            f"the cross-validation was interrupted; of the values of C the model has {how}.",
            InterruptedFitWarning,
            stacklevel=3,
        )
        return {title: fits[:fitted] for title, fits in [(name, whole), *scored]}

    def _conclude(self, made: SetUp, paths: dict[str, _Fits]) -> None:
        whole, *folds = paths.values()
        shown = folds or [whole]  # The latter without scores: interrupted before the first.
        self.scores_ = _each(shown, "score")
        self.cv_results_ = _table(self.Cs_, shown)
        mean = self.cv_results_["mean_test_score"]
        if folds and np.all(np.isnan(mean)):
            raise InvalidInputError(
                f"scoring={self.scoring!r} gave no number for any C: every mean over the folds is "
                "nan. Use another scoring, or folds that it can be computed on."
            )
        self.best_index_ = int(np.nanargmax(mean)) if folds else 0
        self.C_ = float(self.Cs_[self.best_index_])
        self.best_score_ = float(mean[self.best_index_])
        weights = np.array([[result.d for result in fit.results] for fit in whole])
        self.path_weights_ = weights[:, 0] if weights.shape[1] == 1 else weights
        self.path_gaps_ = _each([whole], "gap")[0]
        self._store(made, whole[self.best_index_].results)
        complaints = [
            f"{title}, C = {C:.3g}: {told}"
            for title, fits in paths.items()
            for C, fit in zip(self.Cs_, fits, strict=True)
            for result in fit.results
            if (told := reason_for_gap(result, made.limits))
        ]
        if complaints:
            more = f" So did {len(complaints) - 1} more fits, the last one: {complaints[-1]}"
            warnings.warn(
                f"a fit did not reach the tolerance. {complaints[0]}"
                + (more if len(complaints) > 1 else ""),
                ConvergenceWarning,
                stacklevel=3,
            )


def _run_all(calls: Sequence[Callable[[], _Fits]], jobs: int, stop: threading.Event) -> list[_Fits]:
    """Call each in a thread of `jobs`; after Ctrl-C with what they have by then."""
    with ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(_configured, get_config(), call) for call in calls]
        try:
            wait(running, return_when=FIRST_EXCEPTION)
        except KeyboardInterrupt:
            stop.set()
        if any(future.done() and future.exception() for future in running):
            stop.set()
        return [future.result() for future in running]


def _configured(config: dict[str, Any], call: Callable[[], _Fits]) -> _Fits:
    """Call in a thread under scikit-learn's settings of the caller's thread."""
    with config_context(**config):
        return call()


def _say(text: str) -> None:
    print(f"[kernelweave] {text}", flush=True)


def _each(paths: list[_Fits], name: str) -> Array:
    """That attribute of all fits, shape (len(paths), n_Cs)."""
    return np.array([[getattr(fit, name) for fit in fits] for fits in paths])


def _table(Cs: Array, paths: list[_Fits]) -> dict[str, Any]:
    """Columns of one entry for each C, named as those of ``GridSearchCV.cv_results_``."""
    scores = _each(paths, "score")
    mean = scores.mean(axis=0)
    # Scores without a bound (r2) may be so low that their squares overflow.
    size = np.fmax(np.abs(scores).max(axis=0), np.finfo(np.float64).tiny)
    with np.errstate(invalid="ignore"):  # Infinite ones have no standard deviation.
        spread = size * (scores / size).std(axis=0)
    seconds, score_seconds = _each(paths, "seconds"), _each(paths, "score_seconds")
    table: dict[str, Any] = {
        "mean_fit_time": seconds.mean(axis=0),
        "std_fit_time": seconds.std(axis=0),
        "mean_score_time": score_seconds.mean(axis=0),
        "std_score_time": score_seconds.std(axis=0),
        "param_C": Cs.copy(),
        "params": [{"C": float(C)} for C in Cs],
    }
    table |= {f"split{i}_test_score": row.copy() for i, row in enumerate(scores)}
    # As in GridSearchCV: equal scores share the best rank, and nan comes last.
    ranked = rankdata(-np.where(np.isnan(mean), -np.inf, mean), method="min")
    return table | {
        "mean_test_score": mean,
        "std_test_score": spread,
        "rank_test_score": ranked.astype(np.int32),
        "max_gap": _each(paths, "gap").max(axis=0),
        "mean_n_kernels": _each(paths, "n_kernels").mean(axis=0),
    }
