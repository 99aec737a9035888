"""Small two-class problems on every bank, and the states of a run of MWU on them."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from kernelweave.bank import DenseBank, FactoredBank, LazyBank, SparseBank
from kernelweave.combine import WeightedSum
from kernelweave.kernels import RBF, Linear, Polynomial
from kernelweave.losses import get_loss
from kernelweave.operators import ComputedOperator, StackedOperator
from kernelweave.problem import Problem
from kernelweave.regularizers import Simplex
from kernelweave.solvers.loop import prepared

__all__ = ["BANKS", "N", "every_state", "numbers", "problem_on"]

N = 26


def numbers(apart=0.0):
    """Five kernels, and labels that `apart` separates."""
    X = np.random.default_rng(0).normal(size=(N, 3))
    y = labels(X)
    X += apart * y[:, None]
    kernels = [RBF(width=1.0), RBF(width=3.0).on(0), Polynomial(2).on(1), Linear(), Linear().on(2)]
    return ComputedOperator.build(kernels, X, normalize="trace"), y


def counts(apart=0.0):
    rng = np.random.default_rng(0)
    X = rng.poisson(0.7, size=(N, 30)) * rng.uniform(0.5, 1.5, size=(N, 30))
    y = labels(X)
    X += apart * y[:, None] * (X > 0)
    X[:, 0] = y * (1.0 + 9.0 * apart)
    kernels = [Linear(), Linear().on(slice(0, 28)), Linear().on(slice(3, 30))]
    return ComputedOperator.build(kernels, sparse.csr_array(X), normalize="trace"), y


def labels(X):
    y = np.where(X[:, 0] + 0.5 * X[:, 1] ** 2 > np.median(X[:, 0]), 1.0, -1.0)
    y[:3] *= -1
    return y


def stacked(kernels):
    parts = [[3, 0], [1, 4], [2]]
    plans = [LazyBank(dtype="float64"), DenseBank(), FactoredBank(1e-14)]
    banks = [plan.build(kernels.select(own)) for plan, own in zip(plans, parts, strict=True)]
    return StackedOperator(banks, parts)


BANKS = {
    "dense": (numbers, lambda ks: DenseBank().build(ks)),
    "lazy": (numbers, lambda ks: LazyBank(dtype="float64").build(ks)),
    "factored": (numbers, lambda ks: FactoredBank(1e-14).build(ks)),
    "stacked": (numbers, stacked),
    "sparse": (counts, lambda ks: SparseBank().build(ks)),
    "one": (numbers, lambda ks: DenseBank().build(ks).select(np.array([0]))),
}


def problem_on(kind, loss, C, apart=0.0):
    make_kernels, build = BANKS[kind]
    kernels, y = make_kernels(apart)
    bank = build(kernels)
    C = np.full((1, N), C)
    return Problem(bank, y[None], C, get_loss(loss), Simplex(), WeightedSum())


def every_state(problem, solver, start=None):
    """The states of a run, without the loop."""
    problem = prepared(problem, solver)
    state = solver.init(problem, start)
    yield state
    while not state.ended:
        state = solver.step(problem, state, 1.0, 0.0)
        yield state
