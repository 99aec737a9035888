"""What a Bayesian fit is taken up from: its numbers in a checkpoint, or another fit's posterior."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from kernelweave.operators.base import KernelOperator
from kernelweave.problem import Array
from kernelweave.solvers.bemkl.ensemble import Ensemble, Settings
from kernelweave.solvers.bemkl.posterior import BayesRecord, Posterior
from kernelweave.solvers.bemkl.targets import Targets
from kernelweave.solvers.checkpoint import digest_of, refused_by_name
from kernelweave.solvers.kept import ABOVE_ZERO, Kept, Numbers, check_kept, part_of

__all__ = ["BayesStart", "about", "posterior_numbers"]

# Kernels are those of before if their quadratic forms are: to what single precision leaves.
_SAME = 1e-4

_KEPT = {
    "a.mean": Kept(("T", "n")),
    "a.variance": Kept(("T", "n"), low=0.0),
    "a.precisions": Kept(("T", "n"), low=ABOVE_ZERO),
    "g.mean": Kept(("m", "T", "n")),
    "be.e_mean": Kept(("m",)),
    "be.e_variance": Kept(("m",), low=0.0),
    "be.b_mean": Kept(("T",)),
    "be.b_variance": Kept(("T",), low=0.0),
    "be.covariance_be": Kept(("T", "m")),
    "be.precision.matrix": Kept(("m", "m"), needed=False),
    "be.precision.base": Kept(("m",), low=ABOVE_ZERO, needed=False),
    "be.precision.plus": Kept(("plus", "m"), needed=False),
    "be.precision.minus": Kept(("minus", "m"), needed=False),
    "targets.location": Kept(("T", "n"), needed=False),
    "targets.shape": Kept(("T",), low=ABOVE_ZERO, needed=False),
    "targets.scale": Kept(("T",), low=ABOVE_ZERO, needed=False),
}
_QUAD_KEPT = {"quad": Kept(("m",))}
_RECORD_KEPT = {
    "iteration": Kept(low=0.0),
    "seconds": Kept(low=0.0),
    "lower_bound": Kept(),
    "change": Kept(infinite=True),
    "active_kernels": Kept(low=0.0),
}


def about(targets: Targets, settings: Settings) -> dict[str, Array]:
    """Say what is fitted: a digest to tell the same fit by."""
    margin = getattr(targets, "margin", None)
    digest = digest_of(type(targets).__name__, targets.y, margin, settings)
    return {"solver": np.asarray("bemkl"), "digest": np.asarray(digest)}


def posterior_numbers(posterior: Posterior, bank: KernelOperator) -> Numbers:
    """Return where a fit could have ended that found this posterior.

    It tells less than a checkpoint: not how the kernels' outputs and weights go together.
    """
    a = posterior.a_mean
    outputs = bank.apply(a)
    location = np.tensordot(posterior.e_mean, outputs, axes=1) + posterior.b_mean[:, None]
    spread, n_tasks = posterior.e_std**2, len(a)
    m = len(spread)
    return {
        "a.mean": a,
        "a.variance": posterior.sample_variance,
        "a.precisions": posterior.sample_precisions,
        "g.mean": outputs,
        "be.e_mean": posterior.e_mean,
        "be.e_variance": spread,
        "be.b_mean": posterior.b_mean,
        "be.b_variance": posterior.b_std**2,
        "be.covariance_be": np.zeros((n_tasks, m)),
        "be.precision.base": 1.0 / spread,
        "be.precision.plus": np.empty((0, m)),
        "be.precision.minus": np.empty((0, m)),
        "targets.location": location,
        # Of a gamma variable with that mean; its shape is far above one after any fit.
        "targets.shape": np.full(n_tasks, 0.5 * a.shape[1]),
        "targets.scale": 2.0 / (a.shape[1] * posterior.noise_variance),
    }


@dataclass(frozen=True)
class BayesStart:
    """Where a fit starts: the numbers of an ensemble, and how far the fit was that is taken up.

    Attributes
    ----------
    numbers : mapping of arrays
        See :meth:`Ensemble.numbers`.
    line : BayesRecord or None
        The last record of the same fit; None if this is another one.
    """

    numbers: Numbers
    line: BayesRecord | None = None
    where: str = "the start"

    @classmethod
    def at(
        cls, numbers: Numbers, targets: Targets, settings: Settings, where: str = "the start"
    ) -> BayesStart:
        """Return the start from a checkpoint; the same fit goes on, any other one starts there."""
        if str(numbers.get("digest")) != str(about(targets, settings)["digest"]):
            return cls(numbers, None, where)
        values = part_of(numbers, "record")
        with refused_by_name(where):
            check_kept(values, _RECORD_KEPT, {})
            kept: dict[str, Any] = {f.name: values[f.name].item() for f in fields(BayesRecord)}
            line = BayesRecord(**kept)
        return cls(numbers, line, where)

    def place(self, ensemble: Ensemble) -> BayesRecord | None:
        """Take the ensemble there; returns the line to go on from, if the fit is the same."""
        n_tasks, n = ensemble.samples.mean.shape
        with refused_by_name(self.where):
            sizes = {"T": n_tasks, "n": n, "m": ensemble.bank.m}
            check_kept(self.numbers, _KEPT, sizes)
            if self.line is not None:
                check_kept(self.numbers, _QUAD_KEPT, sizes)
            ensemble.restore(self.numbers)
        if self.line is None:
            return None
        known = self.numbers["quad"]
        found = ensemble.bank.quad(ensemble.samples.mean)
        same = np.allclose(found, known, rtol=_SAME, atol=_SAME * float(np.abs(known).max()))
        return self.line if same else None
