"""From data to a fit: what the convex estimators share, and below it what all fits do."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from kernelweave.arrays import Array, Index
from kernelweave.cached import cached_property
from kernelweave.combine import Combination, get_combination
from kernelweave.compiled.threads import between_blocks
from kernelweave.deadline import NEVER, Deadline, TimeUp
from kernelweave.errors import InvalidInputError
from kernelweave.estimators.decisions import Decisions
from kernelweave.estimators.kernel_estimator import KernelEstimator
from kernelweave.estimators.targets import RAW, TargetUnits, check_loss_weights
from kernelweave.losses import Loss, get_loss
from kernelweave.memory import NO_CACHE
from kernelweave.operators import (
    ComputedOperator,
    DistanceOperator,
    KernelOperator,
    StackedOperator,
    bind_kernels,
)
from kernelweave.operators.auto import build_bank, storage_dtype
from kernelweave.problem import Problem
from kernelweave.regularizers import get_regularizer
from kernelweave.solvers import (
    Limits,
    Point,
    Record,
    Result,
    Solver,
    check_solver,
    get_solver,
    solve,
)
from kernelweave.solvers.checkpoint import (
    Header,
    Saved,
    names_digest,
    neighbour_start,
    read,
    start_at,
)
from kernelweave.validation import require_array, require_kind


class Tasks(NamedTuple):
    """What is to be learnt: checked samples, and for each task targets and loss weights.

    `y` and `weight`, the loss weights for C = 1, have a row for each task. `groups` are the tasks
    that share kernel weights.
    """

    X: Any
    y: Array
    weight: Array
    loss: Loss
    groups: list[Index]
    units: TargetUnits = RAW


class SetUp(NamedTuple):
    """Kernels bound to samples, and one problem with its solver for each group of tasks.

    `units` are the user's units of the problems' targets.
    """

    kernel_set: KernelOperator
    problems: list[Problem]
    solvers: list[Solver]
    limits: Limits
    units: TargetUnits


# What a fit of a group of tasks found: d, alpha and b, for loss weights C.
_Solution = tuple[Array, Array, Array, Array]


@dataclass(eq=False, repr=False)
class BaseMKL(KernelEstimator):
    """Shared parts of :class:`MKLClassifier`, :class:`MKLRegressor` and :class:`MKLOneClass`."""

    kernels: Any = "default"
    _: KW_ONLY
    regularizer: Any = "simplex"
    solver: Any = "auto"
    normalize: Any = "trace"
    tol: float = 1e-3
    max_iter: int = 1000
    bank: Any = "auto"
    cache_mb: float = 1000
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0
    callbacks: Sequence[Any] = ()
    max_time: float | None = None
    warm_start: bool = False
    warm_start_from: Any = None

    # `fit` takes sample_weight among its keywords (see there), so routing has to be told.
    __metadata_request__fit = {"sample_weight": None}  # noqa: RUF012

    # From data to a fit

    def _fit_tasks(self, tasks: Tasks, C: float = 1.0) -> None:
        """Fit the tasks of each group together, under one set of weights for the group."""
        count = {"n_tasks": len(tasks.y), "n_groups": len(tasks.groups)}
        source = read_source(self, n=tasks.y.shape[1], **count)
        began = time.perf_counter()
        results = []
        with self._threads():
            made = self._set_up(tasks, C, Deadline.after(self._limits().max_time, began))
            built = time.perf_counter() - began
            limits = with_checkpoints(self, made.limits, made.kernel_set, source, **count)
            starts = self._starts(made, tasks, source)
            parts = zip(made.problems, made.solvers, starts, strict=True)
            for group, (problem, solver, start) in enumerate(parts):
                problem = replace(problem, deadline=time_left(self, built))
                result = self._solve(problem, solver, replace(limits, group=group), start)
                results.append(result)
        self._store(made, results)
        self._solutions = None
        if self.warm_start:
            pairs = zip(results, made.problems, strict=True)
            self._solutions = [(r.d, r.alpha, r.intercept, p.C) for r, p in pairs]

    def _starts(self, made: SetUp, tasks: Tasks, source: Saved | None) -> list[Point | None]:
        """Where each fit starts: with `warm_start` at the last solution, if it is of this shape.

        Else where the fit was that goes on with `warm_start_from`.
        """
        problems = made.problems
        last: list[_Solution] = getattr(self, "_solutions", None) or []
        shapes = [(problem.m, *problem.y.shape) for problem in problems]
        alike = [(len(d), *alpha.shape) for d, alpha, _, _ in last] == shapes
        if self.warm_start and alike and any(d.any() for d, *_ in last):
            solutions = last
        elif isinstance(self.warm_start_from, BaseMKL):
            solutions = self.warm_start_from._as_solutions(tasks)
        else:
            groups = {} if source is None else source.groups
            where = "" if source is None else source.where
            parts = enumerate(zip(problems, made.solvers, strict=True))
            return [start_at(groups[g], *part, where) if g in groups else None for g, part in parts]
        pairs = zip(problems, solutions, strict=True)
        return [neighbour_start(Point.start(d, a, b), p.C, C) for p, (d, a, b, C) in pairs]

    def _as_solutions(self, tasks: Tasks) -> list[_Solution]:
        """Return this fit as what another one, of `tasks`, can start from."""
        # In the units of what was solved: those of the user may be others in the new fit.
        units = RAW
        if hasattr(self, "target_scale_"):
            units = TargetUnits(self.target_shift_, self.target_scale_)
        alpha = np.zeros(tasks.y.shape)
        alpha[:, self.support_] = self.dual_coef_ / units.scale
        b = units.fitted(self.intercept_)
        C = getattr(self, "C_", getattr(self, "C", 1.0)) * tasks.weight
        groups = zip(np.atleast_2d(self.weights_), tasks.groups, strict=True)
        return [(d, alpha[own], b[own], C[own]) for d, own in groups]

    def _checked_loss(self, task: str, names: str, **params: Any) -> Loss:
        """Return the loss, one of the task; `names` are those that are."""
        loss = get_loss(self.loss, **params)
        if loss.task != task:
            kind = loss.task.replace("_", "-")
            raise InvalidInputError(
                f"loss={self.loss!r} is for {kind}; for {task} there are {names}."
            )
        return loss

    def _set_up(
        self, tasks: Tasks, C: float, deadline: Deadline = NEVER, stored: bool = False
    ) -> SetUp:
        """Check the settings, bind the kernels, in time, and put the problems together.

        `stored` is for problems that are solved many times, see `build_bank`.
        """
        limits = self._limits()
        regularizer = get_regularizer(self.regularizer)
        combination = get_combination(self.combination)
        check_solver(self.solver)
        check_loss_weights(C, tasks.weight)
        if combination.base == "distances":
            kernel_set, bank = self._build_distances(tasks.X, combination, deadline)
        else:
            seed = self._seed()
            kernel_set, bank = build_kernels(self, tasks.X, self.tol, seed, deadline, stored)
        problems = [
            Problem(bank, tasks.y[g], C * tasks.weight[g], tasks.loss, regularizer, combination)
            for g in tasks.groups
        ]
        solvers = [get_solver(self.solver, problem) for problem in problems]
        return SetUp(kernel_set, problems, solvers, limits, tasks.units)

    def _solve(
        self, problem: Problem, solver: Solver, limits: Limits, start: Point | None
    ) -> Result:
        return solve(problem, solver, limits, start)

    def _build_distances(
        self, X: Any, combination: Combination, deadline: Deadline
    ) -> tuple[KernelOperator, KernelOperator]:
        if self.bank not in ("auto", "lazy"):
            raise InvalidInputError(
                f"combination={combination.name!r} is computed from distances, which are kept in "
                f"their own way: bank must be 'auto' or 'lazy'; got {self.bank!r}."
            )
        distances = DistanceOperator.build(self.kernels, X, normalize=self.normalize)
        dtype = storage_dtype(self.tol)
        try:
            with between_blocks(deadline.look(graces=0)):
                bank = distances.keep(self.cache_mb, dtype)
        except TimeUp:
            # Nothing is kept, so that there is nothing to build.
            bank = distances.keep(NO_CACHE, dtype)
        if self.bank == "lazy":
            bank.matrix_limit = KernelOperator.matrix_limit
        return distances, bank

    def _store(self, made: SetUp, results: list[Result]) -> None:
        """Keep what was learnt, in the user's units."""
        for result in results:
            found = result.certificate
            self._require_finite(result.d, result.alpha, result.intercept, found.primal, found.gap)
        weights = np.array([result.d for result in results])
        keep_fits(self, made.kernel_set, made.problems[0].combination, weights, results)
        alpha = np.concatenate([result.alpha for result in results])
        self.support_ = np.flatnonzero(alpha.any(axis=0))
        self.dual_coef_ = made.units.scale * alpha[:, self.support_]
        intercept = np.concatenate([result.intercept for result in results])
        self.intercept_ = made.units.predictions(intercept)
        self.objective_ = float(sum(result.certificate.primal for result in results))
        self.dual_objective_ = float(sum(result.certificate.dual for result in results))
        self.objective_floor_ = float(sum(result.certificate.floor for result in results))
        self.gap_ = float(max(result.certificate.gap for result in results))
        self.gap_kind_ = results[0].certificate.kind
        _ = self._decide  # Now: predicting must not change an estimator.

    @cached_property
    def _decide(self) -> Decisions:
        weights = np.atleast_2d(self.weights_)
        return Decisions(
            self._kernel_set, self._combination, weights, self.support_, self.dual_coef_
        )

    def _check_fitted(self) -> None:
        super()._check_fitted()
        distances = isinstance(self._kernel_set, DistanceOperator)
        if distances != (self._combination.base == "distances"):
            raise InvalidInputError(f"{self._combination!r} is one of other kernels than these.")
        n = self._kernel_set.n
        require_array("weights_", np.asarray(self.weights_), np.shape(self.weights_), low=0.0)
        require_array("support_", self.support_, (None,), whole=True, low=0, high=n - 1)
        if len(np.unique(self.support_)) < len(self.support_):
            raise InvalidInputError("support_ must name each sample once.")
        require_array("dual_coef_", self.dual_coef_, (len(self.intercept_), len(self.support_)))
        for name in ("objective_", "dual_objective_", "gap_"):
            require_kind(name, getattr(self, name), Real)
        # Files of the first version do not have it.
        require_kind("objective_floor_", getattr(self, "objective_floor_", 0.0), Real)
        require_kind("gap_kind_", self.gap_kind_, str)
        check_fits(self, Record)

    @property
    def required_columns_(self) -> dict[str, Array]:
        """Sample ids of the support vectors, for each precomputed kernel of non-zero weight.

        Prediction reads only these columns of a precomputed matrix.
        """
        check_is_fitted(self)
        used = np.flatnonzero(np.atleast_2d(self.weights_).any(axis=0))
        return self._kernel_set.sample_ids_of(self.support_, used)


# What fits of all kinds do, around their solvers


def build_kernels(
    model: KernelEstimator,
    X: Any,
    tol: float,
    seed: int,
    deadline: Deadline,
    stored: bool = False,
) -> tuple[KernelOperator, KernelOperator]:
    """Bind the kernels of a model to samples, and put them into a bank made for `tol`.

    Where the deadline passes on the way, into one that has nothing to build.
    """
    kernels = bind_kernels(model.kernels, X, normalize=model.normalize)
    build = partial(
        build_bank,
        kernels=kernels,
        cache_mb=model.cache_mb,
        tol=tol,
        random_state=seed,
        stored=stored,
    )
    try:
        with between_blocks(deadline.look(graces=0)):
            return kernels, build(model.bank)
    except TimeUp:
        centred = "center" in kernels.normalization.names
    try:
        with between_blocks(deadline.look() if centred else None):
            return kernels, build("lazy")
    except TimeUp:
        raise InvalidInputError(
            f"max_time={model.max_time} s was reached while kernels were centred, and without "
            f"that there is no model. normalize={model.normalize!r} takes a pass over all kernels "
            "before the first step: raise max_time, or use normalize='trace'."
        ) from None


def time_left(model: KernelEstimator, built: float) -> Deadline:
    """When the fit of a group ends; building the kernels, which took that long, counts."""
    most = None if model.max_time is None else model.max_time - built
    return Deadline.after(most, time.perf_counter())


def read_source(model: KernelEstimator, **wanted: Any) -> Saved | None:
    """Read what `warm_start_from` names, and refuse what cannot be gone on with.

    `wanted` are entries of the header that are known before the kernels are. A fitted estimator has
    no numbers yet: what it has to say may depend on the kernels.
    """
    given, own = model.warm_start_from, _own_class(model)
    if given is None:
        return None
    if isinstance(given, str | os.PathLike):
        saved = read(given)
    elif not isinstance(given, own):
        what = f"a {type(given).__name__}" if isinstance(given, BaseEstimator) else repr(given)
        raise InvalidInputError(
            f"warm_start_from must be the path of a checkpoint, a fitted {own.__name__} or None; "
            f"got {what}."
        )
    elif not given.__sklearn_is_fitted__():
        raise InvalidInputError(
            f"warm_start_from: this {type(given).__name__} is not fitted. Fit it first, or give "
            "the path of a checkpoint or None."
        )
    else:
        kernels, n_groups = given._kernel_set, len(np.atleast_2d(given.weights_))
        header = _header(model, kernels, len(given.intercept_), n_groups)
        saved = Saved(f"the {type(given).__name__} given", header, {})
    saved.check(kind=own.__name__, **wanted)
    return saved


def with_checkpoints(
    model: KernelEstimator,
    limits: Limits,
    kernels: KernelOperator,
    source: Saved | None,
    n_tasks: int,
    n_groups: int,
) -> Limits:
    """Return the limits of a fit, with its checkpoints; raises if `source` had other kernels."""
    header = partial(_header, model, kernels, n_tasks, n_groups)
    if source is None:
        return limits.with_checkpoints(header)
    source.check(m=kernels.m, kernels=names_digest(kernels.names))
    return limits.with_checkpoints(header, source.groups)


def _header(model: KernelEstimator, kernels: KernelOperator, n_tasks: int, n_groups: int) -> Header:
    names = names_digest(kernels.names)
    return Header(_own_class(model).__name__, n_tasks, n_groups, kernels.n, kernels.m, names)


def _own_class(model: KernelEstimator) -> type[Any]:
    """The estimator of this library that a model is, or is derived from."""
    return next(c for c in type(model).__mro__ if c.__module__.startswith("kernelweave."))


def keep_fits(
    model: KernelEstimator,
    kernels: KernelOperator,
    combination: Combination,
    weights: Array,
    fits: Sequence[Any],
) -> None:
    """Keep what the fit of each group of tasks has learnt; `weights` has a row for each."""
    model._keep(kernels, combination)
    model.weights_ = weights[0] if len(weights) == 1 else weights
    model.converged_ = all(fit.converged for fit in fits)
    model.history_ = [record for fit in fits for record in fit.history]
    model.n_iter_ = max(1, sum(fit.history[-1].iteration for fit in fits))
    # The normalisation of the kernels that have weight, so that predicting only reads. A fit need
    # not have asked: the diagonal of a Gaussian is known without.
    parts: Any = [(kernels, np.arange(kernels.m))]
    if isinstance(kernels, StackedOperator):
        parts = zip(kernels.parts, kernels.members, strict=True)
    for part, members in parts:
        if isinstance(part, ComputedOperator):
            part.learn(np.flatnonzero(weights[:, members].any(axis=0)).tolist())


def check_fits(model: KernelEstimator, kind: type[Any]) -> None:
    """Raise unless what `keep_fits` left, with records of that kind, can have come from a fit."""
    model._limits()
    require_kind("converged_", model.converged_, (bool, np.bool_))
    require_kind("history_", model.history_, list)
    for line in model.history_:
        require_kind("a line of history_", line, kind)
    if not model.history_:
        raise InvalidInputError("history_ must have at least one line.")
