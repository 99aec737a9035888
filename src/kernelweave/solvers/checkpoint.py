"""Checkpoints: a long fit writes down where it stands, so that it can be taken up again.

A file holds a header, by which a fit knows its own, and for every group of tasks the numbers that
its fit goes on with: weights, dual variables, intercepts, and what the solver remembers besides.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field, fields
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelweave.archive import (
    CHANGED,
    DamagedFileError,
    digest_of,
    read_arrays,
    why_no_file,
    why_no_place,
    write_archive,
)
from kernelweave.arrays import Array
from kernelweave.errors import CheckpointWarning, InvalidInputError, MemoryBudgetError
from kernelweave.problem import Problem
from kernelweave.solvers.inner import Point
from kernelweave.solvers.kept import (
    FIT_KEPT,
    PLANES_KEPT,
    POINT_KEPT,
    RECORD_KEPT,
    Numbers,
    Progress,
    check_kept,
    part_of,
    prefixed,
    refused_by_name,
)
from kernelweave.validation import parse_time

if TYPE_CHECKING:
    from kernelweave.solvers.base import Solver, State
    from kernelweave.solvers.loop import Result

_FORMAT = "kernelweave checkpoint"
_VERSION = 2
# Names of a batch are written when they are read: a million take half a minute, these a third of a
# second.
_MOST_NAMES = 10_000


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
    and intercepts of every group of tasks, and what the solver needs besides. As in model files,
    one more member, ``kernelweave.json``, has the digests of all others. A convex fit writes
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
        """Raise unless the file can be written."""
        path = Path(self.path)
        if wrong := why_no_place(path):
            raise InvalidInputError(f"Checkpoint: {wrong}")
        try:
            tempfile.TemporaryFile(dir=path.parent).close()
        except OSError as error:
            raise InvalidInputError(
                f"Checkpoint: nothing can be written to the folder of {str(path)!r}: {error}"
            ) from error


def _interval(every: object) -> tuple[float, float]:
    """Iterations and seconds after which there is a new file; one of the two is infinite."""
    if isinstance(every, Integral) and not isinstance(every, bool) and int(every) >= 1:
        return int(every), np.inf
    seconds = parse_time(every) if isinstance(every, str) else None
    if seconds is None:
        raise InvalidInputError(
            "Checkpoint: every must be an integer >= 1 (iterations) or a time such as '30s', "
            f"'5min' or '1h'; got {every!r}."
        )
    return np.inf, seconds


# The file


def _told(words: str) -> Any:
    """A field of the header, and what messages call it."""
    return field(metadata={"told": words})


@dataclass(frozen=True)
class Header:
    """What a fit must have in common with the one it goes on with.

    `kind` is the estimator; `n_groups` are the groups of tasks that share their kernel weights, one
    fit each; `kernels` is the digest of the names of the kernels.
    """

    kind: str = _told("of a {}")
    n_tasks: int = _told("of {} tasks (classes, labels or outputs)")
    n_groups: int = _told("of {} sets of kernel weights (multi_class)")
    n: int = _told("on {} samples")
    m: int = _told("with {} kernels")
    kernels: str = _told("with other kernels: the digest of their names is {!s:.12}")


@dataclass(frozen=True)
class Saved:
    """What is known of a fit that another one can go on with.

    `where` is what messages call it, `groups` has the numbers of each group that was begun.
    """

    where: str
    header: Header
    groups: Mapping[int, Numbers]

    def check(self, **wanted: Any) -> None:
        """Raise unless the header has these values."""
        for part in fields(Header):
            found, words = getattr(self.header, part.name), part.metadata["told"]
            value = wanted.get(part.name, found)
            if found != value:
                needed = words.removeprefix("with other kernels: ").format(value)
                raise InvalidInputError(
                    f"warm_start_from: {self.where} is {words.format(found)}, but this fit is "
                    f"{needed}. A fit can only go on from one of the same estimator, classes, "
                    "samples and kernels; leave warm_start_from=None to start anew."
                )


def names_digest(names: Sequence[str]) -> str:
    """Return one name for all the kernels; of very many it reads some, evenly spread."""
    some = np.unique(np.linspace(0, len(names) - 1, min(len(names), _MOST_NAMES)).astype(int))
    return hashlib.sha256(b"".join(names[int(k)].encode() + b"\0" for k in some)).hexdigest()


def read(path: str | os.PathLike[str]) -> Saved:
    """Read the file of a checkpoint, or raise saying what it is instead."""
    file = Path(path)
    where = repr(str(file))
    if missing := why_no_file(file):
        raise InvalidInputError(
            f"warm_start_from: {missing} Give the path of a checkpoint, a fitted estimator of the "
            "same kind or None."
        )
    try:
        arrays, whole = read_arrays(file)
        if str(arrays.get("format")) != _FORMAT:
            raise DamagedFileError("it holds other arrays")
        version = str(arrays.get("version"))
        if not version.isdigit() or int(version) <= _VERSION:
            header, groups = _parts(arrays)
            if not whole:
                raise DamagedFileError(CHANGED)
            return Saved(f"the checkpoint {where}", header, groups)
    except MemoryBudgetError:
        raise
    except Exception as error:
        # There is no end to what damaged archives and headers of arrays make Python raise.
        why = str(error) if isinstance(error, DamagedFileError) else f"it cannot be read ({error})"
        raise InvalidInputError(
            f"warm_start_from: {where} is no checkpoint of kernelweave: {why}. Checkpoints are "
            "written by callbacks=[Checkpoint(path)]."
        ) from error
    raise InvalidInputError(
        f"warm_start_from: {where} has version {version} of the checkpoint format; this "
        f"kernelweave reads versions up to {_VERSION}. Take it up with the kernelweave that wrote "
        "it, or start anew."
    )


def _parts(arrays: Numbers) -> tuple[Header, dict[int, Numbers]]:
    try:
        header = Header(**{f.name: arrays[f.name].item() for f in fields(Header)})
        return header, {int(group): part_of(arrays, str(group)) for group in arrays["groups"]}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DamagedFileError(f"parts of it are missing ({error})") from error


# While a fit runs


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
        since = time.perf_counter() - self._last
        return self.unwritten >= self._iterations or since >= self._seconds

    def write(self, header: Header, groups: Mapping[int, Numbers]) -> None:
        """Write the file; one that cannot be written is no reason to end the fit."""
        arrays: dict[str, Any] = {"format": _FORMAT, "version": _VERSION, "groups": sorted(groups)}
        arrays |= asdict(header)
        for group, numbers in groups.items():
            arrays |= prefixed(str(group), numbers)
        made = {f"{name}.npy": np.asarray(value) for name, value in arrays.items()}
        try:
            write_archive(self._path, {}, made)
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
    """Writes the checkpoints of one fit, which may be of several groups of tasks in turn.

    It is called with the newest line of the history and what the fit could be taken up from. Leave
    it as a context: what was found last is then written, also after an error. What is `known` of
    other groups is kept until there is better.
    """

    def __init__(
        self, checkpoints: Iterable[Checkpoint], header: Header, known: Mapping[int, Numbers]
    ) -> None:
        self._writers = [_Writer(checkpoint) for checkpoint in checkpoints]
        self._header = header
        self._groups: dict[int, Numbers] = dict(known)
        self._group = 0
        self._about: Numbers = {}

    def of(self, group: int, about: Numbers) -> Session:
        """Turn to the fit of one group; `about` says what is fitted, and is kept with the rest."""
        self._group, self._about = group, about
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        # An error at hand is the one to tell.
        with nullcontext() if error is None else suppress(Exception):
            self._write(writer for writer in self._writers if writer.unwritten)

    def __call__(self, line: Any, numbers: Numbers) -> None:
        self._keep(self._about, line, numbers)
        self._write(writer for writer in self._writers if writer.due())

    def end(self, result: Result) -> None:
        """Take what a convex fit ended with, and write it down."""
        known = self._groups.get(self._group, {})
        known = {name: v for name, v in known.items() if not name.startswith("best.")}
        numbers = _of_point(result, result.witness)
        numbers["record.gap"] = np.asarray(result.certificate.gap)
        self._keep(known, result.history[-1], numbers)
        self._write(self._writers)

    def _keep(self, known: Numbers, line: Any, numbers: Numbers) -> None:
        record = prefixed("record", {name: np.asarray(v) for name, v in asdict(line).items()})
        self._groups[self._group] = {**known, **record, **numbers}

    def _write(self, writers: Iterable[_Writer]) -> None:
        for writer in writers:
            writer.write(self._header, self._groups)


# What a convex fit writes down, and goes on from


def about(problem: Problem, solver: Solver) -> dict[str, Array]:
    """Say what is fitted: names to read, loss weights, and a digest to tell the same fit by."""
    names = {"solver": solver, "loss": problem.loss, "regularizer": problem.regularizer}
    known: dict[str, Array] = {
        key: np.asarray(getattr(part, "name", type(part).__name__)) for key, part in names.items()
    }
    settings = [
        (type(part).__qualname__, part.get_params() if hasattr(part, "get_params") else part)
        for part in (problem.loss, problem.regularizer, problem.combination)
    ]
    digest = digest_of(problem.y, problem.C, *settings, solver)
    return known | {"digest": np.asarray(digest), "C": problem.C}


def header_of(problem: Problem) -> Header:
    """Return the header of a fit that no estimator began."""
    return Header("solve", problem.n_tasks, 1, problem.n, problem.m, "")


def numbers_of(solver: Solver, state: State, best: State) -> dict[str, Array]:
    """Where a fit stands: its point with the solver's own numbers, and the best point so far.

    Without numbers of the solver's own the best point is all that is of use.
    """
    extra = solver.remember(state)
    point = state.point if extra else best.point
    numbers = _of_point(point, best.witness_alpha)
    if best.point is not point:
        numbers |= prefixed("best", _of_point(best.point))
    return numbers | prefixed("extra", extra)


def _of_point(point: Point | Result, witness: Array | None = None) -> dict[str, Array]:
    numbers = {name: getattr(point, name) for name in POINT_KEPT}
    return numbers if witness is None else numbers | {"witness": witness}


def neighbour_start(result: Point | Result, C: Array, last_C: Array) -> Point | None:
    """Return the solution for loss weights `last_C` as the start of a fit with loss weights `C`.

    Dual variables grow with the loss weights, so those at their bound stay there. Both arrays have
    the shape of the result's alpha; a sample that had no weight starts from zero. None where no
    kernel had weight: it says nothing on which will, and not every solver can leave it.
    """
    if not result.d.any():
        return None
    factor = np.divide(C, last_C, out=np.zeros_like(C), where=last_C > 0)
    return Point.start(result.d, result.alpha * factor, result.intercept)


def start_at(
    numbers: Numbers, problem: Problem, solver: Solver, where: str = "the start"
) -> Point | None:
    """Return the point from which `solver` goes on; messages call `numbers` by `where`.

    The same fit goes on where it was, its iterations and seconds count on. Any other one starts
    from the best point, as from the solution for a neighbouring C; None where no kernel had weight:
    not every solver can leave that.
    """
    same = str(numbers.get("digest")) == str(about(problem, solver)["digest"])
    best, extra = part_of(numbers, "best"), part_of(numbers, "extra")
    with refused_by_name(where):
        sizes = {"T": problem.n_tasks, "n": problem.n, "m": problem.m}
        check_kept(numbers, FIT_KEPT, sizes)
        check_kept(best, POINT_KEPT, sizes, or_none=True)
        if same:
            check_kept(part_of(numbers, "record"), RECORD_KEPT, sizes)
            handed_over = solver.hands_over and "planes" in extra
            check_kept(extra, PLANES_KEPT if handed_over else solver.kept, sizes, or_none=True)
    if not same:
        d, alpha, intercept = ((best or numbers)[name] for name in POINT_KEPT)
        return neighbour_start(Point.start(d, alpha, intercept), problem.C, numbers["C"])
    progress = Progress(
        int(numbers["record.iteration"]),
        float(numbers["record.seconds"]),
        float(numbers["record.gap"]),
        numbers.get("witness"),
    )
    d, alpha, intercept = (numbers[name] for name in POINT_KEPT)
    return Point.start(d, alpha, intercept, extra, progress)


def start_from(path: str | os.PathLike[str], problem: Problem, solver: Solver) -> Point | None:
    """Return the `start` for :func:`~kernelweave.solvers.solve` from a checkpoint of such a fit.

    Examples
    --------
    >>> import os, tempfile
    >>> from kernelweave.operators import DenseOperator
    >>> from kernelweave.combine import WeightedSum
    >>> from kernelweave.losses import Squared
    >>> from kernelweave.regularizers import Simplex
    >>> from kernelweave.solvers import SPG, Checkpoint, Limits, solve
    >>> x = np.linspace(-1, 1, 30)
    >>> bank = DenseOperator([np.outer(x, x), np.outer(x**2, x**2)])
    >>> y, C = (x + x**2)[None], np.ones((1, 30))
    >>> problem = Problem(bank, y, C, Squared(), Simplex(), WeightedSum())
    >>> path = os.path.join(tempfile.mkdtemp(), "fit.npz")
    >>> first = solve(problem, SPG(), Limits(callbacks=[Checkpoint(path)]))
    >>> again = solve(problem, SPG(), Limits(tol=1e-6), start_from(path, problem, SPG()))
    >>> again.history[0].iteration == first.history[-1].iteration
    True
    """
    saved = read(path)
    saved.check(**asdict(header_of(problem)))
    return start_at(saved.groups.get(0, {}), problem, solver, saved.where)
