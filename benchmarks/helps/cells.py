"""The fits: one file for each set and split, so that a long run can go on."""

import hashlib
import json
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

import kernelweave
from benchmarks.data import MissingDataError
from benchmarks.helps import contest, problems
from benchmarks.part import Settings

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
    root = Path(kernelweave.__file__).parent
    files = [*sorted(root.rglob("*.py")), contest.__file__, problems.__file__]
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
        problem = problems.make_problem(name, settings.data_dir, split, settings.seed)
    except MissingDataError as error:
        return {**head, "missing": str(error)}
    found = contest.run_contest(problem, settings.seed)
    sizes = {"train": len(problem.y_train), "test": len(problem.y_test)}
    kinds = {"kernels": len(problem.kernels), "balanced": problem.balanced}
    cell: Cell = {**head, **sizes, **kinds, "found": found}
    file.write_text(json.dumps(cell))
    seconds = sum(one["seconds"] for one in found.values())
    settings.say(f"{name}, split {split + 1}: {seconds:.0f} s")
    return cell
