"""The first seconds: what an import loads, what is compiled, and what the user is told of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from numba.core import event

from kernelweave import BayesianMKLClassifier, MKLClassifier
from kernelweave.compiled import first_run

# Fits that between them take the usual ways through the compiled code.
FITS = """
import warnings
import numpy as np
from kernelweave import BayesianMKLClassifier, MKLClassifier
from kernelweave.kernels import RBFBatch, Spectrum, WeightedDegree

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 3))
y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
sites = ["".join(rng.choice(list("ACGT"), 20)) for _ in range(40)]
tables = [
    MKLClassifier(),
    MKLClassifier("simplemkl", bank="factored"),
    MKLClassifier(bank="lazy"),
    MKLClassifier(solver="mwu", tol=1e-2),
    MKLClassifier(RBFBatch.random(30, 3, sizes=(1, 2)), bank="auto"),
    MKLClassifier(combination="product", regularizer="l1"),
    BayesianMKLClassifier(max_iter=5),
]
strings = [MKLClassifier(WeightedDegree(3).by_position(5)), MKLClassifier(Spectrum(3))]
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for model in tables:
        model.fit(X, y).predict(X[:5])
    for model in strings:
        model.fit(sites, y).predict(sites[:5])
"""


def run(script, **environment):
    """The last line that a script prints in a process of its own, read as JSON; and its stderr."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_a_second_process_loads_little_and_compiles_nothing():
    exec(FITS, {})  # whatever is not in the cache on disk is compiled here
    script = f"""
    import json, sys
    import kernelweave
    early = sorted({{"numba", "scipy", "sklearn", "numpy", "polars"}} & set(sys.modules))
    import sklearn.svm, sklearn.model_selection, scipy.stats
    before = set(sys.modules)
    from kernelweave import MKLClassifier
    late = sorted({{name.split(".")[0] for name in set(sys.modules) - before}})
    from numba.core import event

    class Heard(event.Listener):
        names = []
        def on_start(self, event):
            self.names.append(str(event.data["dispatcher"]))
        def on_end(self, event):
            pass

    with event.install_listener("numba:compile", Heard()):
        exec({FITS!r}, {{}})
    print(json.dumps([early, late, Heard.names]))
    """
    (early, late, compiled), stderr = run(script)
    assert early == []
    heavy = {"matplotlib", "rich", "typer", "polars", "jinja2", "skops", "dask", "distributed"}
    assert "numba" in late
    assert not heavy & set(late)
    assert compiled == []
    assert "compiling" not in stderr


# A folder for what is compiled


def test_where_nothing_can_be_cached_the_temporary_folder_is_taken(tmp_path):
    """A read-only install and no home: Numba would refuse to define a single function."""
    script = """
    import json, os, stat, sys, tempfile, warnings

    allowed, real = os.environ["KW_ALLOWED"], tempfile.TemporaryFile

    def closed(*args, dir=None, **kwargs):
        if not str(dir).startswith(allowed):
            raise PermissionError(13, "read-only file system")
        return real(*args, dir=dir, **kwargs)

    tempfile.TemporaryFile = closed
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        from kernelweave.compiled.dense_rows import mirror_rows
    import numpy as np

    a = np.array([[1.0, 0.0], [2.0, 1.0]])
    mirror_rows(a, 0, 2)
    folder = os.environ.get("NUMBA_CACHE_DIR")
    made = [name for _, _, names in os.walk(folder) for name in names]
    print(json.dumps({
        "warnings": [str(w.message) for w in seen], "folder": folder, "files": len(made),
        "mode": stat.S_IMODE(os.stat(folder).st_mode), "a": a.tolist(),
    }))
    """
    spare = tmp_path / "tmp"
    spare.mkdir()
    found, _ = run(script, KW_ALLOWED=str(tmp_path), TMPDIR=str(spare), NUMBA_CACHE_DIR="")
    assert found["a"] == [[1.0, 2.0], [2.0, 1.0]]
    assert found["files"] >= 2  # an index and the compiled code
    assert Path(found["folder"]).parent == spare
    assert found["mode"] == 0o700
    (warning,) = found["warnings"]
    assert "Set the environment variable NUMBA_CACHE_DIR" in warning
    assert found["folder"] in warning


def test_a_folder_of_somebody_else_is_not_trusted(tmp_path, monkeypatch):
    """What Numba loads from its cache is code."""
    monkeypatch.setattr(first_run.tempfile, "tempdir", str(tmp_path))
    mine = first_run._private_folder()
    assert mine == first_run._private_folder()
    mine.chmod(0o777)
    other = first_run._private_folder()
    assert other != mine
    assert other.parent == tmp_path
    mine.rmdir()
    mine.symlink_to(other)
    assert first_run._private_folder() not in (mine, other)


# What is said of compiling


@pytest.fixture
def clock(monkeypatch):
    """A notice that has said nothing yet, and a clock that is set by hand."""
    fresh = first_run._Clock()
    monkeypatch.setattr(first_run, "_CLOCK", fresh)
    monkeypatch.delenv("KERNELWEAVE_QUIET", raising=False)
    hands = {"now": 0.0}
    monkeypatch.setattr(first_run.time, "perf_counter", lambda: hands["now"])
    yield hands
    if fresh.registered:
        event.unregister("numba:compile", fresh)


def pretend_to_compile(clock, *seconds):
    """Functions that take that long, one after the other, as Numba tells of them."""
    for each in seconds:
        event.start_event("numba:compile")
        clock["now"] += each
        event.end_event("numba:compile")


def test_a_long_compilation_is_told_once(clock, capsys):
    with first_run.compile_notice():
        pretend_to_compile(clock, 0.6, 0.6, 0.6, 2.0)
    with first_run.compile_notice():
        pretend_to_compile(clock, 2.0, 2.0)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("compiling its inner loops, once on this machine") == 1
    assert err.count("\n") == 1


def test_functions_inside_functions_count_once(clock, capsys):
    with first_run.compile_notice():
        event.start_event("numba:compile")
        clock["now"] += 0.9
        pretend_to_compile(clock, 0.05)
        event.end_event("numba:compile")
        assert capsys.readouterr().err == ""
        pretend_to_compile(clock, 0.1, 0.1)
    assert "compiling" in capsys.readouterr().err


def test_a_short_compilation_or_that_of_others_is_not_told(clock, capsys):
    with first_run.compile_notice():
        pretend_to_compile(clock, 0.5, 0.4)
    pretend_to_compile(clock, 9.0, 9.0)  # not in a fit
    with first_run.compile_notice():
        pretend_to_compile(clock, 0.05)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("who", ["quiet", "worker"])
def test_who_keeps_silent(who, clock, capsys, monkeypatch):
    if who == "quiet":
        monkeypatch.setenv("KERNELWEAVE_QUIET", "1")
    if who == "worker":
        monkeypatch.setattr(first_run.multiprocessing.current_process(), "_name", "LokyProcess-1")
    with first_run.compile_notice():
        pretend_to_compile(clock, 2.0, 2.0)
    assert capsys.readouterr().err == ""


def test_a_progress_display_tells_it_in_place_of_the_fits_inside(clock, capsys):
    told = []
    watch = first_run.CompileWatch(lambda: told.append("long"), lambda: told.append("done"))
    with first_run.watch_compiling(watch):
        with first_run.compile_notice():
            pretend_to_compile(clock, 2.0, 2.0)
        assert told == ["done", "long", "done"]
        assert watch.seconds == 4.0
    with first_run.compile_notice():  # nor does a later fit say it again
        pretend_to_compile(clock, 2.0)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("model", [MKLClassifier("linear"), BayesianMKLClassifier("linear")])
def test_fits_tell(model, clock, capsys):
    X = np.random.default_rng(0).normal(size=(20, 2))
    model.set_params(callbacks=[lambda record: pretend_to_compile(clock, 2.0, 0.1)], max_iter=2)
    with pytest.warns(UserWarning):
        model.set_params(tol=1e-12).fit(X, X[:, 0] > 0)
    assert capsys.readouterr().err.count("compiling") == 1
