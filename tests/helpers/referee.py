"""Small problems, and their optimum by a general convex solver."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import cvxpy as cp
import numpy as np
from true_certificate import constant_objective, dual_objective, primal_objective, relative_gap

from kernelweave.regularizers import L1, BlockNorm, ElasticNet, Entropy, LpBall, Simplex

__all__ = ["M", "N", "RefereeError", "make", "matrices", "referee"]

N, M = 24, 5
# Relative duality gaps at which no other solver is asked, and below which an answer counts: the
# tests compare objectives to 1e-6.
GOOD, ENOUGH = 1e-8, 2e-7
SOLVERS = [
    (cp.CLARABEL, {}),
    (cp.CLARABEL, {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}),
    (cp.SCS, {"eps_abs": 1e-10, "eps_rel": 1e-10, "max_iters": 200_000}),
]
# Written with the norms of the components, see `referee`.
BY_NORMS = Simplex | L1 | BlockNorm


def matrices(rng):
    return [A @ A.T / A.shape[1] for A in (rng.normal(size=(N, r)) for r in (2, 3, 5, 8, 30))]


class RefereeError(RuntimeError):
    """No general solver found the optimum to the accuracy that a referee needs."""


def referee(Ks, y, C, loss, regularizer, n_tasks, solvers=SOLVERS):
    """The problem written out for cvxpy: objective, weights and decision values at the optimum.

    Regularizers that put weights to zero are written with the norms of the components (the
    quotient |f_k|^2 / d_k of the weights form has no value there), the others with the weights.

    Tolerances of general solvers are absolute, so the objective is handed over as a multiple of
    that of the best constant function. An answer is believed if its duality gap says so, which is
    computed from the table of losses and regularizers: solvers are asked in turn until one does.
    """
    unit = constant_objective(y, C, loss) or 1.0
    written = _write(Ks, y, C / unit, loss, regularizer, n_tasks, unit)
    answers, notes = [], []
    for solver, settings in solvers:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            # An inaccurate answer is judged by its gap, like any other.
            warnings.simplefilter("ignore")
            try:
                written.problem.solve(solver=solver, **settings)
            except (cp.SolverError, ArithmeticError, ValueError) as error:
                notes.append(f"{solver}: {error}")
                continue
        if any(own.dual_value is None for own in written.defined):
            notes.append(f"{solver}: {written.problem.status}")
            continue
        answer = _judge(written, Ks, y, C, loss, regularizer, unit)
        notes.append(f"{solver}: relative duality gap {answer.gap:.1e}")
        answers.append(answer)
        if answer.gap <= GOOD:
            break
    best = min(answers, key=lambda answer: answer.gap, default=None)
    if best is None or not best.gap <= ENOUGH:
        raise RefereeError(
            f"no solver of cvxpy found the optimum of {loss!r} with {regularizer!r} to a relative "
            f"duality gap of {ENOUGH:g}: {'; '.join(notes)}."
        )
    return best.value, best.weights, best.decisions


class Written(NamedTuple):
    """A problem as cvxpy has it; `defined` are constraints that name the decision values."""

    problem: cp.Problem
    decisions: list
    defined: list
    components: list
    d: cp.Variable
    intercepts: cp.Variable


class Answer(NamedTuple):
    """An optimum, and the duality gap that it was found to have."""

    value: float
    weights: np.ndarray
    decisions: np.ndarray
    gap: float


def _write(Ks, y, C, loss, regularizer, n_tasks, unit):
    roots = []
    for K in Ks:
        values, vectors = np.linalg.eigh(K)
        keep = values > 1e-13 * max(values.max(), 0.0)
        roots.append(vectors[:, keep] * np.sqrt(values[keep]))
    w = [[cp.Variable(L.shape[1]) for L in roots] for _ in range(n_tasks)]
    b, z = cp.Variable(n_tasks), cp.Variable((n_tasks, len(Ks[0])))
    decisions = [
        sum(L @ v for L, v in zip(roots, own, strict=True)) + b[t] for t, own in enumerate(w)
    ]
    defined = [z[t] == decisions[t] for t in range(n_tasks)]
    terms = [cp.sum(cp.multiply(C[t], _loss(loss, y[t], z[t]))) for t in range(n_tasks)]
    components = [cp.hstack([own[k] for own in w]) for k in range(len(Ks))]
    constraints = []
    d = cp.Variable(len(Ks), nonneg=True)
    prices = []
    if isinstance(regularizer, BY_NORMS):
        prices.append(_omega(regularizer, cp.hstack([cp.norm(c, 2) for c in components])))
    else:
        prices.append(0.5 * sum(cp.quad_over_lin(c, d[k]) for k, c in enumerate(components)))
        constraints = _price_of_weights(regularizer, d, prices)
    problem = cp.Problem(cp.Minimize(sum(terms) + sum(prices) / unit), [*defined, *constraints])
    return Written(problem, decisions, defined, components, d, b)


def _judge(written, Ks, y, C, loss, regularizer, unit):
    """The answer of a solver and its gap.

    The dual variables are the multipliers of the constraints that name the decision values: what
    the losses lose if these are moved.
    """
    norms = np.array([np.linalg.norm(c.value) for c in written.components])
    z, b = np.array([own.value for own in written.decisions]), written.intercepts.value
    value = primal_objective(y, C, loss, regularizer, norms, z, b)
    alpha = unit * np.array([own.dual_value for own in written.defined])
    dual = max(dual_objective(Ks, y, C, loss, regularizer, sign * alpha) for sign in (1, -1))
    gap = abs(relative_gap(value, dual, 1e-12 * constant_objective(y, C, loss)))
    weights = written.d.value
    if isinstance(regularizer, BY_NORMS):
        weights = regularizer.weights_from_norms(norms)
    return Answer(value, weights, z, gap)


def _omega(regularizer, norms):
    if isinstance(regularizer, Simplex):
        return 0.5 * cp.square(cp.sum(norms))
    c = np.sqrt(2 * regularizer.weight)
    if isinstance(regularizer, L1):
        return c * cp.sum(norms)
    p, g = regularizer.p, regularizer.groups
    groups = [norms[first : first + g] for first in range(0, norms.shape[0], g)]
    return c * sum(cp.pnorm(own, 2 * p / (p + 1), approx=False) for own in groups)


def _price_of_weights(regularizer, d, terms):
    s = getattr(regularizer, "weight", None)
    if isinstance(regularizer, LpBall):
        return [cp.pnorm(d, regularizer.p, approx=False) <= 1]
    if isinstance(regularizer, Entropy):
        terms.append(s * (np.log(d.shape[0]) - cp.sum(cp.entr(d))))
        return [cp.sum(d) == 1]
    if isinstance(regularizer, ElasticNet):
        rho = regularizer.l1_ratio
        terms.append(s * rho * cp.sum(d) + 0.5 * s * (1 - rho) * cp.sum_squares(d))
    else:
        terms.append(0.5 * s * cp.square(cp.pnorm(d, regularizer.p, approx=False)))
    return []


def _loss(loss, y, z):
    margin = 1 - cp.multiply(y, z)
    return {
        "hinge": lambda: cp.pos(margin),
        "squared_hinge": lambda: cp.square(cp.pos(margin)),
        "logistic": lambda: cp.logistic(-cp.multiply(y, z)),
        "smooth_hinge": lambda: cp.logistic(loss.sigma * margin) / loss.sigma,
        "squared": lambda: cp.square(y - z),
        "epsilon_insensitive": lambda: cp.pos(cp.abs(y - z) - loss.epsilon),
    }[loss.name]()


def make(loss, n_tasks=1, seed=0):
    rng = np.random.default_rng(seed)
    Ks = matrices(rng)
    signal = Ks[1] @ rng.normal(size=N) + 0.3 * Ks[4] @ rng.normal(size=N)
    y = np.array([signal + 0.3 * rng.normal(size=N) for _ in range(n_tasks)])
    if loss.task == "classification":
        y = np.where(y > np.median(y), 1.0, -1.0)
        y[:, :4] *= -1
    C = rng.uniform(0.5, 2.0, size=(n_tasks, N))
    return Ks, y, C
