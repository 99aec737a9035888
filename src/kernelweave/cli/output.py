"""Where a command speaks: lines for people, or one JSON document for machines."""

from __future__ import annotations

import json
import math
import sys
import textwrap
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kernelweave.errors import InterruptedFitWarning, InvalidInputError, visible

_LABEL = 12  # width of the labels on the left
_BAR = 24


def shown(text: str, *, lines: bool = False) -> str:
    """Return text for the console: neither markup nor a control character in it means anything."""
    return escape(visible(text, lines=lines))


class Output:
    """What a command tells while it works and when it is done."""

    def __init__(self, *, json: bool = False, quiet: bool = False, to_stderr: bool = False) -> None:
        self.json = json
        self.console = Console(stderr=json or to_stderr, highlight=False, quiet=quiet)
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self.interrupted = False  # Whether Ctrl-C has ended a piece of work.

    def notes_on(self, about: Iterable[tuple[str, str]]) -> None:
        """Print facts with a label each, and keep them for the JSON document."""
        for label, text in about:
            self.notes.append(text)
            self.line(label, text)

    def line(self, label: str, text: str) -> None:
        self.console.print(f"  [dim]{label:<{_LABEL}}[/]{shown(text)}", soft_wrap=True)

    def show(self, thing: Any = "") -> None:
        """Print a table or a line as it is, with markup."""
        self.console.print(thing)

    def text(self, lines: str) -> None:
        """Print lines as they are, however wide."""
        self.console.print(shown(textwrap.indent(lines, "  "), lines=True), soft_wrap=True)

    def warn(self, text: str) -> None:
        self.warnings.append(text)
        self.console.print(f"  [yellow]warning:[/] {shown(text)}", soft_wrap=True)

    def saved(self, what: str, path: Path) -> None:
        self.console.print(
            f"  [dim]{what:<{_LABEL}}[/]saved to [bold]{shown(str(path))}[/]", soft_wrap=True
        )

    def document(self, content: dict[str, Any]) -> None:
        """Print the result for machines, if they asked for it."""
        if self.json:
            notes = [*content.get("notes", ()), *self.notes]
            whole = {**content, "notes": notes, "warnings": self.warnings}
            json.dump(_plain(whole), sys.stdout, indent=2, allow_nan=False)
            sys.stdout.write("\n")

    @contextmanager
    def hearing(self) -> Iterator[None]:
        """Collect the warnings of the work inside, and print each once when it ends."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
        self.interrupted |= any(issubclass(w.category, InterruptedFitWarning) for w in caught)
        for text in dict.fromkeys(str(entry.message) for entry in caught):
            self.warn(text)


def check_file(option: str, path: Path, allowed: tuple[str, ...] = ()) -> Path:
    """Refuse before the work what cannot be written after it; returns the absolute path."""
    if allowed and path.suffix.lower() not in allowed:
        raise InvalidInputError(f"{option} must end in {', '.join(allowed)}; got {str(path)!r}.")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise InvalidInputError(f"{option}: there is no folder {str(folder)!r}.")
    if path.is_dir():
        raise InvalidInputError(f"{option} must be a file; {str(path)!r} is a folder.")
    return path.absolute()


def carrying(n: int, total: int) -> str:
    """Say how many of the kernels have a weight."""
    return f"{n:,} of {total:,} {'carries' if n == 1 else 'carry'} weight"


def weights_table(ranked: list[tuple[str, float]], top: int) -> Table:
    """Lay out kernels, the heaviest first, with their weights as bars; `top` of them."""
    table = Table(box=None, padding=(0, 2))
    table.add_column("kernels that carry the weight")
    table.add_column("weight", justify="right")
    table.add_column("")
    heaviest = max((abs(weight) for _, weight in ranked), default=1.0) or 1.0
    for name, weight in ranked[:top]:
        bar = "█" * max(1, round(_BAR * abs(weight) / heaviest))
        colour = "blue" if weight >= 0 else "red"
        table.add_row(shown(name), f"{weight:.3f}", f"[{colour}]{bar}[/]")
    rest = [weight for _, weight in ranked[top:]]
    if rest:
        # Weights that may be negative would cancel.
        total = "" if min(rest) < 0 else f"{sum(rest):.3f}"
        table.add_row(f"[dim]{len(rest)} more[/]", f"[dim]{total}[/]", "")
    return table


def _plain(value: Any) -> Any:
    """Return a value as JSON knows it; numbers that are none become null."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
