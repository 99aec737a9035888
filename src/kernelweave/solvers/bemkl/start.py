"""Where the outputs without a label start: at what the labelled samples alone say of them."""

from __future__ import annotations

import numpy as np

from kernelweave.bank.protocol import KernelBank
from kernelweave.problem import Array
from kernelweave.solvers.bemkl.ensemble import Ensemble, Settings
from kernelweave.solvers.bemkl.targets import Labels

__all__ = ["guess_unlabelled"]

# Enough for the sides to settle; the fit itself goes on from there.
_ITERATIONS = 50


def guess_unlabelled(bank: KernelBank, labels: Labels, settings: Settings, seed: int) -> Array:
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
        for _ in range(_ITERATIONS):
            ensemble.iterate()
        everywhere = np.zeros((len(tasks), bank.n))
        everywhere[:, rows] = ensemble.samples.mean
        weights = ensemble.weights
        found = np.tensordot(weights.e_mean, bank.matvec(everywhere), axes=1)
        guess[tasks] = np.where(pattern, 0.0, found + weights.b_mean[:, None])
    return guess
