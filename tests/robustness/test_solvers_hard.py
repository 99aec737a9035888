"""Every solver on problems made to hurt: a true certificate, or a clear word that there is none.

Each fit is judged by objectives computed anew from plain arrays, in extended precision
(`true_certificate.py`). ``KERNELWEAVE_HARD=full`` takes ten times as many examples.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hard_problems import LOSSES, TROUBLES, check_fit, draw, fit, hard_settings
from hypothesis import example, given
from hypothesis import strategies as st
from thinned import thinned

from kernelweave.bank import DenseBank
from kernelweave.regularizers import L1, LpBall, Simplex
from kernelweave.solvers import SOLVERS

seeds = st.integers(0, 2**20)
every_solver = pytest.mark.parametrize("name", ["auto", *SOLVERS])


def check_dual_bounds(fits):
    """What one solver says is below the optimum is below what any other one has reached."""
    for name, done in fits.items():
        for other, reached in fits.items():
            if type(done.problem.regularizer) is not type(reached.problem.regularizer):
                continue
            if name in ("uniform", "align") or other in ("uniform", "align"):
                continue
            primal = reached.truth.primal
            slack = 1e-9 * max(1.0, abs(primal))
            assert done.result.certificate.dual <= primal + slack, (name, other)


@hard_settings(6)
@given(seed=seeds, troubles=st.lists(st.sampled_from(TROUBLES), max_size=4, unique=True))
def test_all_solvers_under_any_trouble(seed, troubles):
    problem = draw(seed, troubles)
    fits = {name: fit(problem, name) for name in ["auto", *SOLVERS]}
    fits = {name: done for name, done in fits.items() if done is not None}
    assert {"auto", "silp", "spg", "pgd", "uniform", "align"} <= set(fits)
    for done in fits.values():
        check_fit(done)
    check_dual_bounds(fits)


@every_solver
@hard_settings(6)
@given(seed=seeds, trouble=st.sampled_from(TROUBLES))
def test_each_solver_with_the_losses_it_likes_best(name, seed, trouble):
    """Hinge losses under simplex weights: all solvers take them."""
    loss = LOSSES[seed % 2]
    if name == "silp-chunking":
        loss = "hinge"
    done = fit(draw(seed, [trouble], loss, Simplex()), name)
    check_fit(done)
    if name != "pgd" and trouble != "sizes":
        assert done.result.converged


@example(seed=170, size=6, C=8)  # steps of cutting planes became infinitely stiff
@hard_settings(5)
@given(seed=seeds, size=st.integers(-12, 12), C=st.integers(-8, 8))
def test_one_scale_for_all_kernels_and_any_C(seed, size, C):
    """Kernels of one size are as good as those of size one with another C."""
    problem = draw(seed, ["rows"], regularizer=Simplex())
    Ks = problem.bank.block(np.arange(problem.n)) * 10.0**size
    problem = replace(
        problem, bank=DenseBank().from_matrices(list(Ks)), C=np.full(problem.C.shape, 10.0**C)
    )
    for name in ("auto", "silp", "spicy"):
        check_fit(fit(problem, name))


@pytest.mark.parametrize(
    ("seed", "troubles", "C"),
    [
        (1, ["sizes"], 3e7),
        (11, ["kinds", "lonely", "ties"], 3e9),
        (11, ["kinds", "lonely", "ties"], 1e10),
        (20, ["rows"], 5.9e8),
        (41, ["rows", "sizes", "targets"], 2.5e7),
        (46, ["rows", "sizes", "lonely"], 3e9),
    ],
)
def test_a_C_so_large_that_rounding_hides_the_gap(seed, troubles, C):
    """Kernels times alpha are what is left of the difference of huge numbers."""
    problem = draw(seed, troubles)
    problem = replace(problem, C=np.full(problem.C.shape, C))
    for name in ("auto", "silp", "spg"):
        check_fit(fit(problem, name, max_iter=3))


@pytest.mark.parametrize("name", ["auto", "spg", "silp", "spicy", "mwu"])
def test_one_sample_against_a_thousand(name):
    n = 1001
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    X[0] += 2.0
    Ks = [np.exp(-((X[:, None, k] - X[None, :, k]) ** 2)) for k in range(2)]
    problem = draw(0, loss="hinge", regularizer=Simplex())
    y = -np.ones((1, n))
    y[0, 0] = 1.0
    problem = replace(problem, bank=DenseBank().from_matrices(Ks), y=y, C=np.ones((1, n)))
    done = fit(problem, name)
    check_fit(done)
    assert done.result.converged


@pytest.mark.parametrize(
    ("name", "C"), thinned(["auto", "spg", "silp", "spicy", "mwu"], [1e-8, 1.0, 1e8])
)
def test_every_sample_twice_with_opposite_labels(name, C):
    """The best function is constant: kernels can tell nothing."""
    plain = draw(3, loss="hinge", regularizer=Simplex(), n=(8, 8))
    Ks = [np.tile(K, (2, 2)) for K in plain.bank.block(np.arange(8))]
    y = np.repeat([[1.0, -1.0]], 8, axis=1)
    problem = replace(plain, bank=DenseBank().from_matrices(Ks), y=y, C=np.full((1, 16), C))
    done = fit(problem, name)
    check_fit(done)
    # Rounds move two samples at a time, and have far to go.
    assert done.result.converged or (name, C) == ("mwu", 1e8)
    assert done.truth.primal == pytest.approx(16 * C, rel=5e-3, abs=1e-3)


@hard_settings(2)
@given(seed=seeds, C=st.integers(-8, 8))
def test_constant_labels_of_one_task(seed, C):
    """Several tasks share weights, and one of them has a single class."""
    problem = draw(seed, loss=LOSSES[seed % 4], n_tasks=2)
    y = problem.y.copy()
    y[1] = 1.0
    for regularizer in (Simplex(), L1(), LpBall()):
        made = replace(problem, y=y, C=np.full(y.shape, 10.0**C), regularizer=regularizer)
        for name in ("auto", "spg", "silp", "spicy"):
            check_fit(fit(made, name))
