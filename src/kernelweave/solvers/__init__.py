"""Solvers: settings objects that the one loop drives to a certified optimum."""

from __future__ import annotations

from kernelweave.combine import Combination, WeightedSum
from kernelweave.regularizers.base import Regularizer
from kernelweave.regularizers.l1 import L1
from kernelweave.regularizers.simplex import Simplex
from kernelweave.solvers.active_set import ActiveSet
from kernelweave.solvers.base import SOLVERS, Solver, State
from kernelweave.solvers.certificate import Certificate, certify, recompute
from kernelweave.solvers.inner import Point
from kernelweave.solvers.loop import Limits, Record, Result
from kernelweave.solvers.silp import SILP, SILPChunking
from kernelweave.solvers.solve import solve
from kernelweave.solvers.spg import PGD, SPG
from kernelweave.solvers.uniform import Uniform
from kernelweave.validation import unknown_name

__all__ = [
    "PGD",
    "SILP",
    "SOLVERS",
    "SPG",
    "ActiveSet",
    "Certificate",
    "Limits",
    "Point",
    "Record",
    "Result",
    "SILPChunking",
    "Solver",
    "State",
    "Uniform",
    "certify",
    "get_solver",
    "recompute",
    "solve",
]


def get_solver(
    spec: str | Solver, regularizer: Regularizer, combination: Combination | None = None
) -> Solver:
    """Return the solver of that name with its default settings, or `spec` itself.

    "auto" is "active-set" for sums with sparse weights (simplex, L1) and "spg" elsewhere.

    Examples
    --------
    >>> from kernelweave.regularizers import LpBall, Simplex
    >>> get_solver("auto", Simplex())
    ActiveSet(working_set=64, inner_tol=0.001)
    >>> get_solver("auto", LpBall(2))
    SPG(spectral=True, nonmonotone=True, tune_precision=True, scaled=True, inner_tol=0.01)
    """
    if isinstance(spec, Solver):
        return spec
    if spec == "auto":
        is_sum = combination is None or isinstance(combination, WeightedSum)
        return ActiveSet() if is_sum and isinstance(regularizer, L1 | Simplex) else SPG()
    if spec not in SOLVERS:
        raise unknown_name("solver", spec, ["auto", *SOLVERS])
    return SOLVERS[spec]()
