"""Which kernels to look at first, where there are many."""

from __future__ import annotations

import numpy as np

from kernelweave.arrays import Array, Index
from kernelweave.problem import Problem
from kernelweave.solvers.feasible import feasible_alpha

__all__ = ["aligned_kernels", "at_a_kink", "spread_over", "working_kernels"]


# Steps that fail while alpha owes less than this part of the gap may have another cause: its root,
# 3%, is what the q_k are wrong by. Below a gap of _KINK_GAP the cause may be rounding: the q_k of
# float32 kernels are known to about 1e-7.
_KINK_SHARE, _KINK_GAP = 1e-3, 1e-6
# A tenth of what alpha owes is about a third of its error in the q_k, and so of the gap, if alpha
# is to blame for the gap; at a kink the gap stays.
_STAYED = 0.8


def aligned_kernels(problem: Problem, count: int) -> Index:
    """Kernels most aligned with y: q_k is largest at the alpha the loss asks for at f = 0."""
    alpha = -problem.loss.gradient(problem.y, np.zeros_like(problem.y), problem.C)
    return _lowest(-problem.bank.quad(feasible_alpha(problem, alpha)), count)


def spread_over(kernels: Index, d: Array) -> Array:
    """Equal weights on some kernels, with the sum of d."""
    out = np.zeros_like(d)
    out[kernels] = d.sum() / len(kernels)
    return out


def working_kernels(d: Array, gradient: Array, most: int) -> Index:
    """Kernels in use, and at most so many of the others: those whose gradient is lowest."""
    outside = np.flatnonzero(d == 0)
    best = outside[_lowest(gradient[outside], most)]
    return np.sort(np.concatenate([np.flatnonzero(d), best]))


def _lowest(score: Array, count: int) -> Index:
    """Positions of the `count` lowest scores, in order of position; ties go to the first."""
    if len(score) > count:
        bar = np.partition(score, count - 1)[count - 1]
        below, equal = np.flatnonzero(score < bar), np.flatnonzero(score == bar)
        return np.sort(np.concatenate([below, equal[: count - len(below)]]))
    return np.arange(len(score))


def at_a_kink(problem: Problem, gap: float, inner_gap: float, before: float) -> bool:
    """Whether steps fail because T has no gradient here, not for want of a more exact alpha.

    Where K(d) is singular and the loss piecewise linear, alpha need not be unique; any one of them
    gives T(d), but the q_k of one alone need not tell where T falls, nor certify that it does not.

    What alpha owes does not decide it: its square root is what the q_k are wrong by. So alpha has
    been made more exact, from where the gap was `before` (infinite if it has not), and in vain.
    """
    exact = gap > _KINK_GAP and inner_gap < _KINK_SHARE * gap
    return not problem.loss.smooth and exact and gap > _STAYED * before
