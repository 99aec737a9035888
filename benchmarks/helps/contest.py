"""The contestants on one split: the same arrays, folds and metric for all."""

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, balanced_accuracy_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import SVC

from benchmarks.helps.problems import Problem
from benchmarks.timing import Budget, seconds_of
from kernelweave import BayesianMKLClassifier, MKLClassifier, MKLClassifierCV
from kernelweave.kernels import Kernel
from kernelweave.regularizers import LpBall

CS = (0.01, 0.1, 1.0, 10.0, 100.0)
# Certified relative duality gap of every convex fit.
TOL = 1e-2
# Processor seconds after which a fit ends: of a convex solver other than "auto", and of Bayes.
SECONDS, BAYES_SECONDS = 2.0, 8.0
# Solvers of the simplex problem beside "auto", at the C that was chosen with "auto".
SOLVERS = ("silp", "spg", "spicy", "mwu")
_SINGLES, _FINALISTS = 39, 5


def run_contest(problem: Problem, seed: int) -> dict[str, dict[str, Any]]:
    """Fit every contestant once; scores on the test rows, and what the certificates say."""
    folds = list(
        StratifiedKFold(3, shuffle=True, random_state=seed).split(problem.y_train, problem.y_train)
    )
    found: dict[str, dict[str, Any]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)
        for name, settings in (
            ("auto", {}),
            ("lp2", {"regularizer": LpBall(2.0)}),
            ("uniform", {"solver": "uniform"}),
        ):
            found[name] = _timed(lambda s=settings: _with_cv(problem, folds, s))
        for solver in SOLVERS:
            found[solver] = _timed(lambda s=solver: _with_solver(problem, s, found["auto"]["C"]))
        found["bayes"] = _timed(lambda: _bayes(problem, seed))
        found["single"] = _timed(lambda: _best_single(problem, folds))
        found["svc"] = _timed(lambda: _svc(problem, folds))
    return found


def _timed(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    seconds, result = seconds_of(work, time.process_time)
    return {**result, "seconds": round(seconds, 3)}


def _metric(problem: Problem) -> tuple[Callable[..., float], str]:
    if problem.balanced:
        return balanced_accuracy_score, "balanced_accuracy"
    return accuracy_score, "accuracy"


def _weights(problem: Problem) -> str | None:
    """Return the `class_weight` that goes with the metric; Bayesian MKL has none."""
    return "balanced" if problem.balanced else None


def _shared(problem: Problem) -> dict[str, Any]:
    return {"tol": TOL, "class_weight": _weights(problem), "n_jobs": 1}


def _score(problem: Problem, predicted: np.ndarray) -> float:
    return float(_metric(problem)[0](problem.y_test, predicted))


def _with_cv(problem: Problem, folds: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """C by cross-validation on the training rows, along a path."""
    settings = {"scoring": _metric(problem)[1], **_shared(problem), **settings}
    model = MKLClassifierCV(problem.kernels, Cs=CS, cv=folds, **settings)
    model.fit(problem.train, problem.y_train)
    used = int((model.weights_ > 1e-4).sum())
    found = {"C": float(model.C_), "cv": float(model.best_score_), "kernels": used}
    return {**_convex(problem, model), **found}


def _with_solver(problem: Problem, solver: str, C: float) -> dict[str, Any]:
    settings = {"callbacks": [Budget(SECONDS)], **_shared(problem)}
    model = MKLClassifier(problem.kernels, C=C, solver=solver, **settings)
    return _convex(problem, model.fit(problem.train, problem.y_train))


def _convex(problem: Problem, model: Any) -> dict[str, Any]:
    return {
        "score": _score(problem, model.predict(problem.test)),
        "objective": float(model.objective_),
        "dual": float(model.dual_objective_),
        "gap": float(model.gap_),
    }


def _bayes(problem: Problem, seed: int) -> dict[str, Any]:
    model = BayesianMKLClassifier(
        problem.kernels, n_jobs=1, random_state=seed, callbacks=[Budget(BAYES_SECONDS)]
    ).fit(problem.train, problem.y_train)
    score = _score(problem, model.predict(problem.test))
    return {"score": score, "converged": bool(model.converged_)}


def _best_single(problem: Problem, folds: Any) -> dict[str, Any]:
    """The kernel and the C with the best score in cross-validation, and the machine on it.

    Of kernels on single columns only those best aligned with the classes are tried.
    """
    matrices = [_gram(kernel, problem.train) for kernel in _candidates(problem)]
    first = [_cv(problem, matrix, 1.0, folds) for _, matrix in matrices]
    best = np.argsort(first)[::-1][:_FINALISTS]
    ranked = [(_cv(problem, matrices[k][1], C, folds), k, C) for k in best for C in CS]
    _, chosen, C = max(ranked, key=lambda trial: trial[0])
    kernel = matrices[chosen][0]
    model = MKLClassifier([kernel], C=C, solver="uniform", **_shared(problem))
    model.fit(problem.train, problem.y_train)
    return {"score": _score(problem, model.predict(problem.test)), "kernel": kernel.name, "C": C}


def _candidates(problem: Problem) -> list[Kernel]:
    kernels, whole = problem.kernels, problem.whole
    if len(kernels) <= _SINGLES:
        return kernels
    aligned = MKLClassifier(kernels, solver="align", tol=TOL, n_jobs=1)
    weights = aligned.fit(problem.train, problem.y_train).weights_[whole:]
    best = np.argsort(weights)[::-1][: _SINGLES - whole]
    return kernels[:whole] + [kernels[whole + k] for k in best]


def _gram(kernel: Kernel, train: Any) -> tuple[Kernel, np.ndarray]:
    """Return the kernel and its matrix, of mean diagonal 1 as MKL has it."""
    K = np.asarray(kernel(train), dtype=float)
    return kernel, K / np.diagonal(K).mean()


def _cv(problem: Problem, K: np.ndarray, C: float, folds: Sequence[Any]) -> float:
    """Mean score of a support vector machine on one matrix."""
    metric, y = _metric(problem)[0], problem.y_train
    scores = []
    for train, test in folds:
        machine = SVC(C=C, kernel="precomputed", class_weight=_weights(problem), max_iter=20_000)
        machine.fit(K[np.ix_(train, train)], y[train])
        scores.append(metric(y[test], machine.predict(K[np.ix_(test, train)])))
    return float(np.mean(scores))


def _svc(problem: Problem, folds: Any) -> dict[str, Any]:
    """What one would do without MKL: one kernel, tuned by a grid."""
    if problem.alone:
        return _svc_on_sequences(problem, folds)
    gamma = 1.0 / problem.train.shape[1]
    grid = {"C": list(CS), "gamma": [gamma * 4.0**j for j in range(-2, 3)]}
    machine = SVC(class_weight=_weights(problem), max_iter=100_000)
    search = GridSearchCV(machine, grid, cv=folds, scoring=_metric(problem)[1], n_jobs=1)
    search.fit(problem.train, problem.y_train)
    return {"score": _score(problem, search.predict(problem.test)), "C": search.best_params_["C"]}


def _svc_on_sequences(problem: Problem, folds: Any) -> dict[str, Any]:
    matrices = [_gram(kernel, problem.train) for kernel in problem.alone]
    trials = [(_cv(problem, K, C, folds), k, C) for k, (_, K) in enumerate(matrices) for C in CS]
    _, chosen, C = max(trials, key=lambda trial: trial[0])
    kernel, K = matrices[chosen]
    scale = np.diagonal(np.asarray(kernel(problem.train), dtype=float)).mean()
    machine = SVC(C=C, kernel="precomputed", class_weight=_weights(problem))
    machine.fit(K, problem.y_train)
    against = np.asarray(kernel(problem.test, problem.train), dtype=float) / scale
    return {"score": _score(problem, machine.predict(against)), "kernel": kernel.name, "C": C}
