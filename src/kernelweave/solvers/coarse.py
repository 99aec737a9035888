"""First weights, learnt on some of the samples or some of the kernels, where all are many."""

from __future__ import annotations

import time
import warnings
from contextlib import suppress
from dataclasses import replace

import numpy as np

from kernelweave.compiled.threads import between_blocks
from kernelweave.deadline import TimeUp
from kernelweave.errors import InterruptedFitWarning
from kernelweave.memory import cache_bytes, square_side
from kernelweave.problem import Problem
from kernelweave.solvers.base import Solver
from kernelweave.solvers.inner import Point
from kernelweave.solvers.loop import Limits, Result, run_to_the_end

# From this many samples on, first weights are learnt on a part of them, then on four times as many
# while those are at most a quarter of all and the bytes for their matrices allow it. A pass goes
# with the square of the samples: all parts together cost a fifteenth of what the whole does.
_MANY_SAMPLES = 3000
_GROWTH = 4
# The mean loss of 1,000 samples is off by about 1 / sqrt(1000), 3%, and solved to a tenth of that.
# That of 200 is off by 7%, and tells too little of the weights.
_SOME_SAMPLES = 1000
_FEWEST_SAMPLES = 200
_TOL = 3e-3
# A limit for fits that do not come to that accuracy.
_STEPS = 50
# From this many kernels on, if all of them get a weight, first weights are learnt on a fiftieth, or
# on as many as tell their mean to about 1 / sqrt(5000), 1.4%: passes over them cost a tenth or less
# of those over all.
_MANY_KERNELS = 50_000
_SHARE_OF_KERNELS = 50
_SOME_KERNELS = 5_000


def first_weights(problem: Problem, solver: Solver, limits: Limits) -> Point | None:
    """Return a point to start from, or None where the problem is small enough as it is.

    Also None, or what there is, where the problem's time is over first.
    """
    start = None
    with suppress(TimeUp), between_blocks(problem.deadline.look()):
        for size in _sizes(problem):
            problem.deadline.check()
            start = _from_some_samples(problem, solver, limits, size, start)
        known = problem.regularizer.sparse or problem.regularizer.fixed
        if start is None and problem.m > _MANY_KERNELS and problem.convex and not known:
            start = _from_some_kernels(problem, solver, limits)
    return start


def _sizes(problem: Problem) -> list[int]:
    """Numbers of samples to learn first weights on, growing."""
    bank = problem.bank
    if problem.n <= _MANY_SAMPLES:
        return []
    most = problem.n / _GROWTH
    if problem.combination.linear:
        # A part of the samples of such a bank is kept as matrices, and two more of that size.
        most = min(most, square_side(cache_bytes(bank.cache_mb), problem.m + 2))
    if most < _FEWEST_SAMPLES:
        return []
    sizes = [int(min(_SOME_SAMPLES, most))]
    while _GROWTH * sizes[-1] <= most:
        sizes.append(_GROWTH * sizes[-1])
    return sizes


def _from_some_samples(
    problem: Problem, solver: Solver, limits: Limits, size: int, start: Point | None
) -> Point:
    """Learn weights on some of the samples: a pass over all of them costs many times more.

    The loss weights are raised so that the few stand for all. Less so, by the root, if the weights
    decide how local the kernel is, as in a product: few samples under large loss weights would be
    learnt by heart, with a far too narrow kernel.
    """
    factor = problem.n / size
    chosen = np.sort(np.random.default_rng(0).permutation(problem.n)[:size])
    few = replace(
        problem,
        bank=problem.bank.take(chosen),
        y=problem.y[:, chosen],
        C=problem.C[:, chosen] * (factor if problem.combination.linear else np.sqrt(factor)),
    )
    if start is not None:
        start = Point.start(start.d, np.zeros_like(few.y), np.zeros(few.n_tasks))
    d = _learnt(few, solver, limits, start).d
    return Point.start(d, np.zeros_like(problem.y), np.zeros(problem.n_tasks))


def _from_some_kernels(problem: Problem, solver: Solver, limits: Limits) -> Point | None:
    """Learn alpha with some of the kernels, and take for all kernels the weights it asks for.

    All kernels get a weight, so a part of them adds up to nearly the same kernel but for a factor:
    that by which the weights of all, taken equal, add up to more than those of the part. A larger
    kernel is the same as a larger loss weight.
    """
    regularizer = problem.regularizer
    count = max(_SOME_KERNELS, problem.m // _SHARE_OF_KERNELS)
    chosen = np.sort(np.random.default_rng(0).permutation(problem.m)[:count])
    factor = float(regularizer.start(problem.m).sum() / regularizer.start(len(chosen)).sum())
    few = replace(problem, bank=problem.bank.select(chosen), C=problem.C * factor)
    result = _learnt(few, solver, limits, None)
    alpha = result.alpha / factor
    d = regularizer.dual_weights(problem.bank.quad(alpha))
    return None if d is None else Point.start(d, alpha, result.intercept)


def _learnt(few: Problem, solver: Solver, limits: Limits, start: Point | None) -> Result:
    """Solve the smaller problem roughly; Ctrl-C, which it would end with, ends the whole fit."""
    rough = Limits(max(limits.tol, _TOL), min(limits.max_iter, _STEPS))
    with warnings.catch_warnings():
        # What is kept then is no model of the whole problem.
        warnings.simplefilter("ignore", InterruptedFitWarning)
        result, _ = run_to_the_end(few, solver, rough, start, [], time.perf_counter())
    if result.reason == "interrupted":
        raise KeyboardInterrupt("interrupted while first weights were learnt.")
    return result
