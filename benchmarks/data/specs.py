"""What every data set must look like, and where it can come from: read from ``sets.toml``."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Package:
    """A wheel on PyPI that holds data."""

    name: str
    version: str
    tags: tuple[str, str, str] | None = None


@dataclass(frozen=True)
class Spec:
    """A data set: its shape, its classes, its routes; ``sets.toml`` explains the fields."""

    kind: str
    files: tuple[str, ...]
    classes: Mapping[str, int]
    checksum: float
    columns: int | Mapping[str, int] = 0
    positive: str | None = None
    openml: tuple[str, int] | None = None
    package: Package | None = None
    member: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    @property
    def rows(self) -> int:
        return sum(self.classes.values())

    @property
    def width(self) -> int:
        """Number of columns, of all views together."""
        return self.columns if isinstance(self.columns, int) else sum(self.columns.values())


def _spec(files: list[str], classes: Any, **entry: Any) -> Spec:
    if isinstance(classes, list):
        classes = {str(number): count for number, count in enumerate(classes, 1)}
    package, entry["member"] = entry.pop("package", (None, ""))
    entry["package"] = PACKAGES[package] if package else None
    entry["openml"] = tuple(entry["openml"]) if "openml" in entry else None
    return Spec(files=tuple(files), classes=classes, **entry)


_HELD = tomllib.loads((Path(__file__).parent / "sets.toml").read_text(encoding="utf-8"))
PACKAGES = {
    key: Package(made["name"], made["version"], tuple(made["tags"]) if "tags" in made else None)
    for key, made in _HELD["packages"].items()
}
SPECS = {name: _spec(**entry) for name, entry in _HELD["sets"].items()}
