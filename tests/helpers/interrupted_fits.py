"""Run as a process: a long fit that is sent Ctrl-C; how it ended, as JSON.

Says "now" when it is in the middle of what its argument names.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
import threading
import time
import warnings

import numpy as np

from kernelweave import MKLClassifier
from kernelweave.errors import InterruptedFitWarning
from kernelweave.kernels import RBF, Kernel

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2000, 10))
Y = X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2]) + 0.5 * RNG.normal(size=len(X)) > 0


def say_now(record=None):
    """Once: what comes after it is to be interrupted."""
    if not said:
        said.append(True)
        print("now", flush=True)


said: list[bool] = []


class Slow(Kernel):
    """A Gaussian kernel, known by its values only, which says that it is being evaluated."""

    def __init__(self, width=1.0):
        self.width = width

    @property
    def name(self):
        return f"slow {self.width:g}"

    def evaluate(self, pair):
        if compiled:
            say_now()
        return np.exp(-pair.sqdist / self.width**2)

    def diagonal(self, samples):
        return np.ones(samples.n)


compiled: list[bool] = []


def model_of(what):
    if what in ("dense", "factored"):
        return MKLClassifier([Slow(w) for w in np.geomspace(0.5, 10, 20)], bank=what, n_jobs=1)
    kernels = [RBF(width=w) for w in np.geomspace(0.5, 10, 8)]
    # Nothing is kept, so that every pass computes them.
    long = {"bank": "lazy", "cache_mb": 20, "tol": 1e-12, "n_jobs": 1, "callbacks": [say_now]}
    solver, _, loss = what.partition(" ")
    return MKLClassifier(kernels, solver=solver, loss=loss or "hinge", C=100.0, **long)


def main(what):
    model = model_of(what)
    few = MKLClassifier(**{**model.get_params(), "max_iter": 2, "callbacks": ()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        few.fit(X[:80], Y[:80])
    compiled.append(True)
    pressed = []
    # A byte is written when the signal comes, whatever the interpreter is doing.
    here, there = socket.socketpair()
    there.setblocking(False)
    signal.set_wakeup_fd(there.fileno())

    def note():
        here.recv(1)
        pressed.append(time.process_time())

    watcher = threading.Thread(target=note, daemon=True)
    watcher.start()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            model.fit(X, Y)
            end = "model"
        except KeyboardInterrupt:
            end = "KeyboardInterrupt"
    ended = time.process_time()
    watcher.join()
    found = {"end": end, "seconds": ended - pressed[0], "fitted": hasattr(model, "weights_")}
    if end == "model":
        found["warned"] = [w.category is InterruptedFitWarning for w in told]
        found["bounds"] = [float(model.dual_objective_), float(model.objective_)]
        found["predicts"] = len(model.predict(X[:5]))
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
