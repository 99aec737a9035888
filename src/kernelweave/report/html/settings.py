"""Settings, versions and what else is needed to make the report again."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from kernelweave.inspect.recipe import parameters, recipe
from kernelweave.inspect.words import number, shorten

__all__ = ["settings_section"]

_PACKAGES = ("kernelweave", "numpy", "scipy", "scikit-learn", "numba", "highspy")
_LONG = 400
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def settings_section(
    model: Any, estimator: Any, about: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    """Data, settings, versions, and the Python that makes the same fit."""
    blocks: list[dict[str, Any]] = []
    facts = [[str(label), str(text)] for label, text in about]
    if facts:
        blocks.append({"kind": "facts", "title": "Data", "rows": facts})
    before = [
        [name, shorten(repr(step), _LONG)]
        for name, step in getattr(getattr(model, "best_estimator_", model), "steps", [])
        if step is not estimator
    ]
    if before:
        blocks.append({"kind": "facts", "title": "Steps before the model", "rows": before})
    blocks.append(
        {
            "kind": "settings",
            "title": f"Settings of {type(estimator).__name__}",
            "rows": _settings(estimator),
        }
    )
    blocks.append({"kind": "facts", "title": "Versions", "rows": _versions()})
    blocks.append({"kind": "code", "title": "The same fit in Python", "code": recipe(model)})
    return {
        "id": "settings",
        "title": "Data and settings",
        "lead": "Everything that is needed to make this fit again.",
        "blocks": blocks,
    }


def _settings(estimator: Any) -> list[dict[str, Any]]:
    """Name, value, and whether it is other than the default."""
    return [
        {"name": name, "value": _say(value), "changed": _say(value) != _say(default)}
        for name, value, default in parameters(estimator)
    ]


def _say(value: Any) -> str:
    if isinstance(value, float):
        return number(value, 6)
    if isinstance(value, list | tuple) and len(value) > 12:
        some = ", ".join(_say(item) for item in value[:6])
        return shorten(f"{len(value):,} items: {some}, …", _LONG)
    # An address in memory says nothing to a reader.
    return shorten(_ADDRESS.sub("", repr(value)), _LONG)


def _versions() -> list[list[str]]:
    rows = [["Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"]]
    for name in _PACKAGES:
        try:
            rows.append([name, version(name)])
        except PackageNotFoundError:
            continue
    return rows
