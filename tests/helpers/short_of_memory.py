"""Run as a process: fits and predictions under limits of the address space; a line of JSON each."""

from __future__ import annotations

import json
import resource
import sys
import warnings

import numpy as np

from kernelweave import BayesianMKLClassifier, MKLClassifier, sample_ids
from kernelweave.errors import MemoryBudgetError
from kernelweave.kernels import RBF, from_matrices

N = 1200
KERNELS = [RBF(width=w) for w in (0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)]


def limit(megabytes):
    """Leave so much beyond what the process has now; None for no limit."""
    most = resource.RLIM_INFINITY
    if megabytes is not None:
        with open("/proc/self/status") as lines:
            has = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmSize"))
        most = has + int(1e6 * megabytes)
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


def tried(case, megabytes, work):
    limit(megabytes)
    try:
        said, value = "done", float(work())
    except MemoryBudgetError as error:
        said, value = str(error), None
    except BaseException as error:
        said, value = f"UNEXPECTED {type(error).__name__}: {error}", None
    limit(None)
    print(json.dumps([case, megabytes, said, value]), flush=True)


def main():
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 5))
    y = (X[:, 0] + X[:, 1] ** 2 + 0.3 * rng.normal(size=N) > 0.7).astype(int)
    models = {
        "auto": MKLClassifier(KERNELS, tol=1e-2),
        "dense": MKLClassifier(KERNELS, tol=1e-2, bank="dense"),
        "lazy": MKLClassifier(KERNELS, tol=1e-2, bank="lazy"),
        "bayes": BayesianMKLClassifier(KERNELS, max_iter=2),
    }
    # Threads and compiled code come first: their addresses are no kernels.
    for model in models.values():
        model.fit(X[:300], y[:300]).predict(X[:300])
    fitted = MKLClassifier(KERNELS, tol=1e-2).fit(X[:600], y[:600])
    new = np.repeat(X, 100, axis=0)
    whole = fitted.decision_function(new).sum()
    matrices = from_matrices([kernel(X) for kernel in KERNELS])
    ids = sample_ids(N)
    for megabytes in map(float, sys.argv[1:]):
        for name, model in models.items():
            tried(name, megabytes, lambda m=model: getattr(m.fit(X, y), "gap_", 0.0))
        given = MKLClassifier(matrices, tol=1e-2)
        tried("precomputed", megabytes, lambda m=given: m.fit(ids, y).gap_)
        tried("predict", megabytes, lambda: fitted.decision_function(new).sum() - whole)


if __name__ == "__main__":
    main()
