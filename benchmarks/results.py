"""Results of ``python -m benchmarks`` as JSON, one file for each commit, and two of them compared.

A timing is compared by its ratio to the reference measured around it in the same run, so that a
slower or busier machine does not pass for slower code.
"""

import json
import math
import platform
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from joblib import cpu_count

FORMAT = 1
PACKAGES = ("kernelweave", "numpy", "scipy", "scikit-learn", "numba", "highspy")


def commit_name() -> str:
    """Return the short name of the commit, with ``-dirty`` if files differ from it."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude=*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "no-commit"
    return done.stdout.strip()


def describe_run(full: bool, seed: int) -> dict[str, Any]:
    """Return what a reader must know of a run besides its results."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "format": FORMAT,
        "commit": commit_name(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "full": full,
        "seed": seed,
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": cpu_count(),
        "python": platform.python_version(),
        "versions": versions,
    }


def write_results(path: Path, results: dict[str, Any]) -> None:
    """Write a run; the file is replaced only by a whole one."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(_plain(results), indent=1, allow_nan=False) + "\n")
    part.replace(path)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; numbers that are none become null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Path):
        return str(value)
    return value


def read_results(name: str, folder: Path) -> dict[str, Any]:
    """Read a run by the path of its file or by its commit, which may be cut short."""
    path = Path(name)
    if not path.is_file():
        found = sorted(folder.glob(f"{name}*.json"))
        if len(found) != 1:
            there = ", ".join(file.stem for file in sorted(folder.glob("*.json"))) or "none"
            what = "no results" if not found else f"{len(found)} results"
            raise SystemExit(
                f"{what} by the name of {name!r}: give a file, or a commit of those in "
                f"{str(folder)!r} ({there})"
            )
        path = found[0]
    try:
        results = json.loads(path.read_text())
        known = results["format"], results["timings"]
    except (ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{path} holds no results of `python -m benchmarks`: {error!r}") from error
    if known[0] != FORMAT:
        raise SystemExit(f"{path} has format {known[0]}; this program reads {FORMAT}")
    return dict(results)


@dataclass(frozen=True)
class Change:
    """One timing in two runs, each as a multiple of the reference of its run."""

    name: str
    before: float
    after: float
    seconds: tuple[float, float]

    @property
    def ratio(self) -> float:
        return self.after / self.before


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """Return the timings that both runs have, the largest slowdown first."""
    found = []
    for name, old in before["timings"].items():
        new = after["timings"].get(name)
        if new is not None:
            ratios = [timing["seconds"] / timing["reference"] for timing in (old, new)]
            found.append(Change(name, *ratios, (old["seconds"], new["seconds"])))
    return sorted(found, key=lambda change: -change.ratio)
