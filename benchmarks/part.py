"""A part of the proof (``python -m benchmarks``), and the options of all programs here.

A part is the ``__main__`` of a folder with a ``TITLE``, ``measure(settings, clock)``, which returns
what JSON can hold, and ``tell(result)``, which turns that into Markdown. Times that later runs are
compared with go through the clock.
"""

import argparse
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from benchmarks.timing import Clock

_DATA = "folder with the data files; without it OpenML and PyPI are asked"
_SHARED = {
    "full": (False, "all of it, which may take hours"),
    "seed": 0,
    "out": (Path("benchmark-results"), "folder for results and figures"),
}


@dataclass(frozen=True)
class Settings:
    """What a part is told: where data are, how much time there is, where files may go."""

    data_dir: Path | None = None
    full: bool = False
    seed: int = 0
    out: Path = Path("benchmark-results")

    def say(self, text: str) -> None:
        """Show that work goes on."""
        print(f"  {text}", file=sys.stderr, flush=True)


def read_options(
    text: str | None, data: bool = True, quick: dict[str, Any] | None = None, **options: Any
) -> Any:
    """Read the command line; `text` is the help, an option is its default.

    A list takes several values, a dictionary some of its keys, False is a switch, None a word. A
    tuple is a default and its help, and perhaps what may be chosen. `quick` has the defaults that
    the switch --quick puts in their place. Fits that are stopped early warn no one from here on:
    the tables show their gaps.
    """
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if data:
        folder = os.environ.get("KERNELWEAVE_DATA")
        parser.add_argument("--data-dir", type=Path, default=folder and Path(folder), help=_DATA)
    for name, given in options.items():
        default, *rest = given if isinstance(given, tuple) else (given,)
        more: dict[str, Any] = {"help": rest[0] if rest else None}
        more["choices"] = list(rest[1]) if len(rest) > 1 else None
        if isinstance(default, bool):
            more = {"action": "store_true", "help": more["help"]}
        elif isinstance(default, dict | list):
            more["choices"] = list(default) if isinstance(default, dict) else more["choices"]
            default = list(default)
            more |= {"nargs": "+", "type": type(default[0])}
        elif default is not None:
            more["type"] = type(default) if not isinstance(default, Path) else Path
        parser.add_argument(f"--{name.replace('_', '-')}", default=default, **more)
    if quick:
        parser.add_argument("--quick", action="store_true", help="smaller, to look at it once")
        if "--quick" in sys.argv:
            parser.set_defaults(**quick)
    warnings.simplefilter("ignore", ConvergenceWarning)
    found = parser.parse_args()
    if data and found.data_dir is not None:
        if not found.data_dir.is_dir():
            parser.error(f"--data-dir: there is no folder {str(found.data_dir)!r}")
        found.data_dir = found.data_dir.resolve()  # processes of their own begin elsewhere
    return found


def run_parts(
    text: str | None,
    parts: dict[str, Callable[[Any], None]],
    start: Any = None,
    warm_up: Callable[[], Any] | None = None,
    **options: Any,
) -> Any:
    """Run the parts of a script that were asked for, in their order here; return the options.

    `start` are the parts to run where none is asked for (default: all); `warm_up` compiles, which
    is part of no time.
    """
    chosen = (list(start or parts), "what to measure", parts)
    args = read_options(text, parts=chosen, **options)
    if warm_up is not None:
        warm_up()
    for name, part in parts.items():
        if name in args.parts:
            part(args)
    return args


def read_settings(text: str | None, **more: Any) -> tuple[Settings, Any]:
    """Read the options that all parts share and some more; make the folder for results."""
    found = read_options(text, **_SHARED, **more)
    found.out.mkdir(parents=True, exist_ok=True)
    return Settings(found.data_dir, found.full, found.seed, found.out), found


def run_alone(part: ModuleType) -> None:
    settings, _ = read_settings(part.__doc__)
    print(f"# {part.TITLE}\n\n{part.tell(part.measure(settings, Clock()))}")
