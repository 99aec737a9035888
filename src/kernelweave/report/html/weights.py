"""The weights as bars, of single kernels and of groups of them, and the table of all kernels."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kernelweave.inspect.kernel_info import KernelInfo, describe_kernels
from kernelweave.inspect.learnt import Ranking, rank_kernels, weight_bars
from kernelweave.inspect.words import count, number, percent, plural, shorten

__all__ = ["Listed", "kernel_table", "weight_section"]

# So many kernels are listed unless more are asked for; the file stays below 3 MB.
_MOST = 5000
# Bars of single kernels, and of groups.
_BARS = 15
# Rows of the table that are there without a script; it shows as many on a page.
_PAGE = 25
# Names longer than this lose their middle: a name is no place for a sequence of 10,000 letters.
_NAME = 200
# Classes with a column of their own in the table.
_CLASSES = 6


@dataclass(frozen=True, eq=False)
class Listed:
    """The kernels that the page lists, the heaviest first, and what they are."""

    ranking: Ranking
    order: Any
    infos: list[KernelInfo]

    @classmethod
    def of(cls, model: Any, max_kernels: int | None) -> Listed:
        """List all kernels; of more than `max_kernels` those with most weight, none without."""
        ranking = Ranking.of(model)
        most = _MOST if max_kernels is None else max_kernels
        # Of very many kernels those without a weight are not worth a line.
        room = ranking.total if ranking.total <= most else max(1, min(len(ranking.used), most))
        order = ranking.order[:room]
        return cls(ranking, order, describe_kernels(ranking.estimator, order))


def weight_section(listed: Listed) -> dict[str, Any]:
    """Bars of the heaviest kernels, and of views, columns and families."""
    return {
        "id": "weights",
        "title": "Which kernels carry the weight",
        "lead": _lead(listed.ranking),
        "blocks": [{"kind": "bars", "panels": _panels(listed)}],
    }


def _lead(ranking: Ranking) -> str:
    if ranking.std is not None:
        return (
            "Posterior means of the kernel weights; the thin lines are two standard deviations "
            "to each side. Weights may be negative: only their products with the functions of "
            "the kernels mean something. Paler bars may as well be zero."
        )
    if not hasattr(ranking.estimator, "gap_"):
        return (
            "No weights were learnt: this baseline takes all kernels alike. Shown is how much "
            "each kernel says, its share of the squared coefficients."
        )
    if getattr(ranking.estimator, "combination", "sum") == "product":
        return (
            "In a product of kernels a weight says how quickly similarity falls with the distance "
            "that it belongs to: the larger, the more that distance matters."
        )
    if ranking.classes:
        return "Every class has weights of its own: bars are their mean, dots the single classes."
    return "The larger its weight, the more a kernel has to say in the learnt combination."


def _panels(listed: Listed) -> list[dict[str, Any]]:
    panels = [_kernel_panel(listed.ranking)]
    used = list(zip(listed.infos, listed.order, strict=True))[: len(listed.ranking.used)]
    views = _sums(listed, ((info.view, k, 1.0) for info, k in used))
    columns = _sums(
        listed,
        ((column, k, 1 / len(info.columns)) for info, k in used for column in info.columns),
    )
    families = _sums(listed, ((info.family, k, 1.0) for info, k in used))
    # Groups of one kernel each say what the kernels have said.
    if 1 < len(views) < len(used):
        panels.append(_group_panel(listed, "Views", views, "kernels on the same columns"))
    every = bool(used) and all(info.columns == used[0][0].columns for info, _ in used)
    if 1 < len(columns) != len(used) and not every and set(columns) != set(views):
        note = "columns; a kernel on several of them counts for each in equal parts"
        panels.append(_group_panel(listed, "Columns", columns, note))
    if 1 < len(families) < len(used):
        panels.append(_group_panel(listed, "Families", families, "kernels of the same kind"))
    return panels


def _panel(label: str, title: str, head: str, zero: float, bars: Any, note: str) -> dict[str, Any]:
    key = f"bars-{label.lower()}"
    return {
        "id": key,
        "label": label,
        "title": title,
        "head": head,
        "zero": zero,
        "bars": bars,
        "note": note,
    }


def _kernel_panel(ranking: Ranking) -> dict[str, Any]:
    kernels = rank_kernels(ranking.estimator)
    bars, _ = weight_bars(kernels, _BARS)
    low = min((bar.low for bar in bars), default=0.0)
    high = max((bar.high for bar in bars), default=0.0)
    span = (high - low) or 1.0

    def at(value: float) -> float:
        return round(100 * (value - low) / span, 2)

    shown = []
    for bar, kernel in zip(bars, kernels, strict=False):
        name, text = shorten(bar.name, _NAME), _fixed(bar.right, high)
        tip = f"{name}: {number(bar.right, 4)}"
        drawn = {
            "name": name,
            "left": at(min(bar.right, 0.0)),
            "width": round(100 * abs(bar.right) / span, 2),
            "dots": [at(own) for own in kernel.by_class] if ranking.classes else [],
        }
        if bar.reach is not None:
            text += f" ± {_fixed(bar.reach, high)}"
            drawn |= {
                "ends": [at(bar.right - bar.reach), at(bar.right + bar.reach)],
                "pale": bar.doubtful,
            }
        else:
            tip += f", {percent(ranking.shares[kernel.place])} of all"
        shown.append({**drawn, "text": text, "tip": tip})
    notes = []
    if len(kernels) > len(bars):
        left = max(0.0, 1.0 - float(ranking.shares[ranking.used[:_BARS]].sum()))
        more = plural(len(kernels) - len(bars), "more kernel")
        notes.append(f"{more} with a weight: {percent(left)} of all together.")
    zero = ranking.total - len(kernels)
    if zero:
        notes.append(f"{plural(zero, 'kernel has', 'kernels have')} weight zero.")
    return _panel("Kernels", "The heaviest kernels", "weight", at(0.0), shown, " ".join(notes))


def _fixed(value: float, largest: float) -> str:
    """All numbers of a panel with the same decimals: three digits of the largest."""
    places = max(0, 2 - math.floor(math.log10(largest))) if largest > 0 else 2
    text = f"{value:,.{places}f}"
    return text if float(text.replace(",", "")) or not value else number(value, 1)


def _sums(
    listed: Listed, parts: Iterable[tuple[str, int, float]]
) -> dict[str, tuple[float, set[int]]]:
    """Share of the weight of each group, and which kernels it has."""
    found: dict[str, tuple[float, set[int]]] = {}
    shares = listed.ranking.shares
    for name, k, part in parts:
        total, own = found.setdefault(name, (0.0, set()))
        own.add(int(k))
        found[name] = total + part * float(shares[k]), own
    return dict(sorted(found.items(), key=lambda item: -item[1][0]))


def _group_panel(
    listed: Listed, label: str, groups: dict[str, tuple[float, set[int]]], what: str
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
    if len(listed.ranking.used) > len(listed.order):
        notes.append(f"Of the {count(len(listed.order))} heaviest kernels only.")
    return _panel(label, f"By {label.lower()}", "share", 0, bars, " ".join(notes))


def kernel_table(listed: Listed) -> dict[str, Any]:
    """The table of all kernels: its data for the script, and its first page."""
    ranking, infos, order = listed.ranking, listed.infos, listed.order
    families = list(dict.fromkeys(info.family for info in infos))
    views = list(dict.fromkeys(info.view for info in infos))
    family_of = {name: i for i, name in enumerate(families)}
    view_of = {name: i for i, name in enumerate(views)}
    data: dict[str, Any] = {
        "page": _PAGE,
        "families": families,
        "views": [shorten(view, _NAME) for view in views],
        "names": [shorten(info.name, _NAME) for info in infos],
        "family": [family_of[info.family] for info in infos],
        "view": [view_of[info.view] for info in infos],
        "weight": _rounded(ranking.weights[order]),
        "share": _rounded(ranking.shares[order]),
    }
    heads = {"rank": "#", "name": "Kernel", "family": "Family", "view": "View", "weight": "Weight"}
    if ranking.std is not None:
        data["std"], heads["std"] = _rounded(ranking.std[order]), "Std"
    else:
        heads["share"] = "Share"
    for i, label in enumerate(ranking.classes if len(ranking.classes) <= _CLASSES else []):
        data[f"class{i}"] = _rounded(ranking.by_class[i, order])
        heads[f"class{i}"] = shorten(label, 24)
    columns = [
        {"key": key, "head": head, "numeric": key not in ("name", "family", "view")}
        for key, head in heads.items()
    ]
    rows = [[_cell(data, key, i) for key in heads] for i in range(min(_PAGE, len(infos)))]
    notes = []
    if len(order) < ranking.total:
        dropped, zero = len(ranking.used) - len(order), ranking.total - len(ranking.used)
        if dropped > 0:
            notes.append(f"{plural(dropped, 'lighter kernel')} left out.")
        if zero:
            notes.append(f"{plural(zero, 'kernel')} of weight zero left out.")
    return {"columns": columns, "rows": rows, "data": data, "note": " ".join(notes)}


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
