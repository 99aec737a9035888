"""What the convex estimators share: from data to a certified fit."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cached_property, partial
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from kernelweave.arrays import Index
from kernelweave.combine import Combination, get_combination
from kernelweave.compiled.threads import between_blocks
from kernelweave.deadline import NEVER, Deadline, TimeUp
from kernelweave.errors import InvalidInputError
from kernelweave.estimators.decisions import Decisions
from kernelweave.estimators.kernel_estimator import KernelEstimator
from kernelweave.estimators.targets import RAW, TargetUnits, check_loss_weights
from kernelweave.losses.base import Loss
from kernelweave.memory import NO_CACHE
from kernelweave.operators import DistanceOperator, KernelOperator
from kernelweave.operators.auto import storage_dtype
from kernelweave.problem import Array, Problem
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
from kernelweave.solvers.checkpoint import Saved, about, result_numbers, start_at
from kernelweave.solvers.kept import Numbers
from kernelweave.validation import require_array, require_kind

__all__ = ["BaseMKL", "SetUp", "Tasks"]


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
    combination: Combination
    problems: list[Problem]
    solvers: list[Solver]
    limits: Limits
    units: TargetUnits


class BaseMKL(KernelEstimator):
    """Shared parts of :class:`MKLClassifier`, :class:`MKLRegressor` and :class:`MKLOneClass`."""

    # `fit` takes sample_weight among its keywords (see there), so routing has to be told.
    __metadata_request__fit = {"sample_weight": None}  # noqa: RUF012

    # From data to a fit

    def _fit_tasks(self, tasks: Tasks, C: float = 1.0) -> None:
        """Fit the tasks of each group together, under one set of weights for the group."""
        count = {"n_tasks": len(tasks.y), "n_groups": len(tasks.groups)}
        source = self._source(n=tasks.y.shape[1], **count)
        began = time.perf_counter()
        results = []
        with self._threads():
            made = self._set_up(tasks, C, Deadline.after(self._limits().max_time, began))
            built = time.perf_counter() - began
            with self._session(made.limits, made.kernel_set, source, **count) as session:
                starts = self._starts(made, tasks, source)
                parts = zip(made.problems, made.solvers, starts, strict=True)
                for group, (problem, solver, start) in enumerate(parts):
                    limits = session.limits(made.limits, group, partial(about, problem, solver))
                    deadline = self._time_left(built)
                    if deadline is not None:
                        problem = replace(problem, deadline=deadline)
                    result = self._solve(problem, solver, limits, start)
                    if result.converged:
                        session.end(group, result.history[-1], result_numbers(result))
                    session.flush()
                    results.append(result)
        self._store(made, results)
        self._last = None
        if self.warm_start:
            # Without a digest it is another fit than any, which takes the point and no more.
            self._last = {
                g: {**result_numbers(result), "C": problem.C}
                for g, (result, problem) in enumerate(zip(results, made.problems, strict=True))
            }

    def _starts(self, made: SetUp, tasks: Tasks, source: Saved | None) -> list[Point | None]:
        """Where each fit starts: with `warm_start` at the last solution, if it is of this shape.

        Else where the fit was that goes on with `warm_start_from`.
        """
        last: dict[int, Numbers] = getattr(self, "_last", None) or {}
        shapes = [(problem.y.shape, problem.m) for problem in made.problems]
        alike = [(known["alpha"].shape, len(known["d"])) for known in last.values()] == shapes
        if self.warm_start and alike and any(known["d"].any() for known in last.values()):
            groups, where = last, "the last fit"
        elif source is None:
            return [None] * len(shapes)
        else:
            groups, where = dict(source.groups), source.where
            if isinstance(self.warm_start_from, BaseMKL):
                groups = self.warm_start_from._as_numbers(tasks)
        parts = enumerate(zip(made.problems, made.solvers, strict=True))
        return [start_at(groups[g], *part, where) if g in groups else None for g, part in parts]

    @property
    def _units(self) -> TargetUnits:
        """The user's units of the fitted targets; only a regressor has any."""
        return RAW

    def _as_numbers(self, tasks: Tasks) -> dict[int, Numbers]:
        """Return this fit as what another one, of `tasks`, can start from, without a digest."""
        # In the units of what was solved: those of the user may be others in the new fit.
        units = self._units
        alpha = np.zeros(tasks.y.shape)
        alpha[:, self.support_] = self.dual_coef_ / units.scale
        intercept = units.fitted(self.intercept_)
        C = getattr(self, "C_", getattr(self, "C", 1.0))
        return {
            g: {
                "d": weights,
                "alpha": alpha[own],
                "intercept": intercept[own],
                "C": C * tasks.weight[own],
            }
            for g, (weights, own) in enumerate(
                zip(np.atleast_2d(self.weights_), tasks.groups, strict=True)
            )
        }

    def _set_up(self, tasks: Tasks, C: float, deadline: Deadline = NEVER) -> SetUp:
        """Check the settings, bind the kernels, in time, and put the problems together."""
        limits = self._limits()
        regularizer = get_regularizer(self.regularizer)
        combination = get_combination(self.combination)
        check_solver(self.solver)
        check_loss_weights(C, tasks.weight)
        if combination.base == "distances":
            kernel_set, bank = self._build_distances(tasks.X, combination, deadline)
        else:
            kernel_set, bank = self._build_kernels(tasks.X, self.tol, self._seed(), deadline)
        problems = [
            Problem(bank, tasks.y[g], C * tasks.weight[g], tasks.loss, regularizer, combination)
            for g in tasks.groups
        ]
        solvers = [get_solver(self.solver, problem) for problem in problems]
        return SetUp(kernel_set, combination, problems, solvers, limits, tasks.units)

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
        self._keep_fits(made.kernel_set, made.combination, weights, results)
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
        self._check_fits(Record)

    @property
    def required_columns_(self) -> dict[str, Array]:
        """Sample ids of the support vectors, for each precomputed kernel of non-zero weight.

        Prediction reads only these columns of a precomputed matrix.
        """
        check_is_fitted(self)
        used = np.flatnonzero(np.atleast_2d(self.weights_).any(axis=0))
        return self._kernel_set.sample_ids_of(self.support_, used)
