"""Every kind of bank with the same number of kernels, to hold running products against."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from kernelweave.bank import (
    BatchBank,
    DenseBank,
    FactoredBank,
    LazyBank,
    PositionalBank,
    SparseBank,
    build_bank,
)
from kernelweave.kernels import RBF, Linear, Polynomial, RBFBatch, WeightedDegree
from kernelweave.operators import ComputedOperator, StackedOperator, bind_kernels

__all__ = ["BANKS", "N", "case_of", "numbers"]

N = 53  # Not a multiple of anything a loop may take at a time.


def numbers(n=N):
    X = np.random.default_rng(0).normal(size=(n, 3))
    kernels = [
        RBF(width=1.0),
        RBF(width=4.0).on(0),
        Polynomial(3).on(1),
        Linear(),
        RBF(gamma=0.3).on([1, 2]) * Linear().on(0),
    ]
    return ComputedOperator.build(kernels, X, normalize="trace")


def thin(n=N):
    X = np.random.default_rng(0).normal(size=(n, 5))
    return ComputedOperator.build(
        [Polynomial(1 + k % 3).on(k) for k in range(5)], X, normalize="trace"
    )


def counts(n=N):
    rng = np.random.default_rng(0)
    X = rng.poisson(0.3, size=(n, 40)) * rng.choice([-1.0, 1.0, 0.5], size=(n, 40))
    X[:, [0, 20, 30]] = 1.0
    parts = [slice(0, 40), slice(0, 8), slice(8, 30), [38, 30, 39], [20, 35, 36]]
    return ComputedOperator.build([Linear().on(own) for own in parts], sparse.csr_array(X))


def positions(n=N):
    letters = np.random.default_rng(0).choice(list("ACGT"), (n, 18), p=[0.4, 0.3, 0.2, 0.1])
    kernels = [
        WeightedDegree(4, lengths=(2, 2), positions=(0, 6)),
        WeightedDegree(3, shift=2, normalize=True),
        WeightedDegree(4, lengths=(1, 3), positions=(6, 14)),
        WeightedDegree(3, reverse_complement=True),
        WeightedDegree(4, lengths=(1, 1), positions=(3, 9)),
    ]
    return ComputedOperator.build(kernels, ["".join(row) for row in letters], normalize="trace")


def many(n=N):
    X = np.random.default_rng(0).normal(size=(n, 6))
    return bind_kernels(RBFBatch.random(5, 6, sizes=(1, 4), widths=(0.7, 1, 3), random_state=0), X)


def stacked(kernels):
    parts = [[3, 0], [1, 4], [2]]
    plans = [LazyBank(dtype="float64"), DenseBank(), FactoredBank(1e-12)]
    banks = [plan.build(kernels.select(own)) for plan, own in zip(plans, parts, strict=True)]
    return StackedOperator(banks, parts)


# What makes the kernels, what keeps them, and how far from exact it is.
BANKS = {
    "dense": (numbers, lambda ks: DenseBank().build(ks), 1e-12),
    "dense32": (numbers, lambda ks: DenseBank("float32").build(ks), 1e-5),
    "lazy": (numbers, lambda ks: LazyBank(dtype="float64").build(ks), 1e-12),
    "lazy32": (numbers, lambda ks: LazyBank().build(ks), 1e-5),
    # Room for three rows: nearly every move computes its rows again.
    "lazy-small": (numbers, lambda ks: LazyBank(5 * 5 * N * 8 / 1e6, "float64").build(ks), 1e-12),
    "factored": (numbers, lambda ks: FactoredBank(1e-12).build(ks), 1e-7),
    "thin": (thin, lambda ks: FactoredBank().build(ks), 1e-5),
    "stacked": (numbers, stacked, 1e-7),
    "auto": (numbers, lambda ks: build_bank("auto", ks), 1e-4),
    "sparse": (counts, lambda ks: SparseBank().build(ks), 1e-12),
    "sparse-auto": (counts, lambda ks: build_bank("auto", ks), 1e-4),
    "positional": (positions, lambda ks: PositionalBank().build(ks), 1e-12),
    "batch": (many, lambda ks: BatchBank("float64").build(ks), 1e-12),
    "batch32": (many, lambda ks: BatchBank().build(ks), 1e-5),
}


def case_of(name):
    """A bank, its matrices as they are exactly, and how far from them it may be."""
    make, build, atol = BANKS[name]
    kernels = make()
    bank = build(kernels)
    exact = build_bank("dense", kernels, tol=1e-9) if make is not many else bank.refined() or bank
    truth = exact.block(np.arange(N)).astype(float)
    return bank, truth, atol * np.abs(truth).max()
