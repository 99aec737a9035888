"""The command line: what a newcomer types first, and what goes wrong."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import kernelweave
from kernelweave.cli import main
from kernelweave.cli.app import app
from kernelweave.cli.progress import CountProgress, FitProgress, PathProgress

COMMAND = [sys.executable, "-c", "from kernelweave.cli import main; main()"]


def run(*arguments, cwd=None):
    """Run the command in a process of its own, piped."""
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        timeout=600,
    )


def record(iteration, seconds, gap, active=5):
    return SimpleNamespace(iteration=iteration, seconds=seconds, gap=gap, active_kernels=active)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    return run("demo", cwd=folder), folder


def test_demo_prints_the_comparison(demo):
    done, _ = demo
    assert done.returncode == 0, done.stderr
    accuracies = {
        label: float(re.search(rf"{label}\s+([\d.]+) %", done.stdout)[1])
        for label in ("learnt weights", "equal weights", "best single kernel")
    }
    assert accuracies["learnt weights"] > 90
    assert min(accuracies.values()) > 60
    gap = float(re.search(r"learnt weights.*?(\d\.\de[-+]\d\d)", done.stdout)[1])
    assert gap <= 1e-3
    assert "403 kernels" in done.stdout


def test_demo_lists_kernels_by_falling_weight(demo):
    done, _ = demo
    listed = done.stdout.split("kernels that carry the weight")[1]
    weights = [float(w) for w in re.findall(r"(0\.\d{3})\s+█", listed)]
    assert len(weights) >= 2
    assert weights == sorted(weights, reverse=True)


def test_demo_saves_the_figure_and_says_where(demo):
    done, folder = demo
    path = folder / "kernelweave-demo.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    assert str(path) in done.stdout


def test_demo_piped_is_plain_text(demo):
    done, _ = demo
    assert "\x1b" not in done.stdout
    assert "iteration" in done.stdout


def test_version():
    done = CliRunner().invoke(app, ["--version"])
    assert done.output.strip() == f"kernelweave {kernelweave.__version__}"


@pytest.mark.parametrize("command", ["", "demo", "fit", "predict", "inspect", "compare"])
def test_help_has_examples(command):
    arguments = [command, "--help"] if command else []
    shown = CliRunner().invoke(app, arguments, prog_name="kernelweave").output
    assert "Examples" in shown
    assert f"kernelweave {command or 'demo'}" in shown.split("Examples")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--C", "-1"], "C must be"),
        (["demo", "--tol", "-1"], "tol must be"),
        (["demo", "--figure", "out.txt"], "must end in .png"),
        (["demo", "--figure", "nowhere/out.png"], "no folder"),
    ],
)
def test_errors_are_one_line_without_a_traceback(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["kernelweave", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    told = capsys.readouterr().err
    assert end.value.code == 1
    assert message in told.replace("\n", " ")
    assert "Traceback" not in told


def test_a_traceback_is_there_for_who_wants_it(tmp_path):
    done = run("--traceback", "demo", "--figure", "out.txt", cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["dmeo"], ["demo", "--seed", "x"], ["demo", "--nope"], ["fit"], ["fit", "x.csv", "--cv", "1"]],
)
def test_wrong_usage_is_told_from_errors(arguments, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["kernelweave", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert "Usage" in capsys.readouterr().err


def test_help_does_not_load_the_library():
    code = (
        "import sys\nfrom kernelweave.cli.app import app\n"
        "heavy = {'sklearn', 'numba', 'matplotlib', 'scipy'} & set(sys.modules)\nprint(heavy)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def terminal():
    out = io.StringIO()
    return out, Console(file=out, force_terminal=True, width=100, color_system=None)


def test_live_progress_is_full_when_the_tolerance_is_met():
    _, console = terminal()
    with FitProgress(console, "fitting", 1e-3) as progress:
        progress(record(0, 0.1, 1.0))
        progress(record(1, 0.2, 10**-1.5))
        halfway = progress.bar.tasks[0].completed
        progress(record(2, 0.3, 5e-4))
        assert progress.bar.tasks[0].completed == 1.0
    assert halfway == pytest.approx(0.5)


def test_live_progress_shows_gap_kernels_and_time():
    out, console = terminal()
    with FitProgress(console, "fitting", 1e-3) as progress:
        progress(record(3, 0.25, 0.02, active=7))
    assert re.search(r"gap 2.0e-02  7 kernels 0:00:0\d", out.getvalue())


@pytest.mark.parametrize("gap", [np.inf, np.nan, 1e-9])
def test_live_progress_survives_any_gap(gap):
    out, console = terminal()
    with FitProgress(console, "fitting", 1e-3) as progress:
        progress(record(0, 0.1, gap))
        progress(record(1, 0.2, gap))
    assert "fitting" in out.getvalue()


def test_plain_progress_is_throttled_and_ends_with_the_last_record(monkeypatch):
    clock = iter(np.arange(0.0, 1000.0, 0.01))
    monkeypatch.setattr("kernelweave.cli.progress.time.perf_counter", lambda: next(clock))
    out = io.StringIO()
    with FitProgress(Console(file=out), "fitting", 1e-3) as progress:
        for i in range(500):
            progress(record(i, 0.0, 0.99**i))
    lines = [line for line in out.getvalue().splitlines() if "iteration" in line]
    assert 3 <= len(lines) <= 5
    assert "iteration   0" in lines[0]
    assert "iteration 499" in lines[-1]


def test_the_bar_is_full_when_the_time_is_over():
    _, console = terminal()
    with FitProgress(console, "fitting", 1e-4, time_limit=12.0) as progress:
        progress(record(0, 0.0, 1.0))
        progress(record(1, 6.0, 1e-1))
        halfway = progress.bar.tasks[0].completed
        progress(record(2, 12.0, 1e-1))
        assert (halfway, progress.bar.tasks[0].completed) == (0.5, 1.0)


def test_progress_of_a_bayesian_fit_and_of_one_class_after_the_other():
    out, console = terminal()
    with FitProgress(console, "fitting", 1e-3) as progress:
        progress(SimpleNamespace(iteration=1, seconds=0.1, change=0.5, active_kernels=2))
        progress(SimpleNamespace(iteration=2, seconds=0.1, change=1e-4, active_kernels=2))
        full = progress.bar.tasks[0].completed
        progress(SimpleNamespace(iteration=1, seconds=0.1, change=0.5, active_kernels=2))
        assert (full, progress.bar.tasks[0].completed) == (1.0, 0.0)
    assert "change" in out.getvalue()


def test_the_fits_of_a_path_are_counted():
    _, console = terminal()
    with PathProgress(console, "choosing C", 3) as progress:
        for iteration in (0, 1, 2, 0, 0, 1):
            progress(record(iteration, 0.1, 0.1))
        assert progress.bar.tasks[0].completed == 3


def test_counting_bar_counts():
    _, console = terminal()
    with CountProgress(console, "trying", 3) as bar:
        bar.advance_to(1)
        bar.advance_to(3)
        assert bar.bar.tasks[0].finished
