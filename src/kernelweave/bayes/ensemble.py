"""All factors of the approximate posterior, their updates in order, and the lower bound."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from kernelweave.arrays import Array
from kernelweave.bayes.factors import KernelOutputs, KernelWeights, SampleWeights
from kernelweave.bayes.matrices import FullMatrix, Matrix, ThinMatrix
from kernelweave.bayes.priors import Gamma, Hyperparameters
from kernelweave.bayes.sums import sum_of_squares, sum_products
from kernelweave.bayes.targets import Targets
from kernelweave.compiled.threads import map_blocks, thread_count, use_threads
from kernelweave.memory import require_bytes
from kernelweave.operators.base import KernelOperator
from kernelweave.solvers.kept import Numbers, part_of, prefixed

# Up to this size a matrix keeps one thread busy, but hardly two.
_SMALL = 512

# What checkpoints hold of q(a) and of q(b, e), beside its precision.
_OF_SAMPLES = ("mean", "variance", "precisions")
_OF_WEIGHTS = ("e_mean", "e_variance", "b_mean", "b_variance", "covariance_be")


@dataclass(frozen=True)
class Settings:
    """The priors, and the standard deviation of the outputs of single kernels around K_k a."""

    priors: Hyperparameters
    sigma_g: float = 1.0


class Ensemble:
    r"""The factors of :math:`q(\lambda)\, q(a)\, q(G)\, q(\gamma)\, q(\omega)\, q(b, e)\, q(f)`.

    For a regression the last one is :math:`q(\upsilon)`. With several tasks (classes, labels,
    outputs) all but e and omega are there once for each. Any update raises the lower bound.

    The `seed` draws the start: the outputs of single kernels, standard normal with the sign of the
    label. All else starts from one place: e = 1, b = 0, a = 0 (each with variance 1), the location
    of f at 0 or at a `guess`, from which those without a label take their first side, the noise at
    its prior. `squares` is sum_k K_k K_k, if it is at hand.
    """

    # Section 4.1, in the order of one iteration.
    UPDATES: ClassVar[tuple[str, ...]] = ("lambda", "a", "G", "gamma", "omega", "be", "targets")

    def __init__(
        self,
        bank: KernelOperator,
        targets: Targets,
        settings: Settings,
        seed: int,
        squares: Matrix | None = None,
        guess: Array | None = None,
    ) -> None:
        n_tasks, n = targets.y.shape
        m, priors = bank.m, settings.priors
        self.bank, self.sigma_g = bank, settings.sigma_g
        precision = settings.sigma_g**-2
        self.targets: Targets = targets.start(priors, guess)
        thin = KernelWeights.may_be_thin(m, n_tasks, n, self.targets.by_task)
        numbers = 6 * m * n_tasks * n + 3 * n**2 + (0 if thin else 6 * m**2)
        require_bytes(8.0 * numbers, f"the posterior of {m} kernels on {n} samples")
        self.lam = Gamma.start(priors.alpha_lambda, priors.beta_lambda, (n_tasks, n))
        self.gamma = Gamma.start(priors.alpha_gamma, priors.beta_gamma, (n_tasks,))
        self.omega = Gamma.start(priors.alpha_omega, priors.beta_omega, (m,))
        self.samples = SampleWeights.start(squares or sum_of_squares(bank), precision, n_tasks)
        sign = np.sign(targets.y)
        if guess is not None:
            sign = np.where(sign == 0, np.sign(guess), sign)
        drawn = np.abs(np.random.default_rng(seed).standard_normal((m, n_tasks, n)))
        self.outputs = KernelOutputs.start(drawn * sign, precision, thin)
        self.weights = KernelWeights.start(m, n_tasks, thin)
        self._products: Array = np.zeros((m, n_tasks, n))  # K_k E[a], a being zero at first.
        self._ahead: Ensemble | None = None
        self._side_by_side = n_tasks == 1 and max(m, n) <= _SMALL

    def iterate(self) -> None:
        """Update every factor once.

        The next q(lambda) q(a) needs nothing of what follows q(G). Where the matrices are too small
        for several threads to share one, it is found beside the rest of this iteration.
        """
        ahead = self._ahead or self._with_next_samples()
        self.lam, self.samples, self._products = ahead.lam, ahead.samples, ahead._products
        self.update("G")
        if not self._side_by_side or thread_count() == 1:
            self.update(*self.UPDATES[3:])
            return

        def work(start: int, stop: int) -> None:
            with use_threads(1):
                if start == 0:
                    self._ahead = self._with_next_samples()
                else:
                    self.update(*self.UPDATES[3:])

        map_blocks(work, 2, 1)

    def update(self, *names: str) -> None:
        """Update some factors, in this order; their names are in `UPDATES`."""
        for name in names:
            self._update(name)

    def _update(self, name: str) -> None:
        samples, weights, targets = self.samples, self.weights, self.targets
        f, noise = targets.mean, targets.precision
        if name in self.UPDATES[:3]:
            self._ahead = None
        if name == "lambda":
            self.lam = self.lam.updated(1, samples.mean**2 + samples.variance)
        elif name == "a":
            pull = samples.precision * sum_products(self.bank, self.outputs.mean)
            self.samples = samples.updated(self.lam.mean, pull)
            self._products = self.bank.apply(self.samples.mean)
        elif name == "G":
            self.outputs = self.outputs.updated(self._products, weights, f, noise)
        elif name == "gamma":
            self.gamma = self.gamma.updated(1, weights.b_mean**2 + weights.b_variance)
        elif name == "omega":
            self.omega = self.omega.updated(1, weights.e_mean**2 + weights.e_variance)
        elif name == "be":
            omega, gamma = self.omega.mean, self.gamma.mean
            self.weights = weights.updated(omega, gamma, self.outputs, f, noise)
        else:
            self.targets = targets.updated(*self._outlook())

    def _with_next_samples(self) -> Ensemble:
        """Return an ensemble with the next q(lambda) and q(a); those of this one stay."""
        ahead = copy(self)
        ahead.update("lambda", "a")
        return ahead

    def _outlook(self) -> tuple[Array, Array]:
        """E[e'g + b], and its variances summed over the samples."""
        weights, outputs = self.weights, self.outputs
        return weights.location(outputs), weights.spread(outputs, self.targets.by_task)

    def numbers(self) -> dict[str, Array]:
        """Return all that the next iteration starts from.

        The other factors follow from these: q(lambda), q(gamma), q(omega) and the covariances of
        q(G) are found anew before anybody asks for them.
        """
        return {
            **{f"a.{name}": getattr(self.samples, name) for name in _OF_SAMPLES},
            "g.mean": self.outputs.mean,
            **{f"be.{name}": getattr(self.weights, name) for name in _OF_WEIGHTS},
            **prefixed("be.precision", vars(self.weights.precision)),
            **prefixed("targets", self.targets.numbers()),
            # Sums of a_t'K_k a_t over the tasks: they tell whether the kernels are the same.
            "quad": np.einsum("ktn,tn->k", self._products, self.samples.mean),
        }

    def restore(self, numbers: Numbers) -> None:
        """Go to where :meth:`numbers` was taken; only an iteration tells the bound there."""
        parts = part_of(numbers, "be.precision")
        precision = FullMatrix(**parts) if "matrix" in parts else ThinMatrix(**parts)
        inverse, log_det = precision.inverse()
        of_weights: dict[str, Any] = {name: numbers[f"be.{name}"] for name in _OF_WEIGHTS}
        self.samples = replace(self.samples, **part_of(numbers, "a"))  # type: ignore[arg-type]
        self.outputs = replace(self.outputs, mean=numbers["g.mean"])
        self.weights = replace(
            self.weights, precision=precision, inverse=inverse, log_det=log_det, **of_weights
        )
        self.targets = self.targets.restored(part_of(numbers, "targets"))
        self._ahead = None

    def lower_bound(self) -> float:
        """Right side of equation 2 for the factors as they are."""
        return (
            self.lam.bound()
            + self.gamma.bound()
            + self.omega.bound()
            + self.samples.bound(self.lam)
            + self.outputs.bound(self._products, self.samples.traced)
            + self.weights.bound(self.omega, self.gamma)
            + self.targets.bound(*self._outlook())
        )
