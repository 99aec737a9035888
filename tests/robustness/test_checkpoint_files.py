"""The files of checkpoints: when they are written, what is left by a failure, what is refused."""

from __future__ import annotations

import os
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cut_fits import KERNELS, cut_short, resumed, saved_iteration, stop_at
from mutated_files import arrays_of, write_arrays
from sklearn.base import clone

from kernelweave import (
    BayesianMKLClassifier,
    Checkpoint,
    MKLClassifier,
    MKLClassifierCV,
)
from kernelweave.errors import CheckpointWarning, InterruptedFitWarning, InvalidInputError
from kernelweave.kernels import RBF
from kernelweave.operators import DenseOperator
from kernelweave.solvers import SPG, checkpoint

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


# When files are written


@pytest.fixture
def files(monkeypatch):
    """Iterations of the files, in the order in which they were written."""
    found, move = [], os.replace

    def replace(new, path):
        move(new, path)
        if str(path).endswith(".npz"):  # Numba's cache moves files too.
            groups = checkpoint.read(path).groups
            found.append(int(groups[max(groups)]["record.iteration"]))

    monkeypatch.setattr(os, "replace", replace)
    return found


def test_every_few_iterations(path, cancer, files):
    callbacks = [Checkpoint(path, every=3), stop_at(8)]
    MKLClassifier("simplemkl", solver="spg", tol=1e-9, callbacks=callbacks).fit(*cancer)
    assert files == [0, 3, 6, 8]


def test_every_few_seconds(path, cancer, files, monkeypatch):
    now = [100.0]

    class Clock:
        perf_counter = staticmethod(lambda: now[0])

    monkeypatch.setattr(checkpoint, "time", Clock)

    def tick(record):
        now[0] += 20.0
        return record.iteration >= 8

    callbacks = [Checkpoint(path, every="1min"), tick]
    MKLClassifier("simplemkl", solver="spg", tol=1e-9, callbacks=callbacks).fit(*cancer)
    assert files == [0, 3, 6, 8]


def test_a_short_fit_has_the_first_file_and_the_last(path, cancer, files):
    model = MKLClassifier("simplemkl", callbacks=Checkpoint(path)).fit(*cancer)
    assert files == [0, model.n_iter_]


def test_two_checkpoints_and_other_callbacks(tmp_path, cancer):
    paths = [tmp_path / "often.npz", tmp_path / "seldom.npz"]
    told = []
    callbacks = [Checkpoint(paths[0], every=1), told.append, Checkpoint(paths[1], every="1h")]
    model = MKLClassifier("simplemkl", callbacks=callbacks).fit(*cancer)
    assert len(told) == len(model.history_)
    assert [saved_iteration(p) for p in paths] == [model.n_iter_] * 2


def test_ctrl_c_leaves_the_last_iteration(path, cancer):
    def interrupt(record):
        if record.iteration == 5:
            raise KeyboardInterrupt

    callbacks = [Checkpoint(path, every="1h"), interrupt]
    with pytest.warns(InterruptedFitWarning):
        MKLClassifier("simplemkl", solver="spg", callbacks=callbacks).fit(*cancer)
    assert saved_iteration(path) == 5


def test_ctrl_c_in_a_bayesian_fit(path, iris):
    """In the middle of the next iteration, which must not show."""
    from kernelweave.bayes import Ensemble

    model = BayesianMKLClassifier(KERNELS, tol=1e-3, max_iter=300)
    whole = clone(model).fit(*iris)
    bound, calls = Ensemble.lower_bound, []

    def interrupted(self):
        calls.append(1)
        if len(calls) == 7:
            raise KeyboardInterrupt
        return bound(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ensemble, "lower_bound", interrupted)
        with pytest.warns(InterruptedFitWarning):
            clone(model).set_params(callbacks=[Checkpoint(path, every="1h")]).fit(*iris)
    assert saved_iteration(path) == 6
    again = resumed(model, path, *iris)
    assert again.lower_bound_ == pytest.approx(whole.lower_bound_, abs=1e-8)


# Writing that fails


@pytest.mark.parametrize("error", [OSError("disk full"), SystemExit("killed")])
def test_an_interrupted_write_leaves_the_old_file(path, cancer, monkeypatch, error):
    model = MKLClassifier("simplemkl", solver="spg", tol=1e-4)
    cut_short(model, path, 3, *cancer)

    def replace(source, target):
        assert os.path.exists(source) and os.path.exists(target)
        raise error

    monkeypatch.setattr(os, "replace", replace)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        if isinstance(error, OSError):
            assert cut_short(model, path, 8, *cancer).history_[-1].iteration == 8
        else:
            with pytest.raises(SystemExit):
                cut_short(model, path, 8, *cancer)
    assert isinstance(error, SystemExit) or any(
        issubclass(w.category, CheckpointWarning) and "disk full" in str(w.message) for w in told
    )
    monkeypatch.undo()
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert saved_iteration(path) == 3
    assert resumed(model, path, *cancer).converged_


def test_the_file_is_on_disk_before_it_takes_the_old_ones_place(path, cancer, monkeypatch):
    order = []
    sync, move = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: order.append("sync") or sync(fd))
    monkeypatch.setattr(os, "replace", lambda *names: order.append("replace") or move(*names))
    MKLClassifier(KERNELS, callbacks=[Checkpoint(path)]).fit(*cancer)
    assert order == ["sync", "replace"] * (len(order) // 2) and order


def test_the_file_is_plain_arrays(path, cancer):
    model = MKLClassifier("simplemkl", callbacks=[Checkpoint(path)]).fit(*cancer)
    with np.load(path, allow_pickle=False) as file:
        read = {name: file[name] for name in file.files}
    assert str(read["format"]) == "kernelweave checkpoint" and int(read["version"]) == 2
    assert (str(read["kind"]), int(read["n"]), int(read["m"])) == (
        "MKLClassifier",
        len(cancer[1]),
        len(model.weights_),
    )
    assert (str(read["0.solver"]), str(read["0.loss"]), str(read["0.regularizer"])) == (
        "active-set",
        "hinge",
        "simplex",
    )
    np.testing.assert_array_equal(read["0.d"], model.weights_)
    assert float(read["0.record.gap"]) == model.gap_


# Files of the first version: written once, by ``old_fits`` below under commit 89da270


OLD = Path(__file__).parents[1] / "fixtures"


def old_fits():
    X = np.random.default_rng(0).normal(size=(24, 3))
    y = np.where(X[:, 0] + X[:, 1] * X[:, 2] > 0, 1, -1)
    spg = MKLClassifier(KERNELS, solver="spg", loss="squared_hinge", tol=1e-6)
    ovr = MKLClassifier(KERNELS, solver="silp", multi_class="ovr", tol=1e-6)
    bayes = BayesianMKLClassifier(KERNELS, max_iter=300, tol=1e-3)
    return {"spg": (spg, X, y), "ovr": (ovr, X, np.arange(24) % 3), "bayes": (bayes, X, y)}


@pytest.mark.parametrize("name", ["spg", "ovr", "bayes"])
def test_files_of_the_first_version_are_taken_up(name):
    path = OLD / f"checkpoint_v1_{name}.npz"
    model, X, y = old_fits()[name]
    again, whole = resumed(model, path, X, y), clone(model).fit(X, y)
    assert again.converged_ and again.history_[0].iteration == (3 if name != "bayes" else 4)
    reached = "lower_bound_" if name == "bayes" else "objective_"
    assert getattr(again, reached) == pytest.approx(getattr(whole, reached), rel=3e-6, abs=1e-6)


# What is refused


@pytest.mark.parametrize("every", [0, -3, 2.5, True, None, "", "0s", "5", "5 weeks", "-1min", "s"])
def test_bad_intervals(every):
    with pytest.raises(InvalidInputError, match=r"every must be an integer >= 1.*'30s'.*got"):
        Checkpoint("a.npz", every=every)


@pytest.mark.parametrize("every", [1, np.int64(5), "30s", "5min", "1h", "0.5 h"])
def test_good_intervals(every):
    assert Checkpoint("a.npz", every=every).every == every


@pytest.mark.parametrize("path", [None, 3, ""])
def test_bad_paths(path):
    with pytest.raises(InvalidInputError, match="path must be the path of a file"):
        Checkpoint(path)


@pytest.mark.parametrize("estimator", [MKLClassifier, BayesianMKLClassifier])
def test_a_file_that_cannot_be_written_is_refused_before_the_fit(
    estimator, tmp_path, iris, monkeypatch
):
    built = []
    monkeypatch.setattr(
        "kernelweave.estimators.base.bind_kernels", lambda *args, **options: built.append(args)
    )
    for path, message in (
        (tmp_path, "is a folder; give the path of a file"),
        (tmp_path / "none" / "a.npz", "the folder of .* does not exist; make it first"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            estimator(callbacks=[Checkpoint(path)]).fit(*iris)

    def denied(**options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", denied)
    with pytest.raises(InvalidInputError, match=r"nothing can be written to the folder.*denied"):
        estimator(callbacks=[Checkpoint(tmp_path / "a.npz")]).fit(*iris)
    assert not built and not list(tmp_path.iterdir())


def test_many_fits_have_no_checkpoint(path, iris):
    with pytest.raises(InvalidInputError, match=r"keeps one fit.*Give it to MKLClassifier"):
        MKLClassifierCV(KERNELS, Cs=2, cv=2, callbacks=[Checkpoint(path)]).fit(*iris)
    with pytest.raises(InvalidInputError, match="callables and of Checkpoint"):
        MKLClassifier(callbacks=[path]).fit(*iris)


def refused(source, match, iris, model=None):
    model = MKLClassifier(KERNELS) if model is None else model
    with pytest.raises(InvalidInputError, match=match):
        model.set_params(warm_start_from=source).fit(*iris)


def test_files_that_are_no_checkpoints(tmp_path, iris):
    path = tmp_path / "file.npz"
    refused(path, "file.npz' does not exist. Give the path of a checkpoint", iris)
    refused(str(tmp_path), "is a folder, not a file", iris)
    for content, why in (
        (b"", "it is empty"),
        (b"not a checkpoint", "it is no zip archive"),
        (b"PK\x03\x04 nor this", "it has been cut short or is damaged"),
    ):
        path.write_bytes(content)
        refused(path, f"no checkpoint of kernelweave: {why}", iris)
    np.save(tmp_path / "array.npy", np.arange(3))
    refused(tmp_path / "array.npy", "no checkpoint of kernelweave", iris)
    np.savez(path, a=np.arange(3))
    refused(path, "no checkpoint of kernelweave: it holds other arrays", iris)
    np.savez(path, format="kernelweave checkpoint", evil=np.array([print], dtype=object))
    refused(path, "cannot be read .*allow_pickle=False", iris)
    np.savez(path, format="kernelweave checkpoint", version=1)
    refused(path, "parts of it are missing", iris)
    np.savez(path, format="kernelweave checkpoint", version=99)
    refused(path, "has version 99 .*; this kernelweave reads versions up to 2", iris)


def test_a_damaged_file(path, iris):
    MKLClassifier(KERNELS, callbacks=[Checkpoint(path)]).fit(*iris)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    refused(path, "no checkpoint of kernelweave: it has been cut short or is damaged", iris)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("format.npy", b"x")
    refused(path, "no checkpoint of kernelweave", iris)


@pytest.mark.parametrize("name", ["0.d", "0.alpha", "0.record.gap", "groups", "version", "n"])
def test_a_file_that_was_changed(path, iris, name):
    """With check sums that are right again, as a script that writes arrays makes them."""
    MKLClassifier(KERNELS, callbacks=[Checkpoint(path)]).fit(*iris)
    whole = arrays_of(path)
    for other in (np.array("x"), np.zeros(2), whole["0.d"][:1] + 1.0):
        write_arrays(path, {**whole, name: other}, honest=False)
        refused(path, "no checkpoint of kernelweave: it is damaged, or has been changed", iris)
    less = {key: value for key, value in whole.items() if key != name}
    write_arrays(path, less, honest=False)
    refused(path, "no checkpoint of kernelweave: it is damaged, or has been changed", iris)


@pytest.mark.parametrize("name", ["0.d", "groups", "n"])
def test_a_file_of_the_first_version_that_was_changed(tmp_path, name):
    model, X, y = old_fits()["spg"]
    whole = arrays_of(OLD / "checkpoint_v1_spg.npz")
    path = tmp_path / "changed.npz"
    for other in (np.zeros(2), whole["0.d"][:1] + 1.0):
        np.savez(path, **{**whole, name: other})
        refused(path, "no checkpoint of kernelweave: (parts of it|it is damaged)", (X, y), model)


def test_checkpoints_of_other_fits(path, iris):
    X, y = iris
    MKLClassifier(KERNELS, callbacks=[Checkpoint(path)]).fit(X, y)
    refused(path, "fit.npz' is on 75 samples, but this fit is on 74 samples", (X[1:], y[1:]))
    refused(path, r"of 3 tasks .* but this fit is of 1 tasks", (X, y < 2))
    refused(path, "of 1 sets of kernel weights .multi_class., but this fit is of 3", iris,
            MKLClassifier(KERNELS, multi_class="ovr"))  # fmt: skip
    refused(path, "with 4 kernels, but this fit is with 3", iris, MKLClassifier(KERNELS[:3]))
    refused(path, "with other kernels: the digest of their names is", iris,
            MKLClassifier([*KERNELS[:3], RBF(width=9.0)]))  # fmt: skip
    refused(path, "of a MKLClassifier, but this fit is of a BayesianMKLClassifier", iris,
            BayesianMKLClassifier(KERNELS))  # fmt: skip


def test_other_things_to_start_from(iris):
    refused(3, "path of a checkpoint, a fitted MKLClassifier or None; got 3", iris)
    refused(MKLClassifier(KERNELS), "this MKLClassifier is not fitted", iris)
    fitted = MKLClassifier(KERNELS).fit(iris[0][1:], iris[1][1:])
    refused(fitted, "the MKLClassifier given is on 74 samples, but this fit is on 75", iris)
    refused(fitted, "a fitted BayesianMKLClassifier or None; got a MKLClassifier", iris,
            BayesianMKLClassifier())  # fmt: skip


def test_a_derived_estimator_is_of_the_same_kind(path, iris):
    class Mine(MKLClassifier):
        pass

    cut_short(MKLClassifier(KERNELS, tol=1e-6), path, 2, *iris)
    assert resumed(Mine(KERNELS, tol=1e-6), path, *iris).history_[0].iteration == 2


def test_solvers_by_themselves(path, cancer):
    """Without an estimator, as researchers call them."""
    from kernelweave.bayes import (
        BayesStart,
        Hyperparameters,
        Labels,
        Settings,
        infer,
    )
    from kernelweave.combine import WeightedSum
    from kernelweave.losses import Logistic
    from kernelweave.problem import Problem
    from kernelweave.regularizers import Simplex
    from kernelweave.solvers import Limits, solve
    from kernelweave.solvers.checkpoint import start_from

    rng = np.random.default_rng(0)
    bank = DenseOperator([np.outer(v, v) + np.eye(40) for v in rng.normal(size=(5, 40))])
    y = np.where(rng.normal(size=(1, 40)) > 0, 1.0, -1.0)
    problem = Problem(bank, y, np.ones((1, 40)), Logistic(), Simplex(), WeightedSum())
    solve(problem, SPG(), Limits(tol=1e-9, callbacks=[Checkpoint(path, every=1), stop_at(3)]))
    start = start_from(path, problem, SPG())
    assert start.progress.iteration == 3 and "step" in start.extra
    again = solve(problem, SPG(), Limits(tol=1e-9), start)
    whole = solve(problem, SPG(), Limits(tol=1e-9))
    assert again.certificate.primal == pytest.approx(whole.certificate.primal, rel=1e-8)
    other = start_from(path, replace(problem, C=2.0 * problem.C), SPG())
    assert other.progress is None and not other.extra
    numbers = checkpoint.read(path).groups[0]
    best = numbers.get("best.alpha", numbers["alpha"])
    np.testing.assert_array_equal(other.alpha, 2.0 * best)
    with pytest.raises(InvalidInputError, match="of a solve"):
        MKLClassifier(KERNELS, warm_start_from=path).fit(*cancer)

    settings, labels = Settings(Hyperparameters()), Labels(y)
    limits = Limits(tol=1e-4, callbacks=[Checkpoint(path, every=1), stop_at(3)])
    infer(bank, labels, settings, limits, seed=0)
    start = BayesStart(checkpoint.read(path).groups[0])
    again = infer(bank, labels, settings, Limits(tol=1e-4), seed=1, start=start)
    whole = infer(bank, labels, settings, Limits(tol=1e-4), seed=0)
    assert again.lower_bound == pytest.approx(whole.lower_bound, abs=1e-8)
