"""Run as a process: files that can only be begun; what is left of the old ones, as JSON."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path

from sklearn.datasets import load_iris

from kernelweave import Checkpoint, MKLClassifier, load, save
from kernelweave.errors import CheckpointWarning, ModelFileError
from kernelweave.kernels import RBF, Linear
from kernelweave.report import write_html


@contextmanager
def full_disk():
    """Let no file grow beyond 600 bytes."""
    # Without a handler of the signal, the write itself fails.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)


def main():
    folder = Path(sys.argv[1])
    X, y = load_iris(return_X_y=True)
    X, y = X[::2], y[::2]
    out = {}
    checkpoint = folder / "fit.npz"
    disk = full_disk()

    def fill(record):
        if record.iteration == 2:
            disk.__enter__()
        return record.iteration >= 6

    kernels = [RBF(width=w) for w in (0.5, 1.0, 3.0)] + [Linear()]
    settings = {"kernels": kernels, "solver": "spg", "tol": 1e-12}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        callbacks = [Checkpoint(checkpoint, every=1), fill]
        model = MKLClassifier(**settings, callbacks=callbacks).fit(X, y)
    disk.__exit__(None, None, None)
    out["warned"] = sum(issubclass(w.category, CheckpointWarning) for w in told)
    out["reached"] = model.history_[-1].iteration
    warnings.simplefilter("ignore")
    again = MKLClassifier(**settings, max_iter=4, warm_start_from=checkpoint).fit(X, y)
    out["resumed"] = again.history_[0].iteration

    file, page = folder / "model.skops", folder / "report.html"
    save(model, file)
    write_html(model, page)
    before = file.read_bytes(), page.read_bytes()
    other = MKLClassifier([Linear()]).fit(X, y)
    with full_disk():
        for name, work, error in (
            ("save", lambda: save(other, file), ModelFileError),
            ("report", lambda: write_html(other, page), OSError),
        ):
            try:
                work()
                out[name] = "written"
            except error as found:
                out[name] = str(found)
    out["same"] = before == (file.read_bytes(), page.read_bytes())
    out["loaded"] = bool((load(file).predict(X) == model.predict(X)).all())
    out["files"] = sorted(os.listdir(folder))
    print(json.dumps(out))


if __name__ == "__main__":
    main()
