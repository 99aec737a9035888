"""The Python that makes the same fit again."""

from __future__ import annotations

import ast
import builtins
import inspect
from importlib import import_module
from typing import Any

from kernelweave.inspect.ranking import find_estimator

# Where the names in the text of a setting may come from.
_HOMES = (
    "kernelweave.kernels",
    "kernelweave.regularizers",
    "kernelweave.losses",
    "kernelweave.combine",
    "kernelweave.solvers",
    "kernelweave.bank",
    "kernelweave.tables",
    "sklearn.preprocessing",
    "sklearn.decomposition",
    "sklearn.impute",
    "sklearn.feature_selection",
    "sklearn.pipeline",
    "sklearn.compose",
    "numpy",
)
_GIVEN = {"model", "X_train", "y_train"}
# What a fit was told about the machine and the audience, not about the model.
_QUIET = {"n_jobs", "verbose", "callbacks", "warm_start", "warm_start_from", "cache_mb"}
_LONG = 1500


def recipe(model: Any) -> str:
    """Return Python that makes the same fit, from samples called X_train and y_train.

    Settings at their defaults are left out. What Python cannot write down (matrices, functions of
    your own) is left for you to fill in, with a comment.
    """
    inner = getattr(model, "best_estimator_", model)
    estimator = find_estimator(inner)
    if hasattr(inner, "steps"):
        lines = ["model = Pipeline(", "    ["]
        for name, step in inner.steps:
            lines += [f"        {line}" for line in _written(f'("{name}", ', step, "),")]
        lines += ["    ]", ")"]
    else:
        lines = _written("model = ", estimator, "")
    target = "" if hasattr(estimator, "offset_") else ", y_train"
    body = "\n".join([*lines, f"model.fit(X_train{target})"])
    return "\n".join([*_imports(body, estimator), "", body])


def parameters(step: Any) -> list[tuple[str, Any, Any]]:
    """Return name, value and default of every setting, in the order of the signature."""
    values = step.get_params(deep=False)
    known = inspect.signature(type(step).__init__).parameters
    order = [*(name for name in known if name in values), *(n for n in values if n not in known)]
    empty = inspect.Parameter.empty
    return [(n, values[n], known[n].default if n in known else empty) for n in order]


def _written(before: str, step: Any, after: str) -> list[str]:
    """The lines that make a step, with the settings other than the defaults."""
    if not hasattr(step, "get_params"):
        return [f"{before}{step!r}{after}"]
    settings = []
    for name, value, default in parameters(step):
        text = repr(value)
        if name in _QUIET or text == repr(default):
            continue
        note = ""
        if len(text) > _LONG or not _writable(text):
            count = f" of {len(value):,}" if hasattr(value, "__len__") else ""
            text, note = "...", f"  # as you made it: {type(value).__name__}{count}"
        settings.append(f"    {name}={text},{note}")
    opened = f"{before}{type(step).__name__}("
    return [opened, *settings, f"){after}"] if settings else [f"{opened}){after}"]


def _writable(text: str) -> bool:
    """Whether the text of a setting is Python that gives it back."""
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):
        return False
    names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    return "..." not in text and not any(name.startswith("_") for name in names)


def _imports(body: str, estimator: Any) -> list[str]:
    """Import what the text names; classes of your own are left to you."""
    name = type(estimator).__name__
    public = hasattr(import_module("kernelweave"), name)
    found = {"kernelweave" if public else type(estimator).__module__: {name}}
    named = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    own = []
    for other in sorted(named - {name, *_GIVEN}):
        home = next((h for h in _HOMES if other in getattr(import_module(h), "__all__", ())), None)
        if home is not None:
            found.setdefault(home, set()).add(other)
        elif not hasattr(builtins, other):
            own.append(other)
    lines = [f"from {home} import {', '.join(sorted(names))}" for home, names in found.items()]
    lines = sorted(lines, key=lambda line: (not line.startswith("from kernelweave"), line))
    return lines + [f"# {other} is your own: import it from where it lives" for other in own]
