"""Small problems, and their optimum by a general convex solver."""

from __future__ import annotations

import cvxpy as cp
import numpy as np

from kernelweave.regularizers import L1, BlockNorm, ElasticNet, Entropy, LpBall, Simplex

__all__ = ["M", "N", "make", "matrices", "referee"]

N, M = 24, 5
# Written with the norms of the components, see `referee`.
BY_NORMS = Simplex | L1 | BlockNorm


def matrices(rng):
    return [A @ A.T / A.shape[1] for A in (rng.normal(size=(N, r)) for r in (2, 3, 5, 8, 30))]


def referee(Ks, y, C, loss, regularizer, n_tasks):
    """The problem written out for cvxpy: objective, weights and decision values at the optimum.

    Regularizers that put weights to zero are written with the norms of the components (the
    quotient |f_k|^2 / d_k of the weights form has no value there), the others with the weights.
    """
    roots = []
    for K in Ks:
        values, vectors = np.linalg.eigh(K)
        keep = values > 1e-10
        roots.append(vectors[:, keep] * np.sqrt(values[keep]))
    w = [[cp.Variable(L.shape[1]) for L in roots] for _ in range(n_tasks)]
    decisions = [sum(L @ v for L, v in zip(roots, own, strict=True)) + cp.Variable() for own in w]
    terms = [cp.sum(cp.multiply(C[t], _loss(loss, y[t], decisions[t]))) for t in range(n_tasks)]
    components = [cp.hstack([own[k] for own in w]) for k in range(len(Ks))]
    constraints = []
    d = cp.Variable(len(Ks), nonneg=True)
    if isinstance(regularizer, BY_NORMS):
        terms.append(_omega(regularizer, cp.hstack([cp.norm(c, 2) for c in components])))
    else:
        terms.append(0.5 * sum(cp.quad_over_lin(c, d[k]) for k, c in enumerate(components)))
        constraints = _price_of_weights(regularizer, d, terms)
    problem = cp.Problem(cp.Minimize(sum(terms)), constraints)
    with np.errstate(divide="ignore", invalid="ignore"):
        problem.solve(solver=cp.CLARABEL)
    weights = d.value
    if isinstance(regularizer, BY_NORMS):
        weights = regularizer.weights_from_norms(
            np.array([np.linalg.norm(c.value) for c in components])
        )
    # Not `problem.value`, which divides by weights that are zero to the last digit.
    return problem.solution.opt_val, weights, np.array([z.value for z in decisions])


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
