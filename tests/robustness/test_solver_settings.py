"""Every setting of every solver is checked when the solver is used, by estimators and `solve`."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from kernelweave import MKLClassifier
from kernelweave.bank import DenseBank
from kernelweave.combine import WeightedSum
from kernelweave.errors import InvalidInputError
from kernelweave.losses import Hinge
from kernelweave.problem import Problem
from kernelweave.regularizers import Simplex
from kernelweave.solvers import (
    MWU,
    PGD,
    SILP,
    SOLVERS,
    SPG,
    ActiveSet,
    Align,
    Limits,
    SILPChunking,
    Spicy,
    Uniform,
    check_solver,
    solve,
    solve_path,
)

# Solvers of the library; tests of other files may have registered their own.
OWN = {name: cls for name, cls in SOLVERS.items() if cls.__module__.startswith("kernelweave.")}
SETTINGS = [(cls, setting.name) for _, cls in sorted(OWN.items()) for setting in fields(cls)]
# What no setting of any solver may be.
NEVER = (float("nan"), -1, -np.inf, "no such name", object(), [1])


def small_problem():
    x = np.linspace(-1.0, 1.0, 8)
    bank = DenseBank().from_matrices([np.outer(x, x), np.eye(8)])
    y = np.sign(x)[None]
    return Problem(bank, y, np.ones((1, 8)), Hinge(), Simplex(), WeightedSum())


def test_all_solvers_are_there():
    found = {cls for cls, _ in SETTINGS} | {Uniform}
    assert {MWU, PGD, SILP, SPG, ActiveSet, Align, SILPChunking, Spicy} <= found


@pytest.mark.parametrize(
    ("cls", "setting"), SETTINGS, ids=[f"{cls.__name__}.{name}" for cls, name in SETTINGS]
)
def test_what_a_setting_may_never_be_is_refused_by_name(cls, setting):
    check_solver(cls())
    for bad in NEVER:
        with pytest.raises(InvalidInputError) as caught:
            check_solver(cls(**{setting: bad}))
        told = str(caught.value)
        assert told.startswith(f"{cls.__name__}: {setting} must be ")
        assert told.endswith(f"; got {bad!r}.")


@pytest.mark.parametrize(
    ("solver", "allowed"),
    [
        (Spicy(first_penalty=0), "first_penalty must be a finite number > 0"),
        (Spicy(growth=0.5), "growth must be a finite number >= 1"),
        (Spicy(growth=np.inf), "growth must be a finite number >= 1"),
        (Spicy(working_set=0), "working_set must be an integer >= 1"),
        (Spicy(working_set=2.5), "working_set must be an integer >= 1"),
        (SILP(inner_tol=0), "inner_tol must be a finite number > 0 and <= 1"),
        (SILP(stabilise=1), "stabilise must be True or False"),
        (SILPChunking(chunk_size=1), "chunk_size must be an integer from 2 to 65536"),
        (SILPChunking(chunk_size=65_537), "chunk_size must be an integer from 2 to 65536"),
        (ActiveSet(working_set=True), "working_set must be an integer >= 1"),
        (SPG(inner_tol=2), "inner_tol must be a finite number > 0 and <= 1"),
        (PGD(spectral=None), "spectral must be True or False"),
        (MWU(eps=1), "eps must be a finite number > 0 and < 1"),
        (MWU(omega=0.0), "omega must be 'auto' or 'paper' or a finite number > 0"),
        (MWU(soft_margin="l3"), "soft_margin must be 'auto' or 'l1' or 'l2'"),
        (MWU(max_iter=0), "max_iter must be None or an integer >= 1"),
        (Align(method="both"), "method must be 'joint' or 'independent'"),
        (Align(then="spg"), r"then must be None or a solver object such as SPG\(\)"),
        (Align(then=SPG(inner_tol=-1)), "SPG: inner_tol must be a finite number > 0"),
    ],
    ids=repr,
)
def test_the_error_says_what_is_allowed(solver, allowed):
    with pytest.raises(InvalidInputError, match=allowed):
        check_solver(solver)


def test_numbers_of_numpy_are_numbers():
    check_solver(SPG(spectral=np.bool_(True), inner_tol=np.float32(0.01)))
    check_solver(ActiveSet(working_set=np.int64(3)))
    check_solver(MWU(omega=np.float64(2.0), max_iter=np.int32(5)))


def test_every_entry_checks():
    bad = ActiveSet(working_set=0)
    problem = small_problem()
    with pytest.raises(InvalidInputError, match="ActiveSet: working_set"):
        solve(problem, bad, Limits())
    with pytest.raises(InvalidInputError, match="ActiveSet: working_set"):
        solve_path(problem, [1.0], bad, Limits())
    X, y = np.linspace(-1, 1, 8)[:, None], np.repeat([0, 1], 4)
    with pytest.raises(InvalidInputError, match="ActiveSet: working_set"):
        MKLClassifier("linear", solver=bad).fit(X, y)
    # Before any kernel is computed: the kernels here do not exist.
    with pytest.raises(InvalidInputError, match="ActiveSet: working_set"):
        MKLClassifier("no such kernel", solver=bad).fit(X, y)
