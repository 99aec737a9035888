"""Solvers: settings objects that the one loop drives to a certified optimum."""

from __future__ import annotations

from kernelweave.solvers.active_set import ActiveSet
from kernelweave.solvers.align import Align
from kernelweave.solvers.base import SOLVERS, Solver, State
from kernelweave.solvers.certificate import Certificate, certify, recompute
from kernelweave.solvers.checkpoint import Checkpoint
from kernelweave.solvers.choose import check_solver, get_solver
from kernelweave.solvers.inner import Point
from kernelweave.solvers.loop import Record, Result
from kernelweave.solvers.mwu import MWU
from kernelweave.solvers.path import entry_factor, solve_path
from kernelweave.solvers.silp import SILP, SILPChunking
from kernelweave.solvers.solve import solve
from kernelweave.solvers.spg import PGD, SPG
from kernelweave.solvers.spicy import Spicy
from kernelweave.solvers.uniform import Uniform
from kernelweave.solvers.watch import Limits

__all__ = [
    "MWU",
    "PGD",
    "SILP",
    "SOLVERS",
    "SPG",
    "ActiveSet",
    "Align",
    "Certificate",
    "Checkpoint",
    "Limits",
    "Point",
    "Record",
    "Result",
    "SILPChunking",
    "Solver",
    "Spicy",
    "State",
    "Uniform",
    "certify",
    "check_solver",
    "entry_factor",
    "get_solver",
    "recompute",
    "solve",
    "solve_path",
]
