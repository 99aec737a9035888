"""Solvers: settings objects that the one loop drives to a certified optimum."""

from __future__ import annotations

from kernelweave.solvers.base import SOLVERS, Solver, State
from kernelweave.solvers.baselines import Align, Uniform
from kernelweave.solvers.certificate import Certificate, certify, recompute
from kernelweave.solvers.checkpoint import Checkpoint
from kernelweave.solvers.inner import Point
from kernelweave.solvers.loop import Limits, Record, Result
from kernelweave.solvers.mwu import MWU
from kernelweave.solvers.path import entry_factor, solve_path
from kernelweave.solvers.silp import SILP, ActiveSet, SILPChunking
from kernelweave.solvers.solve import check_solver, get_solver, solve
from kernelweave.solvers.spg import PGD, SPG
from kernelweave.solvers.spicy import Spicy

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
