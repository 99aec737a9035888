"""What a convex fit is taken up from: its numbers in a checkpoint, and the point to start at."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelweave.problem import Array, Problem
from kernelweave.solvers.checkpoint_file import Header, digest_of, read, refused_by_name
from kernelweave.solvers.inner import Point
from kernelweave.solvers.kept import PLANES_KEPT, Kept, Numbers, check_kept, part_of, prefixed
from kernelweave.solvers.watch import Progress

if TYPE_CHECKING:
    from kernelweave.solvers.base import Solver, State
    from kernelweave.solvers.loop import Result

__all__ = [
    "about",
    "header_of",
    "numbers_of",
    "result_numbers",
    "scaled_alpha",
    "start_at",
    "start_from",
]

_POINT_KEPT = {
    "d": Kept(("m",), low=0.0),
    "alpha": Kept(("T", "n")),
    "intercept": Kept(("T",)),
}
_KEPT = _POINT_KEPT | {
    "C": Kept(("T", "n"), low=0.0),
    "witness": Kept(("T", "n"), needed=False),
}
_RECORD_KEPT = {
    "iteration": Kept(low=0.0),
    "seconds": Kept(low=0.0),
    "gap": Kept(low=0.0, infinite=True),
}


def about(problem: Problem, solver: Solver) -> dict[str, Array]:
    """Say what is fitted: names to read, loss weights, and a digest to tell the same fit by."""
    names = {"solver": solver, "loss": problem.loss, "regularizer": problem.regularizer}
    known: dict[str, Array] = {
        key: np.asarray(getattr(part, "name", type(part).__name__)) for key, part in names.items()
    }
    parts = [_settings(part) for part in (problem.loss, problem.regularizer, problem.combination)]
    digest = digest_of(problem.y, problem.C, *parts, solver)
    return known | {"digest": np.asarray(digest), "C": problem.C}


def _settings(part: Any) -> tuple[str, Any]:
    params = part.get_params() if hasattr(part, "get_params") else part
    return type(part).__qualname__, params


def header_of(problem: Problem) -> Header:
    """Return the header of a fit that no estimator began."""
    return Header("solve", problem.n_tasks, 1, problem.n, problem.m, "")


def numbers_of(
    solver: Solver, state: State, best: Point | None, witness: Array | None
) -> dict[str, Array]:
    """Where a fit stands: its point with the solver's own numbers, and the best point so far.

    Without numbers of the solver's own the best point is all that is of use.
    """
    extra = solver.remember(state)
    point = state.point if extra or best is None else best
    numbers = _of_point(point)
    if best is not None and best is not point:
        numbers |= prefixed("best", _of_point(best))
    if witness is not None:
        numbers["witness"] = witness
    return numbers | prefixed("extra", extra)


def _of_point(point: Point | Result) -> dict[str, Array]:
    return {name: getattr(point, name) for name in _POINT_KEPT}


def result_numbers(result: Result) -> Numbers:
    """What a fit ended with."""
    numbers = _of_point(result)
    if result.witness is not None:
        numbers["witness"] = result.witness
    return numbers | {"record.gap": np.asarray(result.certificate.gap)}


def scaled_alpha(alpha: Array, C: Array, last_C: Array) -> Array:
    """Dual variables for other loss weights: those at their bound stay there.

    A sample that had no weight starts from zero.
    """
    return alpha * np.divide(C, last_C, out=np.zeros_like(C), where=last_C > 0)


def _check(numbers: Numbers, problem: Problem, solver: Solver, same: bool) -> None:
    """Raise unless these could be the numbers of a fit of this problem, or of this same fit."""
    sizes = {"T": problem.n_tasks, "n": problem.n, "m": problem.m}
    check_kept(numbers, _KEPT, sizes)
    check_kept(part_of(numbers, "best"), _POINT_KEPT, sizes, or_none=True)
    if same:
        check_kept(part_of(numbers, "record"), _RECORD_KEPT, sizes)
        extra = part_of(numbers, "extra")
        handed_over = solver.hands_over and "planes" in extra
        check_kept(extra, PLANES_KEPT if handed_over else solver.kept, sizes, or_none=True)


def start_at(
    numbers: Numbers, problem: Problem, solver: Solver, where: str = "the start"
) -> Point | None:
    """Return the point from which `solver` goes on; messages call `numbers` by `where`.

    The same fit goes on where it was, its iterations and seconds count on. Any other one starts
    from the best point, as from the solution for a neighbouring C; None where no kernel had weight:
    not every solver can leave that.
    """
    same = str(numbers.get("digest")) == str(about(problem, solver)["digest"])
    with refused_by_name(where):
        _check(numbers, problem, solver, same)
    if not same:
        best = part_of(numbers, "best") or numbers
        d, alpha, intercept = (best[name] for name in _POINT_KEPT)
        if not d.any():
            return None
        return Point.start(d, scaled_alpha(alpha, problem.C, numbers["C"]), intercept)
    progress = Progress(
        int(numbers["record.iteration"]),
        float(numbers["record.seconds"]),
        float(numbers["record.gap"]),
        numbers.get("witness"),
    )
    d, alpha, intercept = (numbers[name] for name in _POINT_KEPT)
    return Point.start(d, alpha, intercept, part_of(numbers, "extra"), progress)


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
    wanted = header_of(problem)
    saved.check(kind=wanted.kind, n_tasks=wanted.n_tasks, n=wanted.n, m=wanted.m)
    return start_at(saved.groups.get(0, {}), problem, solver, saved.where)
