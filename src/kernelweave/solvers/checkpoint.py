"""Checkpoints: a long fit writes down where it stands, so that it can be taken up again."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from kernelweave.errors import CheckpointWarning, InvalidInputError
from kernelweave.solvers.checkpoint_file import Header, refuse_path, write
from kernelweave.solvers.kept import Numbers, prefixed
from kernelweave.solvers.watch import Limits, Note
from kernelweave.validation import parse_time

__all__ = ["Checkpoint", "Session"]


@dataclass(frozen=True)
class Checkpoint:
    """Write down where a fit stands, again and again: for ``callbacks=[Checkpoint(path)]``.

    A fit that was killed is taken up by ``warm_start_from=path`` and ends at the same optimum. The
    first file is written at the first record, the last one when the fit ends, for whatever reason.
    A file takes the place of the one before in one step: there is always a whole one.

    Parameters
    ----------
    path : str or path
        The file; its folder must exist. One file is for one fit: not for those of a grid search.
    every : int or str, default="60s"
        How often: so many iterations, or a time such as "30s", "5min" or "1h".

    Notes
    -----
    The file is an ``.npz`` archive of plain arrays (nothing is pickled): weights, dual variables
    and intercepts of every group of tasks, and what the solver needs besides. A convex fit writes
    8 (m + 2 T n) bytes or a little more for m kernels, n samples and T tasks, a Bayesian one
    8 m T n and up to 8 m^2. What cannot be written is told by a
    :class:`~kernelweave.errors.CheckpointWarning`, and the fit goes on.

    Examples
    --------
    >>> import os, tempfile
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import Checkpoint, MKLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> path = os.path.join(tempfile.mkdtemp(), "iris.npz")
    >>> callbacks = [Checkpoint(path, every="5min"), lambda record: record.iteration == 1]
    >>> first = MKLClassifier(callbacks=callbacks).fit(X, y)  # ended by the second callback
    >>> again = MKLClassifier(warm_start_from=path).fit(X, y)
    >>> again.converged_, again.history_[0].iteration == first.history_[-1].iteration
    (True, True)
    """

    path: str | os.PathLike[str]
    every: int | str = "60s"

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | os.PathLike) or not str(self.path):
            raise InvalidInputError(
                f"Checkpoint: path must be the path of a file; got {self.path!r}."
            )
        _interval(self.every)

    def check(self) -> None:
        """Raise unless the file can be written; called before a fit begins."""
        refuse_path(Path(self.path))


def _interval(every: object) -> tuple[int | None, float]:
    """(iterations, seconds) between two files; the iterations are None where a time was given."""
    if isinstance(every, Integral) and not isinstance(every, bool) and int(every) >= 1:
        return int(every), 0.0
    seconds = parse_time(every) if isinstance(every, str) else None
    if seconds is None:
        raise InvalidInputError(
            "Checkpoint: every must be an integer >= 1 (iterations) or a time such as '30s', "
            f"'5min' or '1h'; got {every!r}."
        )
    return None, seconds


class _Writer:
    """Writes the file of one checkpoint when it is time to."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        checkpoint.check()
        self._path = Path(checkpoint.path)
        self._iterations, self._seconds = _interval(checkpoint.every)
        self.unwritten = 0  # Records that are not in the file.
        self._last = -np.inf

    def due(self) -> bool:
        """Whether a file is to be written, now that there is one record more."""
        self.unwritten += 1
        if self._iterations is not None and self._last > -np.inf:
            return self.unwritten >= self._iterations
        return time.perf_counter() - self._last >= self._seconds

    def write(self, header: Header, groups: Mapping[int, Numbers]) -> None:
        """Write the file; one that cannot be written is no reason to end the fit."""
        try:
            write(self._path, header, groups)
        except OSError as error:
            warnings.warn(
                f"the checkpoint {str(self._path)!r} could not be written: {error}. The fit goes "
                "on, and the file stays as it was.",
                CheckpointWarning,
                stacklevel=2,
            )
        self.unwritten = 0
        # Taken after the file was written: a large one must not take all the time there is.
        self._last = time.perf_counter()


class Session:
    """The checkpoints of one fit, which may consist of several groups fitted one after the other.

    Leave it as a context: what was found last is then written, also after an error.

    Parameters
    ----------
    callbacks : sequence
        Those of the fit; the checkpoints among them are written.
    header : Header
    known : mapping of int to mapping of arrays, optional
        What the fit goes on with: kept until there is better.
    """

    def __init__(
        self,
        callbacks: Sequence[Any],
        header: Header,
        known: Mapping[int, Numbers] | None = None,
    ) -> None:
        self._writers = [_Writer(c) for c in callbacks if isinstance(c, Checkpoint)]
        self._header = header
        self._groups: dict[int, Numbers] = dict(known or {})

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        # An error at hand is the one to tell.
        with nullcontext() if error is None else suppress(Exception):
            self.flush()

    def limits(self, limits: Limits, group: int, about: Numbers) -> Limits:
        """Return the limits of one group's fit, which tells this session where it stands.

        `about` says what is fitted, and is kept beside what is found.
        """
        others = [c for c in limits.callbacks if not isinstance(c, Checkpoint)]
        keep = partial(self._keep, group, about) if self._writers else limits.keep
        return replace(limits, callbacks=others, keep=keep)

    def _keep(self, group: int, about: Numbers, line: Note, numbers: Numbers) -> None:
        self._groups[group] = {**about, **_of_line(line), **numbers}
        self._write([writer for writer in self._writers if writer.due()])

    def end(self, group: int, line: Note, numbers: Numbers) -> None:
        """Take what the fit of a group ended with, and write it down."""
        if self._writers:
            known = self._groups.get(group, {})
            known = {name: v for name, v in known.items() if not name.startswith("best.")}
            self._groups[group] = {**known, **_of_line(line), **numbers}
            self._write(self._writers)

    def flush(self) -> None:
        """Write down what is not yet in a file."""
        self._write([writer for writer in self._writers if writer.unwritten])

    def _write(self, writers: Sequence[_Writer]) -> None:
        for writer in writers:
            writer.write(self._header, self._groups)


def _of_line(line: Any) -> Numbers:
    return prefixed("record", {name: np.asarray(value) for name, value in asdict(line).items()})
