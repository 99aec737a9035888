"""A part of the proof (``python -m benchmarks``): what it is given, its clock, how it runs alone.

A part is a module with a ``TITLE``, ``measure(settings, clock)``, which returns what JSON can hold,
and ``tell(result)``, which turns that into Markdown. Times that later runs are compared with go
through the clock, which measures a reference of fixed work around each of them: a busy machine
slows both, and their ratio hardly changes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
from datasets import add_data_dir

T = TypeVar("T")
_SIZE = 384
_LONG = 4_000_000


@dataclass(frozen=True)
class Settings:
    """What a part is told: where data are, how much time there is, where files may go."""

    data_dir: Path | None = None
    full: bool = False
    seed: int = 0
    out: Path = field(default_factory=lambda: Path("benchmark-results"))

    def say(self, text: str) -> None:
        """Show that work goes on."""
        print(f"  {text}", file=sys.stderr, flush=True)


class Reference:
    """Fixed work of the kinds that fits are made of: BLAS, exponentials, a pass over memory."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._square = rng.normal(size=(_SIZE, _SIZE))
        self._long = rng.normal(size=_LONG)
        self._room = np.empty(_LONG)

    def seconds(self) -> float:
        """Do the work once."""
        began = time.perf_counter()
        for _ in range(4):
            self._square @ self._square
        np.exp(self._long[: _LONG // 8], out=self._room[: _LONG // 8])
        np.add(self._long, self._long, out=self._room)
        return time.perf_counter() - began


class Clock:
    """Times by name, each with the reference around it."""

    def __init__(self) -> None:
        self.timings: dict[str, dict[str, float]] = {}
        self._reference = Reference()
        self._reference.seconds()

    def time(self, name: str, work: Callable[[], T], repeats: int = 3) -> tuple[T, float]:
        """Return the value of `work` and the smallest of its times; keep that by its name.

        Parameters
        ----------
        name : str
            Of this timing in all runs, such as ``"guard/silp"``.
        work : callable
            Without arguments. Call it once before if it compiles.
        repeats : int
            How often it is done.
        """
        if name in self.timings:
            raise ValueError(f"a second timing by the name of {name!r}")
        references = [self._reference.seconds() for _ in range(3)]
        seconds = []
        for _ in range(repeats):
            began = time.perf_counter()
            value = work()
            seconds.append(time.perf_counter() - began)
            references.append(self._reference.seconds())
        self.timings[name] = {"seconds": min(seconds), "reference": min(references)}
        return value, min(seconds)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the options that all parts share."""
    add_data_dir(parser)
    parser.add_argument("--full", action="store_true", help="all of it, which may take hours")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("benchmark-results"),
        help="folder for results and figures (default: benchmark-results)",
    )


def read_settings(options: argparse.Namespace) -> Settings:
    """Return what the options say, and make the folder for results."""
    options.out.mkdir(parents=True, exist_ok=True)
    data_dir = None if options.data_dir is None else Path(options.data_dir)
    if data_dir is not None and not data_dir.is_dir():
        raise SystemExit(f"--data-dir: there is no folder {str(data_dir)!r}")
    return Settings(data_dir, options.full, options.seed, options.out)


def run_alone(part: ModuleType) -> None:
    """Run one part as a program."""
    parser = argparse.ArgumentParser(
        description=part.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_settings(parser)
    settings = read_settings(parser.parse_args())
    result: dict[str, Any] = part.measure(settings, Clock())
    print(f"# {part.TITLE}\n\n{part.tell(result)}")


def table(heads: list[str], rows: list[list[Any]]) -> str:
    """Return a table in Markdown."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)
