"""Signals and full disks: what was written last is whole, and the fit goes on from it."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from cut_fits import cut_short, resumed, saved_iteration

from kernelweave import MKLClassifier
from kernelweave.errors import CheckpointWarning

HELPERS = Path(__file__).parents[1] / "helpers"
PATIENCE = 600

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals and limits of Unix"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


def test_a_disk_that_runs_full(tmp_path):
    """Real writes that fail half-way, of checkpoints, models and reports."""
    done = subprocess.run(
        [sys.executable, HELPERS / "full_disk.py", tmp_path],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["reached"] == 6 and found["warned"] >= 1
    assert found["resumed"] == 2
    assert "cannot be written" in found["save"] and "too large" in found["report"].lower()
    assert found["same"] and found["loaded"]
    assert found["files"] == ["fit.npz", "model.skops", "report.html"]


LONG = """
import sys
from sklearn.datasets import load_iris
from kernelweave import Checkpoint, MKLClassifier
X, y = load_iris(return_X_y=True)
def told(record):
    if record.iteration >= 5:
        print(record.iteration, flush=True)
model = MKLClassifier(solver="spg", regularizer="lp_ball", tol=1e-300, max_iter=10**8,
                      callbacks=[Checkpoint(sys.argv[1], every="1h"), told])
model.fit(X, y)
# On a line of its own: the signal may come in the middle of what `told` prints.
print("\\nended", model.history_[-1].iteration, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_from_outside(number, path):
    """Ctrl-C ends a fit with what it has; whatever comes, the last file is whole."""
    process = subprocess.Popen(
        [sys.executable, "-c", LONG, path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        first = process.stdout.readline()
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    assert first.strip() == "5", err
    if number == signal.SIGINT:
        assert process.returncode == 0 and "InterruptedFitWarning" in err, err
        word, last = out.splitlines()[-1].split()
        # The signal may come between the line of an iteration and what is kept of it.
        assert word == "ended" and saved_iteration(path) in (int(last) - 1, int(last))
    else:
        assert process.returncode == -number
        assert saved_iteration(path) == 0
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def interrupted(what):
    """Send Ctrl-C to a process that fits; how it ended."""
    process = subprocess.Popen(
        [sys.executable, HELPERS / "interrupted_fits.py", what],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert first.strip() == "now" and process.returncode == 0, err
    found = json.loads(out)
    # Of a processor, so that a busy machine makes no test fail.
    assert found["seconds"] < 1.3
    return found


@pytest.mark.parametrize("solver", ["spicy hinge", "spicy logistic", "silp-chunking"])
def test_ctrl_c_in_mid_fit_keeps_a_model(solver):
    found = interrupted(solver)
    assert found["end"] == "model" and found["fitted"] and found["warned"] == [True]
    assert found["bounds"][0] <= found["bounds"][1] and found["predicts"] == 5


@pytest.mark.parametrize("bank", ["dense", "factored"])
def test_ctrl_c_while_a_bank_is_built(bank):
    found = interrupted(bank)
    assert found["end"] == "KeyboardInterrupt" and not found["fitted"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_file_system_that_gives_up(code, call, path, cancer, monkeypatch):
    model = MKLClassifier("simplemkl", solver="spg", tol=1e-4)
    cut_short(model, path, 3, *cancer)

    def fail(*args):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        patch.setattr(os, call, fail)
        assert cut_short(model, path, 6, *cancer).history_[-1].iteration == 6
    said = [str(w.message) for w in told if issubclass(w.category, CheckpointWarning)]
    assert said and all(os.strerror(code) in text for text in said)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert saved_iteration(path) == 3
    assert resumed(model, path, *cancer).history_[0].iteration == 3
