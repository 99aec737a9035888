"""Run as a process: the same fits in threads, forked and spawned processes; their digests as JSON.

Whoever calls it sets a time limit: a child that waits for a thread it does not have never ends.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np

from kernelweave import BayesianMKLClassifier, MKLClassifier
from kernelweave.kernels import RBF, Linear, Polynomial

KERNELS = [RBF(width=w) for w in (0.5, 1.0, 2.0, 4.0)] + [Linear(), Polynomial(2)]
MODELS = {
    "auto": lambda jobs: MKLClassifier(KERNELS, tol=1e-2, n_jobs=jobs),
    "silp": lambda jobs: MKLClassifier(KERNELS, tol=1e-2, solver="silp", n_jobs=jobs),
    "spg": lambda jobs: MKLClassifier(
        KERNELS, tol=1e-2, solver="spg", regularizer="lp_ball", n_jobs=jobs
    ),
    "spicy": lambda jobs: MKLClassifier(
        KERNELS, tol=1e-2, loss="logistic", solver="spicy", n_jobs=jobs
    ),
    "mwu": lambda jobs: MKLClassifier(
        KERNELS, tol=1e-2, solver="mwu", loss="squared_hinge", n_jobs=jobs
    ),
    "bayes": lambda jobs: BayesianMKLClassifier(KERNELS, max_iter=10, n_jobs=jobs),
}


def answer(name, jobs=2, seed=0):
    """Fit, and give one name to all that was learnt."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(seed)
    # Enough of them for several threads to be worth their while.
    X = rng.normal(size=(450, 6))
    y = (X[:, 0] + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=len(X)) > 0).astype(int)
    model = MODELS[name](jobs).fit(X, y)
    found = hashlib.sha256(np.ascontiguousarray(model.weights_).tobytes())
    values = model.decision_function(X) if name != "bayes" else model.predict_proba(X)
    found.update(np.ascontiguousarray(values).tobytes())
    return found.hexdigest()


def thread_numbers():
    """By one thread and by two."""
    return {name: [answer(name, jobs) for jobs in (1, 2)] for name in MODELS}


def threads():
    """Fits at once in threads of the user's own, on the same data and on others."""
    alone = [answer("auto"), answer("silp"), answer("auto", seed=1), answer("bayes")]
    work = [("auto", 2, 0), ("silp", 2, 0), ("auto", 2, 1), ("bayes", 2, 0)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda args: answer(*args), work * 2))
    return {f"{args}": [alone[i], *together[i::4]] for i, args in enumerate(work)}


def joblib_workers():
    """Processes of joblib, started afresh, and its threads."""
    out = {"auto": [answer("auto")]}
    for backend in ("loky", "threading"):
        run = joblib.Parallel(2, backend=backend)
        out["auto"] += run(joblib.delayed(answer)("auto") for _ in range(2))
    return out


def _pooled(method, while_fitting=False):
    names = list(MODELS)
    out = {name: [answer(name)] for name in names}
    other = threading.Thread(target=lambda: [answer("auto", seed=s) for s in range(3)])
    if while_fitting:
        other.start()
    with multiprocessing.get_context(method).Pool(1 if method == "spawn" else 2) as pool:
        for name, found in zip(names, pool.map(answer, names), strict=True):
            out[name].append(found)
    if while_fitting:
        other.join()
    return out


WORK = {
    "thread_numbers": thread_numbers,
    "threads": threads,
    "joblib_workers": joblib_workers,
    "forked": lambda: _pooled("fork"),
    "forked_while_fitting": lambda: _pooled("fork", while_fitting=True),
    "spawned": lambda: _pooled("spawn"),
}


if __name__ == "__main__":
    print(json.dumps(WORK[sys.argv[1]]()))
