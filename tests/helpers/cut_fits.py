"""Fits that are cut short and taken up again."""

from __future__ import annotations

from sklearn.base import clone

from kernelweave import Checkpoint
from kernelweave.kernels import RBF, Linear
from kernelweave.solvers import checkpoint

KERNELS = [RBF(width=w) for w in (0.5, 1.0, 3.0)] + [Linear()]


def stop_at(iteration):
    return lambda record: record.iteration >= iteration


def cut_short(model, path, iteration, *data):
    """Fit until an iteration, with a checkpoint at every one."""
    callbacks = [Checkpoint(path, every=1), stop_at(iteration)]
    return clone(model).set_params(callbacks=callbacks).fit(*data)


def resumed(model, source, *data):
    return clone(model).set_params(warm_start_from=source).fit(*data)


def saved_iteration(path, group=0):
    return int(checkpoint.read(path).groups[group]["record.iteration"])
