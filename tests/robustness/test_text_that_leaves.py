"""Labels and names of users neither run in a spreadsheet nor reach a terminal as commands."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from typer.testing import CliRunner

from kernelweave import MKLClassifier
from kernelweave.cli.app import app, report_error
from kernelweave.errors import InvalidInputError
from kernelweave.kernels import Linear

EVIL = "\x1b]0;owned\x07\x1b[2J"
TURNED = "\u202eexe.txt"
LABELS = ("=cmd|' /C calc'!A0", f"@x{EVIL}{TURNED}")


def run(*arguments, code=0):
    done = CliRunner().invoke(app, [str(a) for a in arguments], prog_name="kernelweave")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table with hostile labels, names and columns, and a model of it."""
    place = tmp_path_factory.mktemp("files")
    x = np.random.default_rng(0).normal(size=(60, 2))
    frame = pl.DataFrame(
        {
            "-id": [f"+row{i}" for i in range(60)],
            f"a{EVIL}": x[:, 0],
            "b": -np.abs(x[:, 1]),
            "label": [LABELS[int(v > 0)] for v in x[:, 0]],
        }
    )
    frame.write_csv(place / "t.csv")
    frame.drop("label").write_csv(place / "new.csv")
    told = run("fit", place / "t.csv", "-t", "label", "--model", place / "m.skops")
    return place, frame, told


def clean(text):
    return not any(c in text for c in ("\x1b", "\x07", "\u202e", "\x9b"))


def test_the_screen_gets_no_control_characters(folder):
    place, _, told = folder
    assert clean(told.output) and "\\x1b" in told.output
    for command in (
        ("predict", place / "m.skops", place / "new.csv"),
        ("predict", place / "m.skops", place / "t.csv", "-o", place / "p.csv"),
        ("inspect", place / "m.skops"),
    ):
        assert clean(run(*command).output)


def test_cells_that_a_spreadsheet_would_run(folder):
    place, _, _ = folder
    for name, separator in (("p.csv", ","), ("p.tsv", "\t")):
        run("predict", place / "m.skops", place / "new.csv", "-o", place / name)
        read = pl.read_csv(place / name, separator=separator)
        assert read.columns == ["'-id", "prediction"]
        assert set(read["'-id"]) == {f"'+row{i}" for i in range(60)}
        kinds = set(read["prediction"])
        assert "'" + LABELS[0] in kinds
        assert kinds <= {"'" + LABELS[0], "'@x\\x1b]0;owned\\x07\\x1b[2J\\u202eexe.txt"}
    shown = run("predict", place / "m.skops", place / "new.csv").stdout
    assert "\n'+row7," in shown and "\n+row7," not in shown


def test_raw_writes_text_as_it_is(folder):
    place, frame, _ = folder
    run("predict", place / "m.skops", place / "new.csv", "--raw", "-o", place / "raw.csv")
    read = pl.read_csv(place / "raw.csv", infer_schema=False)
    assert read.columns == ["-id", "prediction"]
    assert read["-id"].to_list() == frame["-id"].to_list()
    assert set(read["prediction"]) <= set(LABELS) and LABELS[0] in set(read["prediction"])
    run("predict", place / "m.skops", place / "new.csv", "-o", place / "p.parquet")
    whole = pl.read_parquet(place / "p.parquet")
    assert whole["prediction"].to_list() == read["prediction"].to_list()


def test_negative_numbers_stay_numbers(tmp_path):
    x = np.random.default_rng(0).normal(size=(40, 2))
    table = pl.DataFrame({"x": x[:, 0], "z": x[:, 1], "y": x[:, 0] - 5.0})
    table.write_csv(tmp_path / "t.csv")
    run("fit", tmp_path / "t.csv", "-t", "y", "--model", tmp_path / "m.skops")
    run("predict", tmp_path / "m.skops", tmp_path / "t.csv", "-o", tmp_path / "p.csv")
    read = pl.read_csv(tmp_path / "p.csv")
    assert read["prediction"].dtype == pl.Float64 and (read["prediction"] < 0).all()


def test_errors_and_summaries(capsys):
    X = np.random.default_rng(0).normal(size=(30, 2))
    frame = pd.DataFrame(X, columns=[f"a{EVIL}", f"b\nconverged{TURNED}"])
    model = MKLClassifier([Linear().on([name]) for name in frame.columns])
    model.fit(frame, X[:, 0] > 0)
    model.summary()
    told = capsys.readouterr().out
    assert clean(told) and "\\x1b" in told and "\nconverged" not in told
    error = InvalidInputError(f"kernel {EVIL}{TURNED}\nhas no rows")
    assert clean(str(error)) and "\n" in str(error)
    assert report_error(ValueError(f"label {EVIL}")) == 1
    shown = capsys.readouterr().err
    assert clean(shown.replace("\x1b[1;31m", "").replace("\x1b[0m", "")) and "\\x1b]0;" in shown


@pytest.mark.parametrize("saved", [True, False])
def test_ctrl_c_while_the_report_is_drawn(folder, tmp_path, monkeypatch, saved):
    def press(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("kernelweave.cli.fit.write_html", press)
    place, _, _ = folder
    command = ["fit", place / "t.csv", "-t", "label", "--report", tmp_path / "r.html", "--json"]
    command += ["--model", tmp_path / "m.skops"] if saved else []
    done = run(*command, code=130)
    told = json.loads(done.stdout)
    assert told["interrupted"] and told["files"]["report"] is None
    (warning,) = (text for text in told["warnings"] if "report was drawn" in text)
    assert "r.html was not written" in warning and not (tmp_path / "r.html").exists()
    if saved:
        assert "the model is saved in" in warning and (tmp_path / "m.skops").exists()
    else:
        assert "the model was not saved" in warning
