"""One evaluator for all contestants: what weights are worth in the MKL problem.

Weights are brought onto the simplex (negative ones to zero, then divided by their sum), and the
problem at these weights is solved by scikit-learn's SVC to a tolerance of 1e-6, or by a linear
system for the squared loss. The optimum is kernelweave's lower bound at a gap of 1e-6.
"""

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, r2_score
from sklearn.svm import SVC

from benchmarks.peers.data import CLASSES, NUMBERS, Data
from benchmarks.peers.kernelweave import estimator
from kernelweave import sample_ids
from kernelweave.kernels import from_matrices


def onto_simplex(weights: NDArray) -> NDArray:
    """Return weights as rows on the simplex; equal ones if nothing is left of a row."""
    rows = np.clip(np.nan_to_num(np.atleast_2d(weights)), 0.0, None)
    sums = rows.sum(axis=1, keepdims=True)
    return np.where(sums > 0, rows / np.where(sums > 0, sums, 1.0), 1.0 / rows.shape[1])


def evaluate(data: Data, weights: NDArray) -> tuple[float, float]:
    """Return the objective at these weights, and the score of its solution on the test rows.

    With several classes objectives of one against the rest are added up.
    """
    signs = targets(data)
    rows = np.broadcast_to(onto_simplex(weights), (len(signs), len(data.grams)))
    solve = ridge if data.kind == NUMBERS else machine
    values, decisions = zip(
        *(solve(data, y, d) for y, d in zip(signs, rows, strict=True)), strict=True
    )
    return float(sum(values)), score(data, np.array(decisions))


def targets(data: Data) -> NDArray:
    if data.kind != CLASSES:
        return data.y[None]
    return np.where(data.y == np.unique(data.y)[:, None], 1.0, -1.0)


def score(data: Data, decisions: NDArray) -> float:
    truth = data.y[data.test]
    if data.kind == NUMBERS:
        return float(r2_score(truth, decisions[0]))
    if data.kind == CLASSES:
        return float(accuracy_score(truth, np.unique(data.y)[decisions.argmax(axis=0)]))
    return float(accuracy_score(truth, np.where(decisions[0] >= 0, 1.0, -1.0)))


def combined(data: Data, d: NDArray, left: NDArray) -> NDArray:
    """Return the weighted sum of the matrices between some rows and the training rows."""
    kept = np.flatnonzero(d)
    parts = data.grams[kept[:, None, None], left[:, None], data.train]
    return np.tensordot(d[kept], parts, axes=1)


def machine(data: Data, y: NDArray, d: NDArray) -> tuple[float, NDArray]:
    """Return the value of a support vector machine, and its decisions on the test rows."""
    K = combined(data, d, data.train)
    target = y[data.train]
    svm = SVC(C=data.C, kernel="precomputed", tol=1e-6).fit(K, target)
    alpha = np.zeros(len(K))
    alpha[svm.support_] = svm.dual_coef_[0]
    losses = np.maximum(0.0, 1.0 - target * (K @ alpha + svm.intercept_))
    value = 0.5 * alpha @ K @ alpha + data.C * losses.sum()
    return value, combined(data, d, data.test) @ alpha + svm.intercept_


def ridge(data: Data, y: NDArray, d: NDArray) -> tuple[float, NDArray]:
    """Return the value of kernel ridge regression with an intercept, and its test values."""
    K = combined(data, d, data.train)
    n, target = len(K), y[data.train]
    system = np.ones((n + 1, n + 1))
    system[:n, :n] = K + np.eye(n) / (2 * data.C)
    system[n, n] = 0.0
    *alpha, intercept = np.linalg.solve(system, np.append(target, 0.0))
    alpha = np.array(alpha)
    left = target - K @ alpha - intercept
    value = data.C * left @ left + 0.5 * alpha @ K @ alpha
    return value, combined(data, d, data.test) @ alpha + intercept


def optimum(data: Data) -> float:
    """Return a lower bound on the objective of all weights, 1e-6 of it from the best at most."""
    options = {"multi_class": "ovr"} if data.kind == CLASSES else {}
    kernels = from_matrices(list(data.grams))
    model = estimator(data, kernels, normalize=None, tol=1e-6, max_iter=10_000, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(sample_ids(len(data.y))[data.train], data.y[data.train])
    return model.dual_objective_
