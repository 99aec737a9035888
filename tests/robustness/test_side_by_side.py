"""The same answers, bit for bit, by any number of threads and in any kind of process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "helpers" / "side_by_side.py"
# Whoever waits for a lock that no one holds waits for ever; this is when it is called so.
PATIENCE = 600
WORKS = ["thread_numbers", "threads", "forked", "forked_while_fitting", "spawned", "joblib_workers"]


@pytest.mark.parametrize("work", WORKS)
def test_the_same_answers(work):
    if "forked" in work and not hasattr(os, "fork"):
        pytest.skip("no fork here")
    env = {**os.environ, "KERNELWEAVE_QUIET": "1"}
    done = subprocess.run(
        [sys.executable, SCRIPT, work], capture_output=True, text=True, timeout=PATIENCE, env=env
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for name, digests in found.items():
        assert len(digests) > 1 and len(set(digests)) == 1, (name, digests)
