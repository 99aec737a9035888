"""One fit of the MWUMKL experiments, timed, here or in a process of its own; see mwu.py."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from memory_use import forget_peak, memory_mb
from mwu_data import LARGE, load, million_kernels, per_feature_kernels, split, twelve_kernels
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import LinearSVC

from kernelweave import MKLClassifier, NystromMKLClassifier
from kernelweave.kernels import Kernel, OnColumns
from kernelweave.solvers import MWU

# Method -> loss. The 2-norm soft margin for all but "hinge" and "uniform", as LIBLINEAR has it.
METHODS = {
    "mwu": "squared_hinge",
    "mwu hinge": "hinge",
    "mwu paper": "squared_hinge",
    "nystrom": "squared_hinge",
    "uniform": "squared_hinge",
    "plain liblinear+": "squared_hinge",
}
FOREVER = 10**9
# Fits of fewer seconds are made three times, and the shortest time counts.
SHORT = 5.0


@dataclass(frozen=True)
class Job:
    """What to fit. `kernels`: three, twelve, features or batch; m cuts the last two."""

    name: str
    kernels: str
    method: str
    C: float = 1.0
    eps: float = 0.2
    tol: float = 1e-2
    n_train: int | None = None
    n_test: int | None = None
    m: int | None = None
    bank: str = "auto"
    n_components: int = 150
    max_time: float | None = None
    seed: int = 0
    data_dir: str | None = None


def kernels_of(job: Job, n_features: int) -> Any:
    if job.kernels == "three":
        return LARGE[job.name][1]
    if job.kernels == "twelve":
        return twelve_kernels()
    if job.kernels == "features":
        return per_feature_kernels(n_features, job.m)
    return million_kernels(job.m or 1_000_000, n_features)


def make_model(job: Job, kernels: Any) -> Any:
    if job.method == "nystrom":
        return NystromMKLClassifier(
            kernels, C=job.C, n_components=job.n_components, random_state=job.seed
        )
    if job.method == "plain liblinear+":
        return plain_liblinear(kernels, job)
    solver: Any = "uniform"
    if job.method != "uniform":
        omega = "paper" if job.method == "mwu paper" else "auto"
        solver = MWU(eps=job.eps, omega=omega)
    return MKLClassifier(
        kernels,
        C=job.C,
        loss=METHODS[job.method],
        solver=solver,
        # The paper makes its T rounds, whatever the gap.
        tol=min(job.tol, 1e-3) if job.method == "mwu paper" else job.tol,
        bank=job.bank,
        max_iter=FOREVER,
        max_time=job.max_time,
    )


def plain_liblinear(kernels: list[Kernel], job: Job) -> Pipeline:
    """LIBLINEAR+ as in the paper: scikit-learn's Nystroem for every kernel, and LinearSVC."""
    parts = [(str(k), _plain_features(kernel, job)) for k, kernel in enumerate(kernels)]
    return make_pipeline(FeatureUnion(parts), LinearSVC(C=job.C, random_state=job.seed))


def _plain_features(kernel: Kernel, job: Job) -> Any:
    core, columns = kernel, None
    if isinstance(kernel, OnColumns):
        core, columns = kernel.kernel, [kernel.selection.columns]
    common = {"n_components": job.n_components, "random_state": job.seed}
    if hasattr(core, "degree"):
        part = Nystroem(kernel="poly", degree=core.degree, gamma=1.0, coef0=1.0, **common)
    else:
        part = Nystroem(kernel="rbf", gamma=0.5 / core.width**2, **common)
    if columns is None:
        return part
    return make_pipeline(FunctionTransformer(_Columns(columns)), part)


@dataclass(frozen=True)
class _Columns:
    columns: list[int]

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return X[:, self.columns]


def fit_here(job: Job) -> dict[str, Any]:
    """Fit in this process; time, accuracy, certificate and memory."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    X, y = load(job.name, job.data_dir)
    train, test, y_train, y_test = split(X, y, job.seed, job.n_train, job.n_test)
    if job.kernels == "batch":
        # As in million_kernels.py: all rows, standardised.
        train = test = (X - X.mean(axis=0)) / X.std(axis=0)
        y_train = y_test = y
    kernels = kernels_of(job, train.shape[1])
    few = kernels if job.kernels != "batch" else million_kernels(3000, train.shape[1])
    few = few[:24] if isinstance(few, list) else few
    small = np.concatenate([np.flatnonzero(y_train == label)[:60] for label in (-1, 1)])
    compiling = Job(**{**asdict(job), "max_time": 2.0, "eps": 0.5, "n_components": 10})
    make_model(compiling, few).fit(train[small], y_train[small])
    model = make_model(job, kernels)
    forget_peak()
    before = memory_mb("VmRSS")
    seconds = np.inf
    for _ in range(3):
        began = time.perf_counter()
        model.fit(train, y_train)
        seconds = min(seconds, time.perf_counter() - began)
        if seconds > SHORT:
            break
    result = {"seconds": seconds, "n": len(y_train), "above_mb": memory_mb("VmHWM") - before}
    result["accuracy"] = 100.0 * model.score(test, y_test)
    if isinstance(model, MKLClassifier):
        result["gap"], result["rounds"] = model.gap_, model.history_[-1].inner_iterations
        result["support"] = len(model.support_)
        result["used"] = int(np.count_nonzero(model.weights_ > 1e-6))
        result["weights"] = [float(w) for w in model.weights_[:20]]
        result["ended"] = "converged" if model.converged_ else "stopped"
    return result


def fit_apart(job: Job, patience: float | None = None) -> dict[str, Any]:
    """`fit_here` in a process of its own, so that its peak memory is its own.

    After `patience` seconds, kernels and all, it is ended and the result has nothing but these.
    """
    command = [sys.executable, __file__, json.dumps(asdict(job))]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=patience
        )
    except subprocess.TimeoutExpired:
        return {"more_than": patience}
    if done.returncode:
        raise RuntimeError(f"{job}\n{done.stderr}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def choose_C(job: Job, grid: list[float], rows: int) -> float:
    """The first best C of the grid: fits on 80 per cent of `rows` training rows, judged by 20."""
    X, y = load(job.name, job.data_dir)
    train, _, y_train, _ = split(X, y, job.seed)
    X_part, X_judge, y_part, y_judge = split(train[:rows], y_train[:rows], job.seed + 1)
    scores = []
    for C in grid:
        trial = Job(**{**asdict(job), "C": C})
        model = make_model(trial, kernels_of(job, train.shape[1])).fit(X_part, y_part)
        scores.append(model.score(X_judge, y_judge))
    return grid[int(np.argmax(scores))]


if __name__ == "__main__":
    print(json.dumps(fit_here(Job(**json.loads(sys.argv[1])))))
