"""What the Bayesian estimators share: from targets to a posterior, and to predictive moments."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from kernelweave.arrays import Index
from kernelweave.bayes import (
    BayesRecord,
    BayesStart,
    Labels,
    Outputs,
    Posterior,
    Settings,
    about,
    get_hyperparameters,
    infer,
    posterior_numbers,
    selected_kernels,
    sum_of_squares,
)
from kernelweave.combine import WeightedSum
from kernelweave.compiled.threads import between_blocks
from kernelweave.deadline import Deadline, TimeUp
from kernelweave.errors import InvalidInputError
from kernelweave.estimators.decisions import Parts
from kernelweave.estimators.kernel_estimator import KernelEstimator
from kernelweave.estimators.predictive import Predictive
from kernelweave.operators import KernelOperator
from kernelweave.problem import Array
from kernelweave.solvers.checkpoint import Saved
from kernelweave.validation import positive_number, require_array, require_kind

__all__ = ["BaseBayesianMKL"]

# Kernels in single precision and factors with a trace error of 1e-7, whatever `tol` is (a change of
# the bound says nothing about the kernels): they move the bound in its ninth digit.
_BANK_TOL = 1e-4


class BaseBayesianMKL(KernelEstimator):
    """Shared parts of :class:`BayesianMKLClassifier` and :class:`BayesianMKLRegressor`."""

    def _settings(self) -> Settings:
        priors = get_hyperparameters(self.sparsity, self.hyperparameters)
        return Settings(priors, positive_number("sigma_g", self.sigma_g))

    def _infer(
        self, X: Any, targets: Sequence[Labels | Outputs], settings: Settings
    ) -> list[Posterior]:
        """Find the posterior of each of the targets, and keep what users read."""
        limits, seed = self._limits(), self._seed()
        count = {"n_tasks": sum(len(t.y) for t in targets), "n_groups": len(targets)}
        source = self._source(n=targets[0].y.shape[1], **count)
        began = time.perf_counter()
        with self._threads():
            ends = Deadline.after(self.max_time, began)
            kernel_set, bank = self._build_kernels(X, _BANK_TOL, seed, ends)
            posteriors = []
            with self._session(limits, kernel_set, source, **count) as session:
                squares = None
                with suppress(TimeUp), between_blocks(ends.look()):
                    squares = sum_of_squares(bank)
                built = time.perf_counter() - began
                for group, target in enumerate(targets):
                    own = session.limits(limits, group, partial(about, target, settings))
                    start = self._start(source, group, bank)
                    deadline = None
                    if self.max_time is not None:
                        deadline = Deadline.after(self.max_time - built, time.perf_counter())
                    posteriors.append(
                        infer(bank, target, settings, own, seed, squares, start, deadline)
                    )
                    session.flush()
        self._kernel_set, self._combination = kernel_set, WeightedSum()
        self._store(posteriors)
        return posteriors

    def _start(self, source: Saved | None, group: int, bank: KernelOperator) -> BayesStart | None:
        """Where the fit of a group starts, if not from what is drawn."""
        if source is None:
            return None
        if isinstance(self.warm_start_from, BaseBayesianMKL):
            posterior = self.warm_start_from._predictive.posteriors[group]
            return BayesStart(posterior_numbers(posterior, bank))
        if group not in source.groups:
            return None
        return BayesStart(source.groups[group], source.where)

    def _store(self, posteriors: list[Posterior]) -> None:
        for found in posteriors:
            self._require_finite(found.e_mean, found.b_mean, found.lower_bound)
        self._store_names()
        weights = np.array([posterior.e_mean for posterior in posteriors])
        used = [np.arange(weights.shape[1])] * len(posteriors)
        if self.sparsity == "sparse":
            used = [selected_kernels(row) for row in weights]
            for row, own in zip(weights, used, strict=True):
                row[np.setdiff1d(np.arange(len(row)), own)] = 0.0
        std = np.array([posterior.e_std for posterior in posteriors])
        alone = len(posteriors) == 1
        self.weights_ = weights[0] if alone else weights
        self.weights_std_ = std[0] if alone else std
        self.intercept_ = np.concatenate([posterior.b_mean for posterior in posteriors])
        self.intercept_std_ = np.concatenate([posterior.b_std for posterior in posteriors])
        self.lower_bound_ = float(sum(posterior.lower_bound for posterior in posteriors))
        self.converged_ = all(posterior.converged for posterior in posteriors)
        self.history_ = [record for posterior in posteriors for record in posterior.history]
        self.n_iter_ = max(1, sum(posterior.history[-1].iteration for posterior in posteriors))
        self._prepare(posteriors, used)

    def _prepare(self, posteriors: list[Posterior], used: list[Index]) -> None:
        """Make ready to predict, from what was learnt."""
        weights = np.atleast_2d(self.weights_)
        self._predictive = Predictive(self._kernel_set, posteriors, weights, used)

    def _file_state(self) -> dict[str, Any]:
        state = super()._file_state()
        if "weights_" in state:
            state["_posteriors"] = self._predictive.posteriors
            state["_used"] = self._predictive.used
        return state

    def _after_load(self) -> None:
        if hasattr(self, "_predictive"):
            self._posteriors, self._used = self._predictive.posteriors, self._predictive.used
        super()._after_load()

    def _check_fitted(self) -> None:
        super()._check_fitted()
        m, n, n_tasks = self._kernel_set.m, self._kernel_set.n, len(self.intercept_)
        posteriors, used = self._posteriors, self._used
        require_kind("the posteriors", posteriors, list)
        rows = len(np.atleast_2d(self.weights_))
        if len(posteriors) != rows or len(used) != rows:
            raise InvalidInputError(f"there must be {rows} posteriors; got {len(posteriors)}.")
        for posterior, own in zip(posteriors, used, strict=True):
            require_kind("a posterior", posterior, Posterior)
            posterior.check(m, n, n_tasks // rows)
            require_array("kernels in use", own, (None,), whole=True, low=0, high=m - 1)
            if (np.diff(own) <= 0).any():
                raise InvalidInputError("kernels in use must be in order, each once.")
        require_array("weights_std_", self.weights_std_, np.shape(self.weights_), low=0.0)
        require_array("intercept_std_", self.intercept_std_, (n_tasks,), low=0.0)
        require_kind("lower_bound_", self.lower_bound_, Real)
        require_kind("converged_", self.converged_, (bool, np.bool_))
        self._check_history(BayesRecord)
        self._limits()

    def _come_back(self) -> None:
        super()._come_back()
        self._prepare(self.__dict__.pop("_posteriors"), self.__dict__.pop("_used"))

    # From a posterior to numbers

    def _values(self, X: Any) -> Array:
        """Means of the functions, shape (n_new, T)."""
        return self._predictive.mean(X)

    def _parts(self, X: Any) -> Parts:
        return self._predictive.parts(X)

    def _mean_and_std(self, X: Any) -> tuple[Array, Array]:
        """Means and standard deviations of the functions, each of shape (n_new, T)."""
        check_is_fitted(self)
        X = self._check_X(X, reset=False)
        with self._threads():
            mean, variance = self._predictive.mean_and_variance(X)
        self._require_finite(mean, variance)
        return mean, np.sqrt(variance)
