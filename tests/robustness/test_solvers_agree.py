"""All solvers end at the optimum of a general convex solver, on random problems.

25 problems as a rule, 200 with ``KERNELWEAVE_HARD=full``.
"""

from __future__ import annotations

import numpy as np
import pytest
from hard_problems import FULL, check_fit, draw, fit
from referee import referee

from kernelweave.solvers import SOLVERS

# Projected gradient descent is there to be compared with, and may not get that far.
SLOW = "pgd"
TOL, MOST = 1e-4, (1000, 100)


@pytest.mark.parametrize("seed", range(200 if FULL else 25))
def test_same_optimum(seed):
    problem = draw(seed, n=(8, 25), m=(1, 8))
    Ks = list(problem.bank.block(np.arange(problem.n)))
    value, _, _ = referee(Ks, problem.y, problem.C, problem.loss, problem.regularizer, 1)
    unit = abs(value)
    taken = 0
    for name in ["auto", *SOLVERS]:
        done = fit(problem, name, TOL, max_iter=MOST[name == SLOW])
        # Fixed weights are a problem of their own.
        if done is None or type(done.problem.regularizer) is not type(problem.regularizer):
            continue
        check_fit(done, TOL)
        assert done.result.converged or name == SLOW, name
        taken += done.result.converged
        certificate = done.result.certificate
        assert certificate.dual <= value + 1e-6 * unit, name
        assert certificate.primal >= value - 1e-6 * unit, name
        assert done.truth.primal >= value - 1e-6 * unit, name
    assert taken >= 3
