"""Which solver a name means, and which one `"auto"` chooses for a problem."""

from __future__ import annotations

from kernelweave.problem import Problem
from kernelweave.solvers.active_set import ActiveSet
from kernelweave.solvers.base import SOLVERS, Solver
from kernelweave.solvers.settings import check_settings
from kernelweave.solvers.silp import SILP
from kernelweave.solvers.spg import SPG
from kernelweave.solvers.spicy import Spicy
from kernelweave.validation import unknown_name

__all__ = ["automatic", "check_solver", "get_solver"]

# Most kernels whose curvature, a matrix of 200 MB, SILP takes where all of them have weight.
_MANY_KERNELS = 5000
# SpicyMKL solves linear systems of this size, each in less than a second, and pays with more
# kernels than this if they are to have sparse weights (``benchmarks/spicy.py``).
_FEW_SAMPLES, _MANY_FOR_SPICY = 1500, 1000


def check_solver(spec: str | Solver) -> None:
    """Raise if `spec` is neither a solver, of allowed settings, nor the name of one."""
    if isinstance(spec, Solver):
        check_settings(spec)
    elif spec not in ("auto", *SOLVERS):
        raise unknown_name("solver", spec, ["auto", *SOLVERS])


def get_solver(spec: str | Solver, problem: Problem) -> Solver:
    """Return the solver of that name with its default settings, or `spec` itself."""
    check_solver(spec)
    if isinstance(spec, Solver):
        return spec
    return automatic(problem) if spec == "auto" else SOLVERS[spec]()


def automatic(problem: Problem) -> Solver:
    """Return the solver that was fastest for such problems.

    Outside linear combinations and convex regularizers there is only SPG. Sparse weights (simplex,
    l1) go to second-order steps. Under the lp ball SPG is as good as any and takes any number of
    kernels; the other regularizers go to SILP, which needs a fraction of the single-kernel solves
    (``benchmarks/silp.py``). Where losses have no corners and samples are few, SpicyMKL is faster
    than either on more than 1,000 kernels, under the elastic net and under block norms
    (``benchmarks/spicy.py``).
    """
    regularizer = problem.regularizer
    if not problem.convex:
        return SPG()
    if problem.loss.task == "one_class":
        # Several alphas can be best, as for columns of few distinct values: second-order steps
        # know of one only, and get stuck.
        return SPG()
    few_samples = problem.n * problem.n_tasks <= _FEW_SAMPLES and problem.loss.steep
    if regularizer.sparse and regularizer.polyhedral:
        return Spicy() if few_samples and problem.m > _MANY_FOR_SPICY else ActiveSet()
    if regularizer.sparse and regularizer.proximal and few_samples:
        return Spicy()
    if regularizer.bounded and regularizer.proximal:
        return SILP() if regularizer.polyhedral else SPG()
    return SILP() if problem.m <= _MANY_KERNELS else SPG()
