"""What the Bayesian estimators share: from targets to a posterior, and to predictive moments."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from numbers import Real
from typing import Any

import numpy as np

from kernelweave.arrays import Array
from kernelweave.bayes import (
    BayesRecord,
    BayesStart,
    Hyperparameters,
    Labels,
    Outputs,
    Posterior,
    Settings,
    get_hyperparameters,
    infer,
    posterior_numbers,
    selected_kernels,
    sum_of_squares,
)
from kernelweave.cached import cached_property
from kernelweave.combine import WeightedSum
from kernelweave.compiled.threads import between_blocks
from kernelweave.deadline import Deadline, TimeUp
from kernelweave.errors import InvalidInputError
from kernelweave.estimators.base import (
    build_kernels,
    check_fits,
    keep_fits,
    read_source,
    time_left,
    with_checkpoints,
)
from kernelweave.estimators.decisions import Decisions
from kernelweave.estimators.kernel_estimator import KernelEstimator
from kernelweave.kernels.samples import as_samples
from kernelweave.operators import KernelOperator
from kernelweave.solvers.checkpoint import Saved
from kernelweave.validation import positive_number, require_array, require_kind

# Kernels in single precision and factors with a trace error of 1e-7, whatever `tol` is (a change of
# the bound says nothing about the kernels): they move the bound in its ninth digit.
_BANK_TOL = 1e-4
# Kernel values of new against training samples that are held at a time: 64 MB.
_BLOCK_ENTRIES = 2**23


@dataclass(eq=False, repr=False)
class BaseBayesianMKL(KernelEstimator):
    """Shared parts of :class:`BayesianMKLClassifier` and :class:`BayesianMKLRegressor`."""

    kernels: Any = "default"
    _: KW_ONLY
    sparsity: str = "dense"
    max_iter: int = 200
    tol: float = 5e-4
    normalize: Any = "diagonal"
    sigma_g: float = 1.0
    hyperparameters: Mapping[str, float] | Hyperparameters | None = None
    bank: Any = "auto"
    cache_mb: float = 1000
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0
    callbacks: Sequence[Any] = ()
    max_time: float | None = None
    warm_start_from: Any = None

    # Units of y in one unit of the fitted targets: a number for each output.
    _scale: Any = field(default=1.0, init=False)

    def _settings(self) -> Settings:
        priors = get_hyperparameters(self.sparsity, self.hyperparameters)
        return Settings(priors, positive_number("sigma_g", self.sigma_g))

    def _infer(
        self, X: Any, targets: Sequence[Labels | Outputs], settings: Settings
    ) -> tuple[KernelOperator, list[Posterior]]:
        """Return the kernels on the samples, and the posterior of each of the targets."""
        limits, seed = self._limits(), self._seed()
        count = {"n_tasks": sum(len(t.y) for t in targets), "n_groups": len(targets)}
        source = read_source(self, n=targets[0].y.shape[1], **count)
        began = time.perf_counter()
        with self._threads():
            ends = Deadline.after(self.max_time, began)
            kernel_set, bank = build_kernels(self, X, _BANK_TOL, seed, ends, stored=True)
            posteriors = []
            limits = with_checkpoints(self, limits, kernel_set, source, **count)
            squares = None
            with suppress(TimeUp), between_blocks(ends.look()):
                squares = sum_of_squares(bank)
            built = time.perf_counter() - began
            for group, target in enumerate(targets):
                own = replace(limits, group=group)
                start = self._start(source, group, bank)
                ends = time_left(self, built)
                posteriors.append(infer(bank, target, settings, own, seed, squares, start, ends))
        return kernel_set, posteriors

    def _start(self, source: Saved | None, group: int, bank: KernelOperator) -> BayesStart | None:
        """Where the fit of a group starts, if not from what is drawn."""
        if source is None:
            return None
        if isinstance(self.warm_start_from, BaseBayesianMKL):
            posterior = self.warm_start_from._posteriors[group]
            return BayesStart(posterior_numbers(posterior, bank))
        if group not in source.groups:
            return None
        return BayesStart(source.groups[group], source.where)

    def _store(self, kernel_set: KernelOperator, posteriors: list[Posterior]) -> None:
        """Keep what was learnt."""
        for found in posteriors:
            self._require_finite(found.e_mean, found.b_mean, found.lower_bound)
        weights = np.array([posterior.e_mean for posterior in posteriors])
        used = [np.arange(weights.shape[1])] * len(posteriors)
        if self.sparsity == "sparse":
            used = [selected_kernels(row) for row in weights]
            for row, own in zip(weights, used, strict=True):
                row[np.setdiff1d(np.arange(len(row)), own)] = 0.0
        std = np.array([posterior.e_std for posterior in posteriors])
        keep_fits(self, kernel_set, WeightedSum(), weights, posteriors)
        self.weights_std_ = std[0] if len(std) == 1 else std
        self.intercept_ = np.concatenate([posterior.b_mean for posterior in posteriors])
        self.intercept_std_ = np.concatenate([posterior.b_std for posterior in posteriors])
        self.lower_bound_ = float(sum(posterior.lower_bound for posterior in posteriors))
        self._posteriors, self._used = posteriors, used
        _ = self._decide  # Now: predicting must not change an estimator.

    @cached_property
    def _decide(self) -> Decisions:
        """The decision values in the units of y."""
        coef = np.concatenate([posterior.a_mean for posterior in self._posteriors])
        return Decisions(
            self._kernel_set,
            self._combination,
            np.atleast_2d(self.weights_),
            np.arange(self._kernel_set.n),
            coef * np.reshape(self._scale, (-1, 1)),
        )

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
        check_fits(self, BayesRecord)

    def _mean_and_std(self, X: Any) -> tuple[Array, Array]:
        """Means and standard deviations in the units of the fit, each of shape (n_new, T)."""
        new = as_samples(self._check_X(X, reset=False))
        # Kernels that no posterior uses are never evaluated.
        kernels, n = np.unique(np.concatenate(self._used)), self._kernel_set.n
        step = max(1, _BLOCK_ENTRIES // max(1, n * len(kernels)))
        means, variances = [], []
        with self._threads():
            for first in range(0, new.n, step):
                part = new.take(np.arange(first, min(first + step, new.n)))
                cross = np.empty((0, part.n, n))
                if len(kernels):
                    cross = self._kernel_set.against(part).block(kernels=kernels)
                mean, variance = [], []
                for posterior, used in zip(self._posteriors, self._used, strict=True):
                    everything = len(used) == len(kernels)
                    own = cross if everything else cross[np.searchsorted(kernels, used)]
                    mean.append(posterior.mean(own, used))
                    variance.append(posterior.variance(own, used))
                means.append(np.concatenate(mean))
                variances.append(np.concatenate(variance))
        self._require_finite(*means, *variances)
        return np.hstack(means).T, np.sqrt(np.hstack(variances).T)
