"""Run as a process: the peak memory of fits and predictions; reads and writes lines of JSON."""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np

from kernelweave import MKLClassifier
from kernelweave.kernels import RBF, RBFBatch


def status(key):
    with open("/proc/self/status") as lines:
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(key))


def peak_of(work):
    """Bytes of memory in use at most, above those before."""
    # The high-water mark starts anew. (ru_maxrss would begin with that of the parent process.)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = status("VmRSS")
    work()
    return status("VmHWM") - before


def data(n, classes=2):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5))
    score = X[:, 0] + X[:, 1] ** 2 + 0.3 * rng.normal(size=n)
    return X, np.searchsorted(np.quantile(score, np.linspace(0, 1, classes + 1)[1:-1]), score)


def kernels_of(case):
    if case.get("combination") == "product":
        return "features"
    if case.get("batch"):
        return RBFBatch.random(case["m"], 5, sizes=(1, 3), random_state=0)
    return [RBF(width=w) for w in np.geomspace(0.3, 8.0, case["m"])]


def model_of(case, cache_mb):
    names = ("solver", "loss", "combination", "regularizer", "max_time", "multi_class", "tol")
    settings = {name: case[name] for name in names if name in case}
    return MKLClassifier(kernels_of(case), bank="lazy", cache_mb=cache_mb, **settings)


def measured(case):
    classes = case.get("classes", 2)
    few, labels = data(300, classes)
    # What is compiled and what threads take is there before; with and without a matrix.
    for cache_mb in (100, 0.1):
        model_of(case, cache_mb).fit(few, labels).predict(few)
    X, y = data(case["n"], classes)
    model = model_of(case, case["cache_mb"])
    fit = peak_of(lambda: model.fit(X, y))
    new = np.repeat(X, 5, axis=0)
    return fit, peak_of(lambda: model.predict(new))


def main():
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        case = json.loads(line)
        print(json.dumps([case, *measured(case)]), flush=True)


if __name__ == "__main__":
    main()
