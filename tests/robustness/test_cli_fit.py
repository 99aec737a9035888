"""`kernelweave fit`, `predict`, `inspect`: from files to files, as people use them."""

from __future__ import annotations

import gzip
import io
import json
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose
from rich.console import Console
from sklearn.datasets import (
    dump_svmlight_file,
    load_breast_cancer,
    load_diabetes,
    load_svmlight_file,
)
from typer.testing import CliRunner

import kernelweave
from kernelweave import MKLClassifier
from kernelweave.cli.app import app
from kernelweave.cli.options import FAMILIES, SOLVERS, columns
from kernelweave.cli.output import weights_table
from kernelweave.errors import InvalidInputError, UnknownNameError
from kernelweave.inspect import find_estimator
from kernelweave.kernels import RBF, Linear
from kernelweave.solvers import SOLVERS as REGISTERED
from kernelweave.tables import TableEncoder, table_kernels

N = 160
COMMAND = [sys.executable, "-c", "from kernelweave.cli import main; main()"]


def run(*arguments, code=0):
    """Run a command in this process; an error comes out as itself."""
    done = CliRunner().invoke(app, [str(a) for a in arguments], prog_name="kernelweave")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done


def answer(*arguments, code=0):
    """Run a command and read its JSON document."""
    return json.loads(run(*arguments, "--json", code=code).stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of every kind with the same small classification task."""
    place = tmp_path_factory.mktemp("files")
    X, y = load_breast_cancer(return_X_y=True)
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(y))[:N]
    X, y = X[rows, :6].round(4), y[rows]
    names = [f"size_{j}" for j in range(3)] + [f"shape_{j}" for j in range(3)]
    frame = pl.DataFrame(X, schema=names, orient="row").with_columns(
        pl.Series("site", np.where(X[:, 0] > 14, "left", "right")),
        pl.Series("patient", [f"p{i:03d}" for i in range(N)]),
        pl.Series("diagnosis", np.where(y == 1, "benign", "malignant")),
    )
    holes = frame.with_columns(
        size_1=pl.when(pl.int_range(N) % 20 == 3).then(None).otherwise(pl.col("size_1"))
    )
    holes.write_csv(place / "cells.csv")
    frame.write_parquet(place / "cells.parquet")
    frame.write_ipc(place / "cells.arrow")
    np.savez(place / "cells.npz", X=X, y=y)
    dump_svmlight_file(X, y, str(place / "cells.libsvm"))
    letters = np.array(list("ACGT"))
    with open(place / "sites.fasta", "w") as file:
        for i in range(80):
            s = "".join(rng.choice(letters, 30))
            s = s[:12] + "TTCAG" + s[17:] if i % 2 else s
            file.write(f">s{i} label={'site' if i % 2 else 'other'}\n{s}\n")
    Z = (X - X.mean(0)) / X.std(0)
    np.save(place / "K.npy", RBF(width=2.0)(Z))
    return place


@pytest.fixture(scope="module")
def fitted(folder):
    """The document, and the files, of one fit."""
    model, report = folder / "m.skops", folder / "r.html"
    told = answer(
        *("fit", folder / "cells.csv", "--target", "diagnosis"),
        *("--loss", "logistic", "--model", model, "--report", report),
    )
    return told, model, report


def test_a_fit_tells_what_it_found(fitted):
    told, model, report = fitted
    assert told["task"] == "classification"
    assert told["held_out"]["accuracy"] > 0.8 > told["held_out"]["guess"]
    assert told["certificate"]["gap"] <= told["certificate"]["tol"] == 1e-3
    assert sum(k["weight"] for k in told["kernels"]) == pytest.approx(1.0)
    assert told["files"] == {"report": str(report), "model": str(model)}
    notes = "\n".join(told["notes"])
    assert re.search(r"missing values: size_1 \(\d\)", notes)
    assert "site" in notes and "one-hot" in notes
    assert "patient" in notes


def test_the_report_and_the_model_are_there(fitted):
    _, model, report = fitted
    page = report.read_text(encoding="utf-8")
    assert "<html" in page[:300]
    assert "_Reporter" not in page  # what showed the progress is no setting of the model
    assert kernelweave.load(model).predict is not None


def test_people_get_a_table(folder):
    shown = run("fit", folder / "cells.parquet", "-t", "diagnosis").output
    assert "held out" in shown and "% right" in shown
    assert "gap" in shown and "proven" in shown
    assert "kernels that carry the weight" in shown
    assert "\x1b" not in shown


def test_long_names_stay_in_their_column():
    table = weights_table([("rbf(width=0.5) on " + "long_name_" * 9, 1.0)], 5)
    out = io.StringIO()
    Console(file=out, width=80).print(table)
    lines = out.getvalue().splitlines()
    assert len(lines) > 2 and all(line.startswith("  ") for line in lines)


def test_predictions_are_those_of_the_model(fitted, folder, tmp_path):
    _, model, _ = fitted
    out = tmp_path / "out.csv"
    done = run("predict", model, folder / "cells.csv", "--proba", "-o", out)
    written = pl.read_csv(out)
    loaded = kernelweave.load(model)
    X = pl.read_csv(folder / "cells.csv").drop("diagnosis")
    assert written["prediction"].to_list() == loaded.predict(X).tolist()
    assert_allclose(written["probability benign"], loaded.predict_proba(X)[:, 0], atol=1e-12)
    assert "diagnosis is in the file" in done.output


def test_predictions_to_the_screen_are_a_csv(fitted, folder):
    _, model, _ = fitted
    done = run("predict", model, folder / "cells.csv")
    assert done.stdout.splitlines()[0] == "patient,prediction"
    assert done.stdout.splitlines()[1].startswith("p000,")
    assert len(done.stdout.splitlines()) == N + 1


@pytest.mark.parametrize("kind", [".parquet", ".json", ".npy", ".tsv"])
def test_predictions_in_every_format(fitted, folder, tmp_path, kind):
    out = tmp_path / f"out{kind}"
    run("predict", fitted[1], folder / "cells.csv", "-o", out)
    assert out.stat().st_size > 0


def test_inspect_shows_the_header(fitted):
    _, model, _ = fitted
    shown = run("inspect", model).output
    for words in ("MKLClassifier", "diagnosis", "gap", "scikit-learn", "kernels that carry"):
        assert words in shown
    told = answer("inspect", model)
    assert told["about"]["target"] == "diagnosis"
    assert told["certificate"]["converged"] is True


@pytest.mark.parametrize("file", ["cells.arrow", "cells.npz", "cells.libsvm"])
def test_every_format_gives_the_same_task(folder, file):
    target = ["-t", "diagnosis"] if file.endswith("arrow") else []
    told = answer("fit", folder / file, *target)
    assert told["task"] == "classification"
    assert told["held_out"]["accuracy"] > 0.8


def test_a_sparse_model_predicts_a_sparse_file_of_another_width(folder, tmp_path):
    model = tmp_path / "sparse.skops"
    answer("fit", folder / "cells.libsvm", "--kernels", "linear", "--model", model)
    whole = answer("predict", model, folder / "cells.libsvm")["rows"]
    lines = (folder / "cells.libsvm").read_text().splitlines()
    # Columns from the fifth on are left out, as if they were zero; then they are.
    short = [" ".join(e for e in line.split() if e[:2] not in ("4:", "5:")) for line in lines]
    (tmp_path / "short.libsvm").write_text("\n".join(short))
    rows = answer("predict", model, tmp_path / "short.libsvm")["rows"]
    X, _ = load_svmlight_file(str(folder / "cells.libsvm"))
    assert [row["prediction"] for row in whole] == kernelweave.load(model).predict(X).tolist()
    X = X.tolil()
    X[:, 4:] = 0
    expected = kernelweave.load(model).predict(X.tocsr())
    assert [row["prediction"] for row in rows] == expected.tolist()


def test_sequences(folder):
    pytest.importorskip("dnaio")
    told = answer("fit", folder / "sites.fasta", "-t", "label")
    assert told["held_out"]["accuracy"] > 0.8
    assert any("degree" in k["name"] for k in told["kernels"])


def test_regression_in_units_of_the_target(folder):
    X, y = load_diabetes(return_X_y=True)
    frame = pl.DataFrame(X[:150], schema=[f"x{j}" for j in range(10)], orient="row")
    for name, factor in (("small", 1e-3), ("large", 1e3)):
        frame.with_columns(pl.Series("y", factor * y[:150])).write_csv(folder / f"{name}.csv")
    for options, C in (((), 1.0), (("--C", 3, "--loss", "squared"), 3.0)):
        small = answer("fit", folder / "small.csv", "-t", "y", *options)
        large = answer("fit", folder / "large.csv", "-t", "y", *options)
        assert small["task"] == large["task"] == "regression"
        assert small["C"] == large["C"] == C
        assert small["held_out"]["r2"] == pytest.approx(large["held_out"]["r2"], abs=5e-3)
        assert small["held_out"]["r2"] > 0.2
        objectives = [told["certificate"]["objective"] for told in (small, large)]
        assert objectives[0] == pytest.approx(objectives[1], rel=1e-3)


def test_outliers(folder, tmp_path):
    model = tmp_path / "one.skops"
    told = answer("fit", folder / "cells.csv", "--task", "outlier", "--nu", 0.2, "--model", model)
    assert told["model"] == "MKLOneClass"
    assert 0 <= told["held_out"]["outside"] < 0.6
    rows = answer("predict", model, folder / "cells.csv")["rows"]
    assert {row["prediction"] for row in rows} == {"inside", "outside"}
    assert all((row["score"] >= 0) == (row["prediction"] == "inside") for row in rows)


def test_a_posterior(folder, tmp_path):
    model = tmp_path / "bayes.skops"
    told = answer("fit", folder / "small.csv", "-t", "y", "--solver", "bayes", "--model", model)
    assert told["model"] == "BayesianMKLRegressor"
    rows = answer("predict", model, folder / "small.csv")["rows"]
    assert all(row["std"] > 0 for row in rows)


def test_C_by_cross_validation(folder):
    told = answer("fit", folder / "cells.parquet", "-t", "diagnosis", "--cv", 3)
    assert told["model"] == "MKLClassifierCV"
    assert told["C"] > 0


def test_views_name_the_kernels(folder):
    told = answer(
        *("fit", folder / "cells.parquet", "-t", "diagnosis", "--regularizer", "lp_ball"),
        *("--view", "sizes=size_*", "--view", "shapes=shape_0:shape_2"),
    )
    names = [k["name"] for k in told["kernels"]]
    assert any("on sizes" in name for name in names)
    assert any("on shapes" in name for name in names)
    assert any("no view" in note for note in told["notes"])


def test_a_file_of_kernels(folder, tmp_path):
    path = tmp_path / "kernels.toml"
    path.write_text('[[kernel]]\nkind = "rbf"\nwidth = [1, 2]\n\n[[kernel]]\nkind = "linear"\n')
    told = answer("fit", folder / "cells.libsvm", "--kernels", path)
    assert told["n_kernels"] == 3


def test_a_matrix_beside_a_table_and_new_samples(folder, tmp_path):
    K = np.load(folder / "K.npy")
    old, new = np.arange(120), np.arange(120, N)
    frame = pl.read_parquet(folder / "cells.parquet")
    frame[old].write_csv(tmp_path / "old.csv")
    frame[new].drop("diagnosis").write_csv(tmp_path / "new.csv")
    np.save(tmp_path / "K.npy", K[np.ix_(old, old)])
    np.save(tmp_path / "K_new.npy", K[np.ix_(new, old)])
    model = tmp_path / "m.skops"
    told = answer(
        *("fit", tmp_path / "old.csv", "-t", "diagnosis", "--test-size", 0, "--model", model),
        *("--kernel-matrix", f"likeness={tmp_path / 'K.npy'}", "--regularizer", "lp_ball"),
        *("--kernels", "linear"),
    )
    assert "likeness" in [k["name"] for k in told["kernels"]]
    matrix = ("--kernel-matrix", f"likeness={tmp_path / 'K_new.npy'}")
    rows = answer("predict", model, tmp_path / "new.csv", *matrix)["rows"]
    # The same in Python, with a matrix over old and new samples.
    X = frame.drop("diagnosis").with_columns(row=pl.Series(np.arange(N)))
    encoder = TableEncoder(id_column="row").fit(X[old])
    kernels = table_kernels("linear", encoder, matrices={"likeness": K})
    whole = MKLClassifier(kernels, regularizer="lp_ball", random_state=0)
    whole.fit(encoder.transform(X[old]), frame["diagnosis"].to_numpy()[old])
    assert [row["prediction"] for row in rows] == whole.predict(encoder.transform(X[new])).tolist()
    with pytest.raises(InvalidInputError, match=r"--kernel-matrix .*\(40, 120\)"):
        run("predict", model, tmp_path / "new.csv")
    # Without new matrices the rows are those of the fit.
    assert len(answer("predict", model, tmp_path / "old.csv")["rows"]) == 120


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (["cells.csv", "-t", "diagnosys"], UnknownNameError, "did you mean 'diagnosis'"),
        (["cels.csv", "-t", "diagnosis"], InvalidInputError, "cells.csv"),
        (["cells.csv"], InvalidInputError, "--target COLUMN"),
        (["cells.csv", "-t", "patient"], InvalidInputError, "one row only"),
        (["cells.csv", "-t", "size_0", "--task", "classification"], InvalidInputError, "fraction"),
        (["cells.csv", "-t", "site", "--task", "regression"], InvalidInputError, "holds text"),
        (["cells.csv", "-t", "diagnosis", "--solver", "sgp"], UnknownNameError, "spg"),
        (["cells.csv", "-t", "diagnosis", "--C", "1", "--cv", "3"], InvalidInputError, "leave out"),
        (["cells.csv", "-t", "diagnosis", "--C", "-1"], InvalidInputError, "C must be"),
        (["cells.csv", "-t", "diagnosis", "--time-limit", "soon"], InvalidInputError, "5min"),
        (["cells.csv", "-t", "diagnosis", "--report", "r.pdf"], InvalidInputError, ".html"),
        (["cells.csv", "-t", "diagnosis", "--model", "no/m.skops"], InvalidInputError, "no folder"),
        (["cells.csv", "-t", "diagnosis", "--view", "a=sise_0"], ValueError, "size_0"),
        (["cells.csv", "-t", "diagnosis", "--kernel-matrix", "K.npy"], InvalidInputError, "NAME="),
        (["cells.csv", "-t", "diagnosis", "--kernels", "simplmkl"], ValueError, "simplemkl"),
        (["cells.csv", "-t", "diagnosis", "--test-size", "1000"], InvalidInputError, "160"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_is_wrong_is_said(folder, monkeypatch, arguments, error, words):
    monkeypatch.chdir(folder)
    with pytest.raises(error, match=r".*".join(words.split("..."))):
        run("fit", *arguments)


def test_rows_without_a_target_are_left_out(folder, tmp_path):
    frame = pl.read_parquet(folder / "cells.parquet").with_columns(
        diagnosis=pl.when(pl.int_range(N) < 5).then(None).otherwise(pl.col("diagnosis"))
    )
    frame.write_csv(tmp_path / "holes.csv")
    told = answer("fit", tmp_path / "holes.csv", "-t", "diagnosis", "--kernels", "linear")
    assert "5 rows have no diagnosis" in " ".join(told["notes"])


def test_a_python_model_predicts_a_table(folder, tmp_path):
    frame = pl.read_parquet(folder / "cells.parquet")
    X = frame.select(pl.col("^size_.*$"))
    model = MKLClassifier([Linear()]).fit(X, frame["diagnosis"].to_numpy())
    kernelweave.save(model, tmp_path / "m.skops")
    X.write_csv(tmp_path / "new.csv")
    rows = answer("predict", tmp_path / "m.skops", tmp_path / "new.csv")["rows"]
    assert [row["prediction"] for row in rows] == model.predict(X).tolist()


def test_ctrl_c_saves_the_best_model_so_far(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    y = np.sign(X[:, 0] * X[:, 1] + 0.5 * rng.normal(size=500))
    frame = pl.DataFrame(X, schema=["x0", "x1", "x2"], orient="row")
    frame.with_columns(pl.Series("y", y.astype(int))).write_csv(tmp_path / "long.csv")
    arguments = ["fit", "long.csv", "-t", "y", "--tol", "1e-13", "--solver", "pgd"]
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    seen = ""
    for line in process.stdout:
        seen += line
        if "iteration" in line:
            process.send_signal(signal.SIGINT)
            break
    rest, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "interrupted" in seen + rest
    loaded = kernelweave.load(tmp_path / "kernelweave-interrupted.skops")
    assert loaded.score(frame, y.astype(int)) > 0.6
    assert find_estimator(loaded).converged_ is False


def test_ctrl_c_before_the_fit_saves_nothing(folder, monkeypatch):
    def press(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("kernelweave.cli.fit.load_data", press)
    done = run("fit", folder / "cells.csv", "-t", "diagnosis", code=130)
    assert "nothing was saved" in done.stderr


def test_whole_numbers_that_might_be_classes_are_told(folder, tmp_path):
    frame = pl.read_parquet(folder / "cells.parquet").select(pl.col("^size_.*$"))
    frame.with_columns(fold=pl.int_range(N) % 40).write_csv(tmp_path / "folds.csv")
    told = answer("fit", tmp_path / "folds.csv", "-t", "fold", "--kernels", "linear")
    assert told["task"] == "regression"
    assert "--task classification" in " ".join(told["notes"])


def test_compare_has_one_table_and_one_figure(folder, tmp_path):
    figure = tmp_path / "compare.png"
    told = answer(
        *("compare", folder / "cells.csv", "-t", "diagnosis", "--solvers", "spg,mwu,bayes"),
        *("--splits", 2, "--figure", figure, "--view", "sizes=size_*"),
    )
    assert [row["solver"] for row in told["rows"]] == ["spg", "mwu", "bayes"]
    assert all(row["score"] > 0.7 and row["seconds"] > 0 for row in told["rows"])
    assert told["rows"][0]["gap"] <= 1e-3 and told["rows"][2]["gap"] is None
    assert figure.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="did you mean 'spg'"):
        run("compare", folder / "cells.csv", "-t", "diagnosis", "--solvers", "sgp")


def test_the_shell_is_offered_what_there_is():
    assert set(SOLVERS) == {"auto", "bayes", *REGISTERED}
    for name in FAMILIES:
        MKLClassifier(name).fit(np.random.default_rng(0).normal(size=(12, 2)), np.arange(12) % 2)


@pytest.mark.parametrize("name", ["cells.tsv", "cells.CSV.gz"])
def test_the_shell_completes_columns_of_text_tables(tmp_path, name):
    header = 'size\t"site"\ty\n' if ".tsv" in name else 'size;"site";y\n'
    data = (header + "1,2,3\n").encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    context = SimpleNamespace(params={"data": str(tmp_path / name)})
    assert columns(context, "si") == ["size", "site"]
    assert columns(SimpleNamespace(params={"data": str(tmp_path / "none.csv")}), "") == []
