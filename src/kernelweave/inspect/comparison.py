"""All solvers on one problem: the same splits, the same kernels, one table."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from numbers import Real
from time import perf_counter
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit
from sklearn.utils.validation import check_consistent_length

from kernelweave.arrays import Index
from kernelweave.combine import get_combination
from kernelweave.errors import InterruptedFitWarning, InvalidInputError
from kernelweave.estimators.bayesian_classifier import BayesianMKLClassifier
from kernelweave.estimators.bayesian_regressor import BayesianMKLRegressor
from kernelweave.estimators.classifier import MKLClassifier
from kernelweave.estimators.nystrom import NystromMKLClassifier
from kernelweave.estimators.regressor import MKLRegressor
from kernelweave.inspect.comparison_table import Comparison, ComparisonRow, SolverFit
from kernelweave.inspect.ranking import find_estimator
from kernelweave.inspect.stability import Rows, find_strata
from kernelweave.inspect.words import listed
from kernelweave.losses import get_loss
from kernelweave.solvers.base import SOLVERS, Solver
from kernelweave.validation import positive_number, unknown_name, whole_number

OnProgress = Callable[[int, int, str], Any]

# All of them in the time of a coffee, the baseline included.
_SOLVERS = ("active-set", "silp", "spg", "spicy", "mwu", "bayes", "uniform")
# Before the clock starts, every solver fits so many samples for at most so many seconds: compiled
# code is then loaded.
_WARM_ROWS, _WARM_SECONDS = 60, 1.0
# Other models of the same kernels.
_MODELS = ("bayes", "nystrom")
# Their weights do not come from the problem, so its certificate is not about them.
_FIXED = ("align", "uniform")
# With more different whole numbers than these a target is taken for a quantity.
_MOST_CLASSES = 20
# What another model takes over from the estimator, where both have it.
_FOR_BAYES = ("kernels", "multi_class", "bank", "cache_mb", "n_jobs", "random_state", "max_time")
_FOR_NYSTROM = ("kernels", "C", "normalize", "class_weight", "n_jobs", "random_state")
# What all solvers share.
_SHARED = ("C", "loss", "epsilon", "target_scale", "regularizer", "tol")


def compare(
    X: Any,
    y: Any,
    solvers: Sequence[Any] = _SOLVERS,
    *,
    estimator: Any = None,
    test_size: float = 0.3,
    n_splits: int = 3,
    random_state: int = 0,
    time_limit: float | None = None,
    on_progress: OnProgress | None = None,
) -> Comparison:
    """Fit the same problem with several solvers on the same splits, and put them side by side.

    Kernels, C, loss, regularizer and tolerance are those of `estimator` for every solver. Splits
    are the outer loop and each begins with another solver, so that a slow spell of the machine
    does not hit one of them; before the first every solver has fitted a few samples, so that none
    pays for compiling.

    Parameters
    ----------
    X : array, CSR matrix, pandas or polars frame, or sequences
        Samples; for precomputed kernels a column of :func:`~kernelweave.sample_ids`.
    y : array-like of shape (n,)
        Classes or numbers.
    solvers : sequence of str or Solver, default=all but the variants
        Names as for :class:`~kernelweave.MKLClassifier`, "uniform" and "align" included, or solver
        objects. "bayes" is :class:`~kernelweave.BayesianMKLClassifier` (or `Regressor`) and
        "nystrom" is :class:`~kernelweave.NystromMKLClassifier`, each with the same kernels and
        otherwise its own settings.
    estimator : estimator or Pipeline, optional
        States the problem: an :class:`~kernelweave.MKLClassifier` or
        :class:`~kernelweave.MKLRegressor`, or a pipeline that ends in one. By default one of them
        as it is made, the classifier if y is text or has at most 20 different whole numbers.
    test_size : float or int, default=0.3
        Share of the samples that are held out, or their number if it is 1 or more. Classes keep
        their shares.
    n_splits : int, default=3
        How many times the samples are split at random.
    random_state : int, default=0
        Draws the splits.
    time_limit : float, optional
        Most seconds for a fit, checked between iterations; "nystrom" does not know it.
    on_progress : callable, optional
        Called as ``on_progress(done, total, text)`` before each fit and at the end.

    Returns
    -------
    Comparison
        `print` it, `plot` it, or take its numbers. A solver that does not take the problem has an
        error in its row instead of numbers. After Ctrl-C it has what was done by then.

    Warns
    -----
    InterruptedFitWarning
        After Ctrl-C, if at least one fit was done.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import compare
    >>> X, y = load_iris(return_X_y=True)
    >>> found = compare(X, y, ["silp", "spg", "uniform"], n_splits=2)
    >>> [row.solver for row in found.rows if row.score > 0.9]
    ['silp', 'spg', 'uniform']
    """
    contestants = line_up(solvers)
    template = default_estimator(y) if estimator is None else estimator
    _check_estimator(template)
    if time_limit is not None:
        positive_number("time_limit", time_limit)
    X = X.tocsr() if sparse.issparse(X) else X
    check_consistent_length(X, y)
    rows = Rows(X, y, {})
    classes = is_classifier(_last_step(template))
    splits = _split(rows, classes, test_size, n_splits, random_state)
    race = _Race(contestants, template, rows, splits, time_limit)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        interrupted = race.run(on_progress or (lambda done, total, text: None))
    errors = [one.error for one in contestants if one.error is not None]
    if race.done == 0 and len(contestants) > 1 and len(set(map(str, errors))) == 1:
        # What stops all solvers alike is about the data, not about a solver.
        raise errors[0]
    # Once for what many fits had to say.
    for (kind, text), times in Counter((w.category, str(w.message)) for w in heard).items():
        warnings.warn(f"{text} (in {times} fits)" if times > 1 else text, kind, stacklevel=2)
    if interrupted:
        text = (
            f"stopped from the keyboard after {race.done} of {len(contestants) * len(splits)} "
            "fits; the comparison has these."
        )
        warnings.warn(text, InterruptedFitWarning, stacklevel=2)
    return Comparison(
        rows=[one.row(len(splits), interrupted) for one in contestants],
        metric="accuracy" if classes else "R2",
        n_splits=len(splits),
        n_train=len(splits[0][0]),
        n_test=len(splits[0][1]),
        n_kernels=race.n_kernels,
        settings={
            name.replace("tol", "tolerance"): value if isinstance(value, str) else f"{value!r}"
            for name in _SHARED
            if (value := getattr(_last_step(template), name, None)) is not None
        },
        notes=race.notes(),
        interrupted=interrupted,
    )


def _check_estimator(template: Any) -> None:
    last = _last_step(template)
    known = hasattr(last, "get_params") and not isinstance(last, type)
    params = last.get_params(deep=False) if known else {}
    if not ({"kernels", "solver"} <= set(params) and (is_classifier(last) or is_regressor(last))):
        is_class = isinstance(template, type)
        got = f"the class {template.__name__}" if is_class else type(template).__name__
        raise InvalidInputError(
            "compare takes an MKLClassifier or MKLRegressor, or a pipeline that ends in one; got "
            f"{got}."
        )


def _split(
    rows: Rows, classes: bool, test_size: Any, n_splits: Any, seed: int
) -> list[tuple[Index, Index]]:
    number = isinstance(test_size, Real) and not isinstance(test_size, bool)
    if not number or not 0 < test_size < rows.n:
        raise InvalidInputError(
            f"test_size must be a share between 0 and 1, or a number of samples below {rows.n}; "
            f"got {test_size!r}."
        )
    n_splits = whole_number("n_splits", n_splits)
    held_out = int(test_size) if test_size >= 1 else int(np.ceil(test_size * rows.n))
    if rows.n - held_out < 2:
        raise InvalidInputError(
            f"test_size={test_size!r} leaves {rows.n - held_out} of {rows.n} samples to learn from."
        )
    strata = find_strata(rows.y, rows.n) if classes else []
    fewest = min((len(own) for own in strata), default=0)
    # Every class needs a place on both sides.
    stratify = fewest >= 2 and len(strata) <= min(held_out, rows.n - held_out)
    splitter = StratifiedShuffleSplit if stratify else ShuffleSplit
    plan = splitter(n_splits, test_size=held_out, random_state=seed)
    y = rows.y if stratify else None
    return [(np.sort(train), np.sort(test)) for train, test in plan.split(np.zeros(rows.n), y)]


def _last_step(model: Any) -> Any:
    """The last step of a pipeline, and anything else as it is."""
    return model.steps[-1][1] if hasattr(model, "steps") else model


@dataclass
class Contestant:
    """One of the solvers: its label in tables, what was asked for, and what came of it so far."""

    label: str
    spec: Any
    fits: list[SolverFit] = field(default_factory=list)
    error: Exception | None = None

    @property
    def certified(self) -> bool:
        """Whether its gap is one to the optimum of the problem."""
        name = self.spec if isinstance(self.spec, str) else self.spec.name
        return name not in (*_MODELS, *_FIXED)

    def estimator(self, template: Any, max_time: float | None) -> Any:
        """Return an unfitted estimator of the problem that `template` states, with this solver."""
        model = clone(template)
        last = _last_step(model)
        if max_time is not None:
            last.set_params(max_time=max_time)
        if self.spec not in _MODELS:
            last.set_params(solver=self.spec)
            return model
        other = self._other_model(last)
        if last is model:
            return other
        model.steps[-1] = (model.steps[-1][0], other)
        return model

    def _other_model(self, last: Any) -> Any:
        combination = get_combination(last.combination).name
        if combination != "sum":
            raise InvalidInputError(
                f"{self.spec} adds kernels up; the combination is {combination!r}."
            )
        kind: Any = BayesianMKLClassifier if is_classifier(last) else BayesianMKLRegressor
        names: tuple[str, ...] = _FOR_BAYES
        if self.spec == "nystrom":
            if not is_classifier(last):
                raise InvalidInputError("nystrom is a classifier; the target is a quantity.")
            kind, names = NystromMKLClassifier, _FOR_NYSTROM
        given = last.get_params(deep=False)
        known = kind().get_params(deep=False)
        model = kind(**{name: given[name] for name in names if name in given and name in known})
        if self.spec == "nystrom" and get_loss(last.loss).name in ("hinge", "squared_hinge"):
            model.set_params(loss=get_loss(last.loss).name)
        return model

    def row(self, n_splits: int, interrupted: bool) -> ComparisonRow:
        """Return what there is to show of this solver."""
        error = None if self.error is None else _text(self.error)
        if error is None and len(self.fits) < n_splits and interrupted:
            error = f"stopped from the keyboard after {len(self.fits)} of {n_splits} splits"
        return ComparisonRow(self.label, tuple(self.fits), error)

    def remarks(self, last: Any, n_splits: int) -> list[str]:
        """Return what of the problem of `last` this solver does not share, and what it lacks."""
        notes = []
        if self.spec == "bayes" and getattr(last, "class_weight", None) is not None:
            notes.append(f"{self.label} has no class weights.")
        if self.spec == "nystrom" and get_loss(last.loss).name not in ("hinge", "squared_hinge"):
            notes.append(f"{self.label} takes the squared hinge loss instead of {last.loss!r}.")
        if self.error is not None:
            done = f"{len(self.fits)} of {n_splits} splits"
            notes.append(f"{self.label} has {done}: {_text(self.error)}")
        return notes


def line_up(solvers: Sequence[Any] | str | Solver) -> list[Contestant]:
    """Check the solvers asked for, and give each a label of its own."""
    asked = [solvers] if isinstance(solvers, str | Solver) else list(solvers)
    if not asked:
        raise InvalidInputError("solvers is empty; give at least one, such as 'silp'.")
    allowed = ["auto", *SOLVERS, *_MODELS]
    out: list[Contestant] = []
    for spec in asked:
        if not isinstance(spec, Solver) and spec not in allowed:
            raise unknown_name("solver", spec, allowed)
        label = str(spec)
        if isinstance(spec, Solver):
            # What differs from the defaults.
            fields = getattr(spec, "__dataclass_fields__", {})
            values = {name: getattr(spec, name) for name in fields}
            own = [f"{n}={v!r}" for n, v in values.items() if v != fields[n].default]
            label = f"{type(spec).__name__}({', '.join(own)})"
        if any(label == one.label for one in out):
            raise InvalidInputError(f"solver {label!r} is given twice; a comparison needs it once.")
        out.append(Contestant(label, spec))
    return out


def default_estimator(y: Any) -> MKLClassifier | MKLRegressor:
    """Return a classifier or a regressor, as the target looks.

    Text, truth values and up to 20 different whole numbers are classes.
    """
    values = np.asarray(y)
    if values.dtype.kind not in "iuf":
        return MKLClassifier()
    known = values[np.isfinite(values)]
    whole = np.array_equal(known, np.round(known))
    return MKLClassifier() if whole and len(np.unique(known)) <= _MOST_CLASSES else MKLRegressor()


@dataclass
class _Race:
    contestants: list[Contestant]
    template: Any
    data: Rows
    splits: list[tuple[Index, Index]]
    time_limit: float | None
    n_kernels: int | None = None
    kinds: set[str] = field(default_factory=set)

    @property
    def done(self) -> int:
        """How many fits there are."""
        return sum(len(one.fits) for one in self.contestants)

    def run(self, tell: OnProgress) -> bool:
        """Do all fits; returns whether Ctrl-C came first, and raises if nothing was done yet."""
        # Split by split, each begun by another solver.
        plan = [
            (split, self.contestants[(split + i) % len(self.contestants)])
            for split in range(len(self.splits))
            for i in range(len(self.contestants))
        ]
        try:
            tell(0, len(plan), "loading compiled code")
            self._warm_up()
            for done, (split, one) in enumerate(plan):
                tell(done, len(plan), f"{one.label}, split {split + 1} of {len(self.splits)}")
                if one.error is None:
                    self._fit(one, split)
            tell(len(plan), len(plan), "done")
        except KeyboardInterrupt:
            if self.done == 0:
                raise
            return True
        return False

    def _warm_up(self) -> None:
        few = self.data.take(self.splits[0][0])
        strata = find_strata(few.y if is_classifier(_last_step(self.template)) else None, few.n)
        size = max(2, _WARM_ROWS // len(strata))
        few = few.take(np.sort(np.concatenate([own[:size] for own in strata])))
        limit = min(_WARM_SECONDS, self.time_limit or np.inf)
        # Nobody wants to hear of these fits, nor have them in a checkpoint.
        quiet = clone(self.template)
        _last_step(quiet).set_params(callbacks=(), verbose=0)
        for one in self.contestants:
            # An error that is not due to the few samples comes again and is told then.
            with suppress(Exception), _heard():
                one.estimator(quiet, limit).fit(few.X, few.y).predict(few.X)

    def _fit(self, one: Contestant, split: int) -> None:
        train, test = (self.data.take(index) for index in self.splits[split])
        try:
            model = one.estimator(self.template, self.time_limit)
            with _heard() as heard:
                start = perf_counter()
                model.fit(train.X, train.y)
                fitted = perf_counter()
                predicted = model.predict(test.X)
                done = perf_counter()
            score = (accuracy_score if is_classifier(model) else r2_score)(test.y, predicted)
        except Exception as error:
            one.error = error
            return
        for warning in heard:
            if not issubclass(warning.category, ConvergenceWarning):
                warnings.warn(warning.message, warning.category, stacklevel=2)
        found = find_estimator(model)
        weights = np.atleast_2d(found.weights_)
        self.n_kernels = weights.shape[1]
        if one.certified:
            self.kinds.add(found.gap_kind_)
        # LIBLINEAR does not say whether it converged.
        unsaid = not hasattr(found, "converged_")
        one.fits.append(
            SolverFit(
                split=split,
                score=float(score),
                seconds=fitted - start,
                predict_seconds=done - fitted,
                gap=float(found.gap_) if one.certified else None,
                kernels=int(np.count_nonzero(weights.any(axis=0))),
                objective=float(found.objective_) if one.certified else None,
                converged=bool(found.n_iter_ < found.max_iter if unsaid else found.converged_),
            )
        )

    def notes(self) -> list[str]:
        """What a reader of the table has to know."""
        notes = []
        fitted = [one for one in self.contestants if one.fits]
        fixed = [one.label for one in fitted if not one.certified]
        if fixed:
            notes.append(
                f"no gap for {listed(fixed, len(fixed))}: the weights do not come from the MKL "
                "problem, so a gap would say nothing about its optimum."
            )
        if "projected_gradient" in self.kinds:
            notes.append("gap is the relative projected gradient: the problem is not convex.")
        last, count = _last_step(self.template), len(self.splits)
        return notes + [note for one in fitted for note in one.remarks(last, count)]


@contextmanager
def _heard() -> Iterator[list[warnings.WarningMessage]]:
    """Record warnings; Ctrl-C, which the solvers' loop turns into one, is raised again."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        yield heard
    if any(issubclass(warning.category, InterruptedFitWarning) for warning in heard):
        raise KeyboardInterrupt


def _text(error: Exception) -> str:
    """One line: what went wrong, with the kind of error where it is none of ours."""
    text = " ".join(str(error).split())
    ours = isinstance(error, InvalidInputError) or type(error).__module__.startswith("kernelweave")
    return text if ours and text else f"{type(error).__name__}: {text}"
