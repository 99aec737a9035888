"""The weights as bars, of single kernels and of groups of them, and the table of all kernels."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from kernelweave.report.html.learnt import Learnt
from kernelweave.report.html.words import count, number, percent, plural, shorten

__all__ = ["kernel_table", "weight_section"]

# Bars of single kernels, and of groups.
_BARS = 15
# Rows of the table that are there without a script; it shows as many on a page.
PAGE = 25
# Names longer than this lose their middle: a name is no place for a sequence of 10,000 letters.
_NAME = 200
# Classes with a column of their own in the table.
_CLASSES = 6


def weight_section(learnt: Learnt) -> dict[str, Any]:
    """Bars of the heaviest kernels, and of views, columns and families."""
    return {
        "id": "weights",
        "title": "Which kernels carry the weight",
        "lead": _lead(learnt),
        "blocks": [{"kind": "bars", "panels": _panels(learnt)}],
    }


def _lead(learnt: Learnt) -> str:
    if learnt.std is not None:
        return (
            "Posterior means of the kernel weights; the thin lines are two standard deviations "
            "to each side. Weights may be negative: only their products with the functions of "
            "the kernels mean something. Paler bars may as well be zero."
        )
    if not hasattr(learnt.estimator, "gap_"):
        return (
            "No weights were learnt: this baseline takes all kernels alike. Shown is how much "
            "each kernel says, its share of the squared coefficients."
        )
    if getattr(learnt.estimator, "combination", "sum") == "product":
        return (
            "In a product of kernels a weight says how quickly similarity falls with the distance "
            "that it belongs to: the larger, the more that distance matters."
        )
    if learnt.classes:
        return "Every class has weights of its own: bars are their mean, dots the single classes."
    return "The larger its weight, the more a kernel has to say in the learnt combination."


def _panels(learnt: Learnt) -> list[dict[str, Any]]:
    panels = [_kernel_panel(learnt)]
    used = [(info, k) for info, k in zip(learnt.infos, learnt.order, strict=True)]
    used = [(info, k) for info, k in used if learnt.shares[k] > 0]
    views = _sums(learnt, ((info.view, k, 1.0) for info, k in used))
    columns = _sums(
        learnt,
        ((column, k, 1 / len(info.columns)) for info, k in used for column in info.columns),
    )
    families = _sums(learnt, ((info.family, k, 1.0) for info, k in used))
    # Groups of one kernel each say what the kernels have said.
    if 1 < len(views) < len(used):
        panels.append(_group_panel(learnt, "Views", views, "kernels on the same columns"))
    every = bool(used) and all(info.columns == used[0][0].columns for info, _ in used)
    if 1 < len(columns) != len(used) and not every and set(columns) != set(views):
        note = "columns; a kernel on several of them counts for each in equal parts"
        panels.append(_group_panel(learnt, "Columns", columns, note))
    if 1 < len(families) < len(used):
        panels.append(_group_panel(learnt, "Families", families, "kernels of the same kind"))
    return panels


def _kernel_panel(learnt: Learnt) -> dict[str, Any]:
    used = [i for i, k in enumerate(learnt.order) if learnt.shares[k] > 0]
    shown = used[:_BARS]
    places = learnt.order[shown]
    weights, sets = learnt.weights[places], learnt.by_class[:, places]
    reach = np.zeros(len(places)) if learnt.std is None else 2 * learnt.std[places]
    ends = [weights - reach, weights + reach, *([sets.min(axis=0), sets.max(axis=0)])]
    low, high = min(0.0, float(np.min(ends, initial=0))), float(np.max(ends, initial=0))
    span = (high - low) or 1.0

    def at(value: Any) -> float:
        return round(100 * (float(value) - low) / span, 2)

    bars = []
    for i, k in zip(shown, places, strict=True):
        weight = learnt.weights[k]
        bar = {
            "name": shorten(learnt.infos[i].name, _NAME),
            "left": at(min(weight, 0.0)),
            "width": round(100 * abs(weight) / span, 2),
            "text": _fixed(float(weight), high),
            "tip": f"{shorten(learnt.infos[i].name, _NAME)}: {number(weight, 4)}",
            "dots": [at(own) for own in learnt.by_class[:, k]] if learnt.classes else [],
        }
        if learnt.std is not None:
            std = float(learnt.std[k])
            bar |= {
                "text": f"{_fixed(float(weight), high)} ± {_fixed(2 * std, high)}",
                "ends": [at(weight - 2 * std), at(weight + 2 * std)],
                "pale": abs(weight) < 2 * std,
            }
        else:
            bar["tip"] += f", {percent(learnt.shares[k])} of all"
        bars.append(bar)
    rest = learnt.n_used - len(shown)
    note = ""
    if rest:
        left = max(0.0, 1.0 - float(learnt.shares[places].sum()))
        note = f"{plural(rest, 'more kernel')} with a weight: {percent(left)} of all together."
    zero = learnt.total - learnt.n_used
    if zero:
        note += f" {plural(zero, 'kernel has', 'kernels have')} weight zero."
    return {
        "id": "bars-kernels",
        "label": "Kernels",
        "title": "The heaviest kernels",
        "head": "weight",
        "zero": at(0.0),
        "bars": bars,
        "note": note.strip(),
    }


def _fixed(value: float, largest: float) -> str:
    """All numbers of a panel with the same decimals: three digits of the largest."""
    places = max(0, 2 - math.floor(math.log10(largest))) if largest > 0 else 2
    text = f"{value:,.{places}f}"
    return text if float(text.replace(",", "")) or not value else number(value, 1)


def _sums(
    learnt: Learnt, parts: Iterable[tuple[str, int, float]]
) -> dict[str, tuple[float, set[int]]]:
    """Share of the weight of each group, and which kernels it has."""
    found: dict[str, tuple[float, set[int]]] = {}
    shares = learnt.shares
    for name, k, part in parts:
        total, own = found.setdefault(name, (0.0, set()))
        own.add(int(k))
        found[name] = total + part * float(shares[k]), own
    return dict(sorted(found.items(), key=lambda item: -item[1][0]))


def _group_panel(
    learnt: Learnt, label: str, groups: dict[str, tuple[float, set[int]]], what: str
) -> dict[str, Any]:
    shown = list(groups.items())[:_BARS]
    most = max(share for _, (share, _) in shown) or 1.0
    bars = [
        {
            "name": shorten(name, _NAME),
            "left": 0,
            "width": round(100 * share / most, 2),
            "text": percent(share),
            "tip": f"{shorten(name, _NAME)}: {percent(share)}, {plural(len(own), 'kernel')}",
            "dots": [],
        }
        for name, (share, own) in shown
    ]
    notes = [f"Share of the sizes of all weights, added up over {what}."]
    rest = list(groups.values())[_BARS:]
    if rest:
        left = sum(share for share, _ in rest)
        notes.append(f"{count(len(rest))} more have {percent(left)} together.")
    if learnt.left_out and learnt.n_used > len(learnt.order):
        notes.append(f"Of the {count(len(learnt.order))} heaviest kernels only.")
    return {
        "id": f"bars-{label.lower()}",
        "label": label,
        "title": f"By {label.lower()}",
        "head": "share",
        "zero": 0,
        "bars": bars,
        "note": " ".join(notes),
    }


def kernel_table(learnt: Learnt) -> dict[str, Any]:
    """The table of all kernels: its data for the script, and its first page."""
    infos, order = learnt.infos, learnt.order
    families = list(dict.fromkeys(info.family for info in infos))
    views = list(dict.fromkeys(info.view for info in infos))
    family_of = {name: i for i, name in enumerate(families)}
    view_of = {name: i for i, name in enumerate(views)}
    classes = learnt.classes if len(learnt.classes) <= _CLASSES else []
    data: dict[str, Any] = {
        "page": PAGE,
        "families": families,
        "views": [shorten(view, _NAME) for view in views],
        "names": [shorten(info.name, _NAME) for info in infos],
        "family": [family_of[info.family] for info in infos],
        "view": [view_of[info.view] for info in infos],
        "weight": _rounded(learnt.weights[order]),
        "share": _rounded(learnt.shares[order]),
    }
    columns: list[dict[str, Any]] = [
        {"key": "rank", "head": "#", "numeric": True},
        {"key": "name", "head": "Kernel", "numeric": False},
        {"key": "family", "head": "Family", "numeric": False},
        {"key": "view", "head": "View", "numeric": False},
        {"key": "weight", "head": "Weight", "numeric": True},
    ]
    if learnt.std is not None:
        data["std"] = _rounded(learnt.std[order])
        columns.append({"key": "std", "head": "Std", "numeric": True})
    else:
        columns.append({"key": "share", "head": "Share", "numeric": True})
    for i, label in enumerate(classes):
        data[f"class{i}"] = _rounded(learnt.by_class[i, order])
        columns.append({"key": f"class{i}", "head": shorten(label, 24), "numeric": True})
    rows = [
        [_cell(data, column["key"], i) for column in columns] for i in range(min(PAGE, len(infos)))
    ]
    notes = []
    if learnt.left_out:
        zero = learnt.total - learnt.n_used
        dropped = learnt.n_used - len(order)
        if dropped > 0:
            notes.append(f"{plural(dropped, 'lighter kernel')} left out.")
        notes.append(f"{plural(zero, 'kernel')} of weight zero left out." if zero else "")
    return {"columns": columns, "rows": rows, "data": data, "note": " ".join(notes).strip()}


def _rounded(values: Any) -> list[float]:
    return [float(f"{value:.5g}") for value in values]


def _cell(data: dict[str, Any], key: str, i: int) -> str:
    """What a cell of the first page says, as the script writes it."""
    if key == "rank":
        return str(i + 1)
    if key == "name":
        return str(data["names"][i])
    if key in ("family", "view"):
        return str(data["families" if key == "family" else "views"][data[key][i]])
    value = data[key][i]
    if value == 0:
        return "0"
    if key == "share":
        return f"{100 * value:.2f} %" if value >= 5e-5 else "< 0.01 %"
    return f"{value:.4f}" if abs(value) >= 5e-5 else f"{value:.1e}"
