"""Solvers: settings objects that the one loop drives to a certified optimum."""

from __future__ import annotations

from kernelweave.solvers.base import SOLVERS, Solver, State
from kernelweave.solvers.certificate import Certificate, certify, recompute
from kernelweave.solvers.inner import Point
from kernelweave.solvers.loop import Limits, Record, Result, solve
from kernelweave.solvers.spg import SPG
from kernelweave.solvers.uniform import Uniform
from kernelweave.validation import unknown_name

__all__ = [
    "SOLVERS",
    "SPG",
    "Certificate",
    "Limits",
    "Point",
    "Record",
    "Result",
    "Solver",
    "State",
    "Uniform",
    "certify",
    "get_solver",
    "recompute",
    "solve",
]


def get_solver(spec: str | Solver) -> Solver:
    """Return the solver of that name with its default settings, or `spec` itself.

    Examples
    --------
    >>> get_solver("auto")
    SPG(inner_tol=0.01)
    """
    if isinstance(spec, Solver):
        return spec
    if spec == "auto":
        return SPG()
    if spec not in SOLVERS:
        raise unknown_name("solver", spec, ["auto", *SOLVERS])
    return SOLVERS[spec]()
