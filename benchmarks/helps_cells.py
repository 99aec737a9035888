"""The fits of ``helps.py``: one file for each set and split, so that a long run can go on."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import helps_contest
import helps_problems
from datasets import MissingDataError
from joblib import Parallel, delayed
from part import Settings

import kernelweave

Cell = dict[str, Any]


def run_cells(names: list[str], n_splits: int, settings: Settings) -> list[Cell]:
    """Return what every split of every set gave: the first of all sets, then the second.

    A full run takes the files of an earlier one that was cut short, if neither the library nor
    the contest has changed since.
    """
    folder = settings.out / "helps"
    folder.mkdir(parents=True, exist_ok=True)
    stamp = fingerprint()
    jobs = [(name, split) for split in range(n_splits) for name in names]
    # One thread a fit: they are small, and cells run beside each other instead.
    work = Parallel(n_jobs=-1)
    return work(delayed(_cell)(name, split, folder, stamp, settings) for name, split in jobs)


def fingerprint() -> str:
    """Return a hash of the library and of the contest."""
    root = Path(kernelweave.__file__).parent
    files = [*sorted(root.rglob("*.py")), helps_contest.__file__, helps_problems.__file__]
    whole = hashlib.sha256()
    for file in files:
        whole.update(Path(file).read_bytes())
    return whole.hexdigest()[:16]


def _cell(name: str, split: int, folder: Path, stamp: str, settings: Settings) -> Cell:
    file = folder / f"{name}-{split}-seed{settings.seed}.json"
    if settings.full and file.exists():
        kept: Cell = json.loads(file.read_text())
        if kept["stamp"] == stamp:
            return kept
    head = {"name": name, "split": split, "stamp": stamp}
    try:
        problem = helps_problems.make_problem(name, settings.data_dir, split, settings.seed)
    except MissingDataError as error:
        return {**head, "missing": str(error)}
    found = helps_contest.run_contest(problem, settings.seed)
    cell: Cell = {
        **head,
        "train": len(problem.y_train),
        "test": len(problem.y_test),
        "kernels": len(problem.kernels),
        "balanced": problem.balanced,
        "found": found,
    }
    file.write_text(json.dumps(cell))
    settings.say(
        f"{name}, split {split + 1}: {sum(one['seconds'] for one in found.values()):.0f} s"
    )
    return cell
