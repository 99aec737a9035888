"""From kernels and targets to an approximate posterior: iterations until the bound stands still."""

from __future__ import annotations

import time
import warnings
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from kernelweave.compiled.threads import between_blocks, one_blas_thread
from kernelweave.deadline import Deadline, TimeUp
from kernelweave.errors import InterruptedFitWarning, InvalidInputError
from kernelweave.operators.base import KernelOperator
from kernelweave.problem import Array
from kernelweave.solvers.bemkl.ensemble import Ensemble, Settings
from kernelweave.solvers.bemkl.posterior import BayesRecord, Posterior, selected_kernels
from kernelweave.solvers.bemkl.resume import BayesStart, about
from kernelweave.solvers.bemkl.squares import Squares
from kernelweave.solvers.bemkl.targets import Labels, Targets
from kernelweave.solvers.checkpoint import Header, Session
from kernelweave.solvers.kept import Progress
from kernelweave.solvers.loop import Limits, Watch

__all__ = ["guess_unlabelled", "infer"]

# Iterations of the labelled samples alone: enough for the sides of the others to settle.
_FIRST_ITERATIONS = 50
# Numbers beyond float64 are reported in one sentence; see `_check_finite`.
_QUIET: dict[str, Any] = {"over": "ignore", "divide": "ignore", "invalid": "ignore"}


@one_blas_thread()
def infer(
    bank: KernelOperator,
    targets: Targets,
    settings: Settings,
    limits: Limits,
    seed: int,
    squares: Squares | None = None,
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
        m kernels on n samples.
    targets : Labels or Outputs
        Of T tasks that share their kernel weights.
    settings : Settings
    limits : Limits
    seed : int
        Draws the start; see :class:`Ensemble`.
    squares : Squares or None
        ``Squares.of(bank)``, for several fits on one bank.
    start : BayesStart or None
        Where to go on from, in place of what `seed` draws.
    deadline : Deadline or None
        When the fit has to end; by default `limits.max_time` from now. Where that is before the
        end of the first iteration, the posterior is that of a constant.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.operators import DenseOperator
    >>> from kernelweave.solvers.bemkl import Hyperparameters, Labels, Settings
    >>> from kernelweave.solvers import Limits
    >>> x = np.linspace(-1, 1, 30)
    >>> bank = DenseOperator([np.outer(x, x), np.eye(30)])
    >>> labels = Labels(np.sign(x)[None])
    >>> fit = infer(bank, labels, Settings(Hyperparameters()), Limits(tol=1e-3), seed=0)
    >>> fit.converged, bool(fit.history[1].lower_bound < fit.lower_bound)
    (True, True)
    """
    header = Header("infer", len(targets.y), 1, bank.n, bank.m, "")
    with Session(limits.callbacks, header) as session:
        limits = session.limits(limits, 0, partial(about, targets, settings))
        deadline = deadline or Deadline.after(limits.max_time, time.perf_counter())
        try:
            return _infer(bank, targets, settings, limits, seed, squares, start, deadline)
        except TimeUp:
            if start is None:
                return _constant(bank, targets, settings, limits, seed)
            raise InvalidInputError(
                f"max_time={limits.max_time} s is too short for one more iteration of the fit "
                "that is taken up. Raise it."
            ) from None


def _infer(
    bank: KernelOperator,
    targets: Targets,
    settings: Settings,
    limits: Limits,
    seed: int,
    squares: Squares | None,
    start: BayesStart | None,
    deadline: Deadline,
) -> Posterior:
    began = time.perf_counter()
    guess = None
    with between_blocks(deadline.look()):
        if isinstance(targets, Labels) and start is None:
            guess = guess_unlabelled(bank, targets, settings, seed)
        ensemble = Ensemble(bank, targets, settings, seed, squares, guess)
        line = None if start is None else start.place(ensemble)
    since = Progress() if line is None else Progress(line.iteration, line.seconds)
    history: list[BayesRecord] = []
    watch = Watch(limits, history, began - since.seconds, deadline)
    last = ensemble.snapshot()
    reason = ""
    ended = line is not None and _stands_still(line.lower_bound, line.change, targets, limits)
    if line is not None and (ended or line.iteration >= limits.max_iter):
        # The fit that is taken up had ended.
        history.append(line)
        reason = "converged" if ended else "max_iter"
    try:
        while not reason:
            began_step = time.perf_counter()
            with between_blocks(deadline.look()), np.errstate(**_QUIET):
                ensemble.iterate()
                bound = ensemble.lower_bound()
            _check_finite(bound, ensemble)
            before = float("-inf") if line is None else line.lower_bound
            change = (bound - before) / targets.y.size
            active = len(selected_kernels(ensemble.weights.e_mean))
            last = ensemble.snapshot()
            iteration = since.iteration + len(history) + 1
            line = BayesRecord(iteration, watch.seconds, bound, change, active)
            watch.note(line, ensemble.numbers)
            # Half a second of what an iteration takes is within what `max_time` allows.
            ahead = max(0.0, time.perf_counter() - began_step - 0.5)
            still = _stands_still(bound, change, targets, limits)
            reason = "converged" if still else watch.reason_to_stop(ahead)
    except TimeUp:
        # In the middle of an iteration; the last whole one counts.
        if not history:
            raise
        reason = "max_time"
    except np.linalg.LinAlgError as error:
        raise InvalidInputError(
            f"rounding left no precise posterior: sigma_g={settings.sigma_g:g} is too small for "
            "kernels of this size. Normalise the kernels or take a larger sigma_g."
        ) from error
    except KeyboardInterrupt:
        if not history:
            raise
        reason = "interrupted"
        warnings.warn(
            f"the fit was interrupted after {len(history)} iterations; keeping what was found so "
            f"far (lower bound {history[-1].lower_bound:.6g}).",
            InterruptedFitWarning,
            stacklevel=6,
        )
    if reason in ("max_iter", "max_time"):
        unit = " s" if reason == "max_time" else ""
        warnings.warn(
            f"the lower bound still changes by {history[-1].change:.2g} a sample and iteration, "
            f"above tol={limits.tol:g}: {reason}={getattr(limits, reason)}{unit} was reached; "
            "raise it or tol.",
            ConvergenceWarning,
            stacklevel=6,
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
    ensemble = Ensemble(bank, targets, settings, seed, Squares.unknown(bank))
    with np.errstate(**_QUIET):
        ensemble.iterate_without_kernels()
        bound = ensemble.lower_bound()
    _check_finite(bound, ensemble)
    active = len(selected_kernels(ensemble.weights.e_mean))
    line = BayesRecord(0, time.perf_counter() - began, bound, float("inf"), active)
    warnings.warn(
        f"max_time={limits.max_time} s was reached before the end of the first iteration: the "
        "model is a constant, with the kernels unused. Raise it or take fewer samples: the time "
        "of an iteration grows with the cube of their number.",
        ConvergenceWarning,
        stacklevel=6,
    )
    return Posterior.of(ensemble.snapshot(), [line], "max_time")


def _check_finite(bound: float, ensemble: Ensemble) -> None:
    """Raise if an iteration ended in numbers beyond float64."""
    if not np.isfinite(bound) or not np.all(np.isfinite(ensemble.weights.e_mean)):
        raise InvalidInputError(
            f"the posterior cannot be computed in float64: its lower bound is {bound:g}. The "
            "kernel values, the targets or the priors are too large or too small; normalise the "
            "kernels (normalize='trace'), or scale the targets."
        )


def _stands_still(bound: float, change: float, targets: Targets, limits: Limits) -> bool:
    """Whether the change of the lower bound for each target is within the tolerance."""
    rounding = float(np.finfo(np.float64).eps) * abs(bound) / targets.y.size
    return abs(change) <= limits.target(rounding)
