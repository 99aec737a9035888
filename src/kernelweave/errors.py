"""Errors and warnings a user of kernelweave can meet, and text of users on its way to a screen."""

from __future__ import annotations

import re

# Control characters, which may move the cursor or run a terminal's commands; marks that change the
# direction of text, and so what it seems to say; line ends that are none; halves of characters.
_HIDDEN = (
    "\x00-\x1f\x7f-\x9f"
    "\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u2069\ufeff"
    "\ud800-\udfff"
)
_IN_LINE = re.compile(f"[{_HIDDEN}]")
_IN_LINES = re.compile(f"(?!\n)[{_HIDDEN}]")


def visible(text: str, *, lines: bool = False) -> str:
    r"""Write control characters as Python does, so that a terminal shows them and obeys none.

    With `lines` their ends stay what they are.

    Examples
    --------
    >>> print(visible("\x1b[31mred"))
    \x1b[31mred
    """
    hidden = _IN_LINES if lines else _IN_LINE
    return hidden.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


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
