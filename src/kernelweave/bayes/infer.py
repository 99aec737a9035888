"""From kernels and targets to an approximate posterior: iterations until the bound stands still.

A fit starts from what a seed draws, from the numbers of a checkpoint, or from another posterior.
"""

from __future__ import annotations

import time
import warnings
from copy import copy
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from kernelweave.archive import digest_of
from kernelweave.arrays import Array
from kernelweave.bayes.ensemble import Ensemble, Settings
from kernelweave.bayes.matrices import Matrix, ThinMatrix
from kernelweave.bayes.posterior import BayesRecord, Posterior, selected_kernels
from kernelweave.bayes.targets import Labels, Targets
from kernelweave.compiled.threads import between_blocks, one_blas_thread
from kernelweave.deadline import Deadline, TimeUp
from kernelweave.errors import InterruptedFitWarning, InvalidInputError
from kernelweave.operators.base import KernelOperator, kernel_runs
from kernelweave.solvers.checkpoint import Header
from kernelweave.solvers.kept import (
    ABOVE_ZERO,
    Kept,
    Numbers,
    Progress,
    check_kept,
    refused_by_name,
)
from kernelweave.solvers.loop import Limits, Watch

# Iterations of the labelled samples alone. After 50 and after 250 the same share of the others was
# right in ten problems with 8 or 20 labels; after 10 it was less in one (0.67 in place of 0.85).
_FIRST_ITERATIONS = 50
# Numbers beyond float64 are reported in one sentence; see `_record`.
_QUIET: dict[str, Any] = {"over": "ignore", "divide": "ignore", "invalid": "ignore"}


@one_blas_thread()
def infer(
    bank: KernelOperator,
    targets: Targets,
    settings: Settings,
    limits: Limits,
    seed: int,
    squares: Matrix | None = None,
    start: BayesStart | None = None,
    deadline: Deadline | None = None,
) -> Posterior:
    """Fit BEMKL: raise the lower bound on the log evidence until it hardly changes.

    The end is an iteration that changes it by less than `limits.tol` for each target, or for a
    `tol` of zero by no more than float64 can resolve. (Relative to the bound itself, one number
    would mean different things: priors put constants into it.)
    Samples without a label start from what the others say of them. Warns when an iteration or time
    limit came first. Ctrl-C keeps the last whole iteration.

    Parameters
    ----------
    bank : KernelOperator
    targets : Labels or Outputs
        Of T tasks that share their kernel weights.
    settings : Settings
    limits : Limits
    seed : int
        Draws the start; see :class:`Ensemble`.
    squares : Matrix or None
        ``sum_of_squares(bank)``, for several fits on one bank.
    start : BayesStart or None
        Where to go on from, in place of what `seed` draws.
    deadline : Deadline or None
        When the fit has to end; by default `limits.max_time` from now. Where that is before the
        end of the first iteration, the posterior is that of a constant.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.operators import DenseOperator
    >>> from kernelweave.bayes import Hyperparameters, Labels, Settings
    >>> from kernelweave.solvers import Limits
    >>> x = np.linspace(-1, 1, 30)
    >>> bank = DenseOperator([np.outer(x, x), np.eye(30)])
    >>> labels = Labels(np.sign(x)[None])
    >>> fit = infer(bank, labels, Settings(Hyperparameters()), Limits(tol=1e-3), seed=0)
    >>> fit.converged, bool(fit.history[1].lower_bound < fit.lower_bound)
    (True, True)
    """
    line, reason = None, ""
    header = partial(Header, "infer", len(targets.y), 1, bank.n, bank.m, "")
    limits = limits.with_checkpoints(header)
    deadline = deadline or Deadline.after(limits.max_time, time.perf_counter())
    watch = Watch(limits, deadline, Progress(iteration=1))
    history = watch.history
    with limits.session(partial(about, targets, settings)):
        try:
            with between_blocks(deadline.look()):
                guess = None
                if isinstance(targets, Labels) and start is None:
                    guess = guess_unlabelled(bank, targets, settings, seed)
                ensemble = last = Ensemble(bank, targets, settings, seed, squares, guess)
                if start is not None:
                    line = start.place(ensemble, str(about(targets, settings)["digest"]))
            if line is not None:
                watch.since = Progress(line.iteration + 1, line.seconds)
                ended = _stands_still(line, targets, limits)
                if ended or line.iteration >= limits.max_iter:
                    # The fit that is taken up had ended.
                    history.append(line)
                    reason = "converged" if ended else "max_iter"
            while not reason:
                began_step = time.perf_counter()
                with between_blocks(deadline.look()), np.errstate(**_QUIET):
                    ensemble.iterate()
                    line = _record(ensemble, watch.iteration, watch.seconds, line)
                # No factor changes once it is there, so that a copy keeps those of now.
                last = copy(ensemble)
                watch.note(line, ensemble.numbers)
                # Half a second of what an iteration takes is within what `max_time` allows.
                ahead = max(0.0, time.perf_counter() - began_step - 0.5)
                still = _stands_still(line, targets, limits)
                reason = "converged" if still else watch.reason_to_stop(ahead)
        except TimeUp:
            # In the middle of an iteration; the last whole one counts.
            if not history and start is None:
                return _constant(bank, targets, settings, limits, seed)
            if not history:
                raise InvalidInputError(
                    f"max_time={limits.max_time} s is too short for one more iteration of the fit "
                    "that is taken up. Raise it."
                ) from None
            reason = "max_time"
        except np.linalg.LinAlgError as error:
            raise InvalidInputError(
                f"rounding left no precise posterior: sigma_g={settings.sigma_g:g} is too small "
                "for kernels of this size. Normalise the kernels or take a larger sigma_g."
            ) from error
        except KeyboardInterrupt:
            if not history:
                raise
            reason = "interrupted"
            warnings.warn(
                f"the fit was interrupted after {len(history)} iterations; keeping what was found "
                f"so far (lower bound {history[-1].lower_bound:.6g}).",
                InterruptedFitWarning,
                stacklevel=5,
            )
        if reason in ("max_iter", "max_time"):
            unit = " s" if reason == "max_time" else ""
            warnings.warn(
                f"the lower bound still changes by {history[-1].change:.2g} a sample and "
                f"iteration, above tol={limits.tol:g}: {reason}={getattr(limits, reason)}{unit} "
                "was reached; raise it or tol.",
                ConvergenceWarning,
                stacklevel=5,
            )
    return Posterior.of(last, history, reason)


def guess_unlabelled(bank: KernelOperator, labels: Labels, settings: Settings, seed: int) -> Array:
    """Means of the outputs without a label by a fit to the samples with one; zero elsewhere.

    From zero, where both sides of the margin are equally near, most of them could go to one side
    together and pull the others along.
    """
    guess = np.zeros(labels.y.shape)
    known = labels.y != 0
    if known.all():
        return guess
    # Tasks with labels for the same samples are fitted together.
    patterns, group = np.unique(known, axis=0, return_inverse=True)
    for g, pattern in enumerate(patterns):
        tasks, rows = np.flatnonzero(group.ravel() == g), np.flatnonzero(pattern)
        if not len(rows) or len(rows) == bank.n:
            continue
        some = Labels(labels.y[np.ix_(tasks, rows)], labels.margin)
        ensemble = Ensemble(bank.take(rows), some, settings, seed)
        for _ in range(_FIRST_ITERATIONS):
            ensemble.iterate()
        everywhere = np.zeros((len(tasks), bank.n))
        everywhere[:, rows] = ensemble.samples.mean
        weights = ensemble.weights
        found = np.tensordot(weights.e_mean, bank.apply(everywhere), axes=1)
        guess[tasks] = np.where(pattern, 0.0, found + weights.b_mean[:, None])
    return guess


def _constant(
    bank: KernelOperator, targets: Targets, settings: Settings, limits: Limits, seed: int
) -> Posterior:
    """Return the posterior where no iteration could end in time: a at its prior, f constant."""
    began = time.perf_counter()
    ensemble = Ensemble(bank, targets, settings, seed, ThinMatrix.of_rows(np.zeros((0, bank.n))))
    # There is no time to form the sum of squared kernels. As they have no negative eigenvalues, the
    # trace of a square is at most the square of the trace: the lower bound stays one.
    runs = kernel_runs(bank.m, bank.n)
    traces = np.concatenate([bank.diagonal(run).sum(axis=1, dtype=np.float64) for run in runs])
    ensemble.samples.traced[:] = settings.sigma_g**-2 * float(traces @ traces)
    with np.errstate(**_QUIET):
        ensemble.update(*Ensemble.UPDATES[2:])  # what follows q(a)
        line = _record(ensemble, 0, time.perf_counter() - began, None)
    warnings.warn(
        f"max_time={limits.max_time} s was reached before the end of the first iteration: the "
        "model is a constant, with the kernels unused. Raise it or take fewer samples: the time "
        "of an iteration grows with the cube of their number.",
        ConvergenceWarning,
        stacklevel=6,
    )
    return Posterior.of(ensemble, [line], "max_time")


def _record(
    ensemble: Ensemble, iteration: int, seconds: float, before: BayesRecord | None
) -> BayesRecord:
    """Return the line of an iteration, or raise if it ended in numbers beyond float64."""
    bound, e_mean = ensemble.lower_bound(), ensemble.weights.e_mean
    if not np.isfinite(bound) or not np.all(np.isfinite(e_mean)):
        raise InvalidInputError(
            f"the posterior cannot be computed in float64: its lower bound is {bound:g}. The "
            "kernel values, the targets or the priors are too large or too small; normalise the "
            "kernels (normalize='trace'), or scale the targets."
        )
    rise = np.inf if before is None else bound - before.lower_bound
    change = rise / ensemble.targets.y.size
    return BayesRecord(iteration, seconds, bound, change, len(selected_kernels(e_mean)))


def _stands_still(line: BayesRecord, targets: Targets, limits: Limits) -> bool:
    """Whether the change of the lower bound for each target is within the tolerance."""
    rounding = float(np.finfo(np.float64).eps) * abs(line.lower_bound) / targets.y.size
    return abs(line.change) <= limits.target(rounding)


# What a fit is taken up from

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
# The same fit needs these, too.
_RECORD_KEPT = {
    "quad": Kept(("m",)),
    "record.iteration": Kept(low=0.0),
    "record.seconds": Kept(low=0.0),
    "record.lower_bound": Kept(),
    "record.change": Kept(infinite=True),
    "record.active_kernels": Kept(low=0.0),
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
    spread, (n_tasks, n), none = posterior.e_std**2, a.shape, np.empty((0, bank.m))
    return {
        "a.mean": a,
        "a.variance": posterior.sample_variance,
        "a.precisions": posterior.sample_precisions,
        "g.mean": outputs,
        "be.e_mean": posterior.e_mean,
        "be.e_variance": spread,
        "be.b_mean": posterior.b_mean,
        "be.b_variance": posterior.b_std**2,
        "be.covariance_be": np.zeros((n_tasks, bank.m)),
        "be.precision.base": 1.0 / spread,
        "be.precision.plus": none,
        "be.precision.minus": none,
        "targets.location": np.tensordot(posterior.e_mean, outputs, axes=1)
        + posterior.b_mean[:, None],
        # Of a gamma variable with that mean; its shape is far above one after any fit.
        "targets.shape": np.full(n_tasks, 0.5 * n),
        "targets.scale": 2.0 / (n * posterior.noise_variance),
    }


@dataclass(frozen=True)
class BayesStart:
    """Where a fit starts, in place of what a seed draws.

    The numbers are those of a checkpoint or of :func:`posterior_numbers`, and `where` is what
    errors call the place they come from.
    """

    numbers: Numbers
    where: str = "the start"

    def place(self, ensemble: Ensemble, same: str) -> BayesRecord | None:
        """Take the ensemble there; returns the last record of the fit if it is to go on.

        That is if it fitted the `same`, by its digest, to the same kernels.
        """
        numbers, n_tasks = self.numbers, len(ensemble.samples.mean)
        sizes = {"T": n_tasks, "n": ensemble.bank.n, "m": ensemble.bank.m}
        goes_on = str(numbers.get("digest")) == same
        with refused_by_name(self.where):
            check_kept(numbers, _KEPT | _RECORD_KEPT if goes_on else _KEPT, sizes)
            ensemble.restore(numbers)
        if not goes_on:
            return None
        known, found = numbers["quad"], ensemble.bank.quad(ensemble.samples.mean)
        if not np.allclose(found, known, rtol=_SAME, atol=_SAME * float(np.abs(known).max())):
            return None
        return BayesRecord(*(numbers[f"record.{f.name}"].item() for f in fields(BayesRecord)))
