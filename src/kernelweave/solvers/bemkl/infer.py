"""From kernels and targets to an approximate posterior: iterations until the bound stands still."""

from __future__ import annotations

import time
import warnings
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from kernelweave.bank.protocol import KernelBank
from kernelweave.compiled.threads import between_blocks, one_blas_thread
from kernelweave.deadline import Deadline, TimeUp
from kernelweave.errors import InterruptedFitWarning, InvalidInputError
from kernelweave.solvers.bemkl.ensemble import Ensemble, Settings
from kernelweave.solvers.bemkl.posterior import BayesRecord, Posterior, selected_kernels
from kernelweave.solvers.bemkl.resume import BayesStart, about, progress_of
from kernelweave.solvers.bemkl.squares import Squares
from kernelweave.solvers.bemkl.start import guess_unlabelled
from kernelweave.solvers.bemkl.targets import Labels, Targets
from kernelweave.solvers.checkpoint import Checkpoint, Session
from kernelweave.solvers.checkpoint_file import Header
from kernelweave.solvers.watch import Limits, Watch

__all__ = ["infer"]

# Numbers beyond float64 are reported in one sentence; see `_check_finite`.
_QUIET: dict[str, Any] = {"over": "ignore", "divide": "ignore", "invalid": "ignore"}


@one_blas_thread()
def infer(
    bank: KernelBank,
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
    bank : KernelBank
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
    >>> from kernelweave.bank import DenseBank
    >>> from kernelweave.solvers.bemkl import Hyperparameters, Labels, Settings
    >>> from kernelweave.solvers.watch import Limits
    >>> x = np.linspace(-1, 1, 30)
    >>> bank = DenseBank().from_matrices([np.outer(x, x), np.eye(30)])
    >>> labels = Labels(np.sign(x)[None])
    >>> fit = infer(bank, labels, Settings(Hyperparameters()), Limits(tol=1e-3), seed=0)
    >>> fit.converged, bool(fit.history[1].lower_bound < fit.lower_bound)
    (True, True)
    """
    header = Header("infer", len(targets.y), 1, bank.n, bank.m, "")
    checkpoints = [c for c in limits.callbacks if isinstance(c, Checkpoint)]
    with Session(checkpoints, header) as session:
        limits = session.limits(limits, 0, about(targets, settings))
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
    bank: KernelBank,
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
    since = progress_of(line)
    history: list[BayesRecord] = []
    watch = Watch(limits, history, began - since.seconds, since, deadline)
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
            numbers = ensemble.numbers() if watch.keeps else {}
            watch.note(line, partial(dict, numbers))
            still = _stands_still(bound, change, targets, limits)
            reason = (
                "converged"
                if still
                else watch.reason_to_stop(
                    # Half a second of what an iteration takes is within what `max_time` allows.
                    max(0.0, time.perf_counter() - began_step - 0.5)
                )
            )
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
        warnings.warn(
            _what_was_missed(reason, history[-1], limits), ConvergenceWarning, stacklevel=6
        )
    return Posterior.of(last, history, reason)


def _constant(
    bank: KernelBank, targets: Targets, settings: Settings, limits: Limits, seed: int
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


def _what_was_missed(reason: str, line: BayesRecord, limits: Limits) -> str:
    limit = {
        "max_iter": f"max_iter={limits.max_iter}",
        "max_time": f"max_time={limits.max_time} s",
    }[reason]
    return (
        f"the lower bound still changes by {line.change:.2g} a sample and iteration, above "
        f"tol={limits.tol:g}: {limit} was reached; raise it or tol."
    )
