"""Errors and warnings a user of kernelweave can meet."""

from __future__ import annotations

from kernelweave.visible_text import visible


class _Told(Exception):
    """A message may hold labels and names, which must not reach a terminal as they are."""

    def __str__(self) -> str:
        return visible(super().__str__(), lines=True)


class InvalidInputError(_Told, ValueError):
    """Something the caller passed is wrong; the message says what, and what is allowed."""


class ModelFileError(InvalidInputError):
    """A model cannot be saved, or a file is no model that can be loaded; the message says why."""


class UnknownNameError(_Told, ValueError):
    """A name (of a kernel, loss, regularizer, solver, ...) that does not exist."""


class MemoryBudgetError(_Told, MemoryError):
    """The work would need more memory than there is; the message names the bytes."""


class ClusterError(_Told, RuntimeError):
    """A cluster cannot do its part of a fit any more; the message says what it lacks."""


class CheckpointWarning(_Told, UserWarning):
    """A checkpoint could not be written; the fit goes on, and the file stays as it was."""


class IndefiniteKernelWarning(_Told, UserWarning):
    """A precomputed matrix was slightly asymmetric or indefinite and has been repaired."""


class InterruptedFitWarning(_Told, UserWarning):
    """A fit was stopped from the keyboard; the best model found so far was kept."""


class ModelFileWarning(_Told, UserWarning):
    """A model file was written with other versions than those that read it."""
