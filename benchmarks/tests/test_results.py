"""Results of `python -m benchmarks`: written whole, read by commit, compared by the reference."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import results

ROOT = Path(__file__).parents[2]


def run_of(timings, commit="abc1234"):
    """A run with the given seconds and references."""
    made = {**results.describe_run(full=False, seed=0), "commit": commit, "parts": {}}
    names = ("seconds", "reference")
    made["timings"] = {name: dict(zip(names, pair, strict=True)) for name, pair in timings.items()}
    return made


def test_a_run_is_found_by_its_commit_or_its_file(tmp_path):
    made = run_of({"fit": (1.0, 0.5)})
    made["parts"]["limit"] = {"gap": np.float64(1e-3), "bad": np.inf, "rows": np.arange(3)}
    results.write_results(tmp_path / "abc1234.json", made)
    assert [path.name for path in tmp_path.iterdir()] == ["abc1234.json"]
    for name in ("abc", str(tmp_path / "abc1234.json")):
        read = results.read_results(name, tmp_path)
        assert read["timings"] == made["timings"]
        assert read["parts"]["limit"] == {"gap": 1e-3, "bad": None, "rows": [0, 1, 2]}
        assert read["versions"]["numpy"] == np.__version__


def test_what_cannot_be_compared_is_refused(tmp_path):
    made = run_of({"fit": (1.0, 0.5)})
    for name in ("abc1", "abc2"):
        results.write_results(tmp_path / f"{name}.json", made)
    (tmp_path / "broken.json").write_text("[1, 2]")
    (tmp_path / "old.json").write_text(json.dumps({**made, "format": 0}))
    for name in ("zzz", "abc", "broken", "old"):
        with pytest.raises(SystemExit, match=name):
            results.read_results(name, tmp_path)


def test_a_busy_machine_is_not_a_slowdown():
    before = run_of({"silp": (1.0, 0.1), "spg": (2.0, 0.1), "gone": (1.0, 1.0)})
    # The second run was on a machine three times slower; only spg has become slower itself.
    after = run_of({"silp": (3.0, 0.3), "spg": (12.0, 0.3), "new": (1.0, 1.0)})
    found = results.changes(before, after)
    assert [change.name for change in found] == ["spg", "silp"]
    assert [change.ratio for change in found] == pytest.approx([2.0, 1.0])


def test_slower_code_is_flagged_by_the_exit_code(tmp_path):
    results.write_results(tmp_path / "a.json", run_of({"fit": (1.0, 0.1)}, "a"))
    results.write_results(tmp_path / "b.json", run_of({"fit": (4.0, 0.2)}, "b"))
    command = [sys.executable, "-m", "benchmarks", "compare", "--out", str(tmp_path)]
    slower = subprocess.run([*command, "a", "b"], cwd=ROOT, capture_output=True, text=True)
    assert slower.returncode == 1 and "| slower |" in slower.stdout, slower.stderr
    assert "2.00 x" in slower.stdout
    faster = subprocess.run([*command, "b", "a"], cwd=ROOT, capture_output=True, text=True)
    assert faster.returncode == 0 and "| faster |" in faster.stdout
