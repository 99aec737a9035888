"""Errors and warnings a user of kernelweave can meet."""

from __future__ import annotations

__all__ = [
    "IndefiniteKernelWarning",
    "InterruptedFitWarning",
    "InvalidInputError",
    "MemoryBudgetError",
    "UnknownNameError",
]


class InvalidInputError(ValueError):
    """Something the caller passed is wrong; the message says what, and what is allowed."""


class UnknownNameError(ValueError):
    """A name (of a kernel, loss, regularizer, solver, ...) that does not exist."""


class MemoryBudgetError(MemoryError):
    """The work would need more memory than there is; the message names the bytes."""


class IndefiniteKernelWarning(UserWarning):
    """A precomputed matrix was slightly asymmetric or indefinite and has been repaired."""


class InterruptedFitWarning(UserWarning):
    """A fit was stopped from the keyboard; the best model found so far was kept."""
