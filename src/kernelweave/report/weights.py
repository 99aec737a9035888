"""The weights as bars, of single kernels and of groups of them, and the table of all kernels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kernelweave.inspect.kernel_info import KernelInfo, describe_kernels
from kernelweave.inspect.ranking import Ranking
from kernelweave.inspect.words import percent, plural, shorten
from kernelweave.plot.fits import kernel_bars, share_bars
from kernelweave.report.blocks import Block, figure, figures, panel, section

# So many kernels are listed unless more are asked for. A page on 20,000 kernels has 0.39 MB with
# 1,000 of them, 0.67 MB with 5,000 and 1.66 MB with 20,000. Names and views of 200 letters, the
# most there are, add 2 MB for 5,000: the file stays below 3 MB.
_MOST = 5000
# Bars of single kernels, and of groups.
_BARS = 15
# Rows of the table that are there without a script; it shows as many on a page.
_PAGE = 25
# Names longer than this lose their middle: a name is no place for a sequence of 10,000 letters.
_NAME = 200
# Classes with a column of their own in the table.
_CLASSES = 6


class Listed(NamedTuple):
    """The kernels that the page lists, the heaviest first, and what they are."""

    ranking: Ranking
    order: Any
    infos: list[KernelInfo]


def list_kernels(model: Any, max_kernels: int | None) -> Listed:
    """List all kernels; of more than `max_kernels` those with most weight, none without."""
    ranking = Ranking.of(model)
    most = _MOST if max_kernels is None else max_kernels
    # Of very many kernels those without a weight are not worth a line.
    room = ranking.total if ranking.total <= most else max(1, min(len(ranking.used), most))
    order = ranking.order[:room]
    return Listed(ranking, order, describe_kernels(ranking.estimator, order))


def weight_section(listed: Listed) -> Block:
    """Bars of the heaviest kernels, and of views, columns and families."""
    ranking = listed.ranking
    notes, used = [], len(ranking.used)
    if used > _BARS:
        left = max(0.0, 1.0 - float(ranking.shares[ranking.used[:_BARS]].sum()))
        more = plural(used - _BARS, "more kernel")
        notes.append(f"{more} with a weight: {percent(left)} of all together.")
    if zero := ranking.total - used:
        notes.append(f"{plural(zero, 'kernel has', 'kernels have')} weight zero.")
    ax = kernel_bars(ranking, _BARS, _bar_panel(1.5 * min(used, _BARS)), above=True)
    heaviest = figure("The heaviest kernels", ax, " ".join(notes))
    drawn = figures(heaviest, *_group_figures(listed))
    return section("weights", "Which kernels carry the weight", _lead(ranking), drawn)


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


def _bar_panel(rows: float) -> Any:
    return panel(0.8 + 0.29 * max(rows, 2))


def _group_figures(listed: Listed) -> list[Block]:
    shares = listed.ranking.shares
    used = [(info, shares[k]) for info, k in zip(listed.infos, listed.order, strict=True)]
    used = used[: len(listed.ranking.used)]
    views: dict[str, list[float]] = {}
    columns: dict[str, list[float]] = {}
    families: dict[str, list[float]] = {}
    for info, share in used:
        views.setdefault(info.view, []).append(share)
        families.setdefault(info.family, []).append(share)
        for column in info.columns:
            columns.setdefault(column, []).append(share / len(info.columns))
    drawn = []
    # Groups of one kernel each say what the kernels have said.
    if 1 < len(views) < len(used):
        drawn.append(_group_figure(listed, "view", views, "kernels on the same columns"))
    several = len({info.columns for info, _ in used}) > 1
    if several and 1 < len(columns) != len(used) and set(columns) != set(views):
        note = "columns; a kernel on several of them counts for each in equal parts"
        drawn.append(_group_figure(listed, "column", columns, note))
    if 1 < len(families) < len(used):
        drawn.append(_group_figure(listed, "family", families, "kernels of the same kind"))
    return drawn


def _group_figure(listed: Listed, label: str, groups: dict[str, list[float]], what: str) -> Block:
    sums = sorted(groups.items(), key=lambda item: -sum(item[1]))
    notes = [f"Share of the sizes of all weights, added up over {what}."]
    if rest := [sum(own) for _, own in sums[_BARS:]]:
        notes.append(f"{len(rest):,} more have {percent(sum(rest))} together.")
    if len(listed.ranking.used) > len(listed.order):
        notes.append(f"Of the {len(listed.order):,} heaviest kernels only.")
    rows = [[shorten(name, _NAME), percent(sum(own)), len(own)] for name, own in sums[:_BARS]]
    bars = share_bars([(name, sum(own)) for name, own in sums[:_BARS]], _bar_panel(len(rows)))
    heads = {"heads": [label, "share", "kernels"], "rows": rows}
    return figure(f"By {label}", bars, " ".join(notes), heads)


def kernel_table(listed: Listed) -> Block:
    """The table of all kernels: its data for the script, and its first page."""
    ranking, order, infos = listed
    families, family = np.unique([info.family for info in infos], return_inverse=True)
    views, view = np.unique([shorten(info.view, _NAME) for info in infos], return_inverse=True)
    data: Block = {
        "page": _PAGE,
        "families": families.tolist(),
        "views": views.tolist(),
        "names": [shorten(info.name, _NAME) for info in infos],
        "family": family.tolist(),
        "view": view.tolist(),
    }
    numbers = {"weight": ("Weight", ranking.weights[order])}
    if ranking.std is not None:
        numbers["std"] = ("Std", ranking.std[order])
    else:
        numbers["share"] = ("Share", ranking.shares[order])
    for i, label in enumerate(ranking.classes if len(ranking.classes) <= _CLASSES else []):
        numbers[f"class{i}"] = (shorten(label, 24), ranking.by_class[i, order])
    data |= {key: [float(f"{v:.5g}") for v in values] for key, (_, values) in numbers.items()}
    heads = {"rank": "#", "name": "Kernel", "family": "Family", "view": "View"}
    heads |= {key: head for key, (head, _) in numbers.items()}
    columns = [
        {"key": key, "head": head, "numeric": key == "rank" or key in numbers}
        for key, head in heads.items()
    ]
    rows = [
        [
            str(i + 1),
            data["names"][i],
            info.family,
            shorten(info.view, _NAME),
            *(_written(key, data[key][i]) for key in numbers),
        ]
        for i, info in enumerate(infos[:_PAGE])
    ]
    notes = []
    if len(order) < ranking.total:
        dropped, zero = len(ranking.used) - len(order), ranking.total - len(ranking.used)
        if dropped > 0:
            notes.append(f"{plural(dropped, 'lighter kernel')} left out.")
        if zero:
            notes.append(f"{plural(zero, 'kernel')} of weight zero left out.")
    return {"columns": columns, "rows": rows, "data": data, "note": " ".join(notes)}


def _written(key: str, value: float) -> str:
    """A number of the first page, as the script writes it."""
    if value == 0:
        return "0"
    if key == "share":
        return f"{100 * value:.2f} %" if value >= 5e-5 else "< 0.01 %"
    return f"{value:.4f}" if abs(value) >= 5e-5 else f"{value:.1e}"
