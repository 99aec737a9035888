"""What ``peers.py`` measured, as Markdown."""

from __future__ import annotations

from typing import Any

from part import table
from peers_data import NUMBERS

TITLES = {
    "kernelweave": "kernelweave",
    "sklearn": "scikit-learn",
    "intelex": "scikit-learn-intelex",
    "mklpy": "MKLpy",
    "himalaya": "himalaya",
}


def tell(result: dict[str, Any]) -> str:
    """Return the tables, one for each problem, and what was installed."""
    parts = [installed(result["peers"])]
    for name, problem in result["problems"].items():
        parts += [f"### {name}", facts(problem), contestants(problem), same(problem)]
    if "spectrum" in result:
        parts += ["### Spectrum kernels", spectra(result["spectrum"])]
    return "\n\n".join(part for part in parts if part)


def installed(peers: dict[str, Any]) -> str:
    """Return which peers there are, in which versions, and why one is missing."""
    rows = [
        [title, ", ".join(f"{name} {v}" for name, v in peer["versions"].items()), peer["note"]]
        for title, peer in peers.items()
    ]
    missing = [title for title, peer in peers.items() if not peer["versions"]]
    said = f"\n\nNot here: {', '.join(missing)}." if missing else ""
    return table(["peer", "versions", "note"], rows) + said


def facts(problem: dict[str, Any]) -> str:
    """Return one sentence on the problem."""
    chosen = sorted(set(problem["C"]))
    return (
        f"{problem['m']} kernel matrices, {problem['train']} training and {problem['test']} test "
        f"rows, {counted(len(problem['C']), 'split')}, C = {', '.join(f'{C:g}' for C in chosen)}."
    )


def counted(number: int, word: str) -> str:
    """Return a number and a word for things."""
    return f"{number} {word}" + ("" if number == 1 else "s")


def contestants(problem: dict[str, Any]) -> str:
    """Return one row for each contestant."""
    what = "R2" if problem["kind"] == NUMBERS else "accuracy"
    heads = ["", "fit", "predict", "memory", what, f"{what}, its weights at our C", "objective"]
    return table(heads, [row(entry, len(problem["C"])) for entry in problem["rows"]])


def row(entry: dict[str, Any], splits: int) -> list[str]:
    """Return the cells of one contestant."""
    title = f"{TITLES[entry['library']]}: {entry['name']}"
    if "late" in entry:
        return [title, f"more than {entry['late']:g} s", *[""] * 5]
    if "error" in entry:
        return [title, f"`{entry['error']}`", *[""] * 5]
    if entry["splits"] < splits:
        title += f" ({counted(entry['splits'], 'split')})"
    memory = "" if entry["memory"] is None else f"{max(0.0, entry['memory']):.0f} MB"
    return [
        title,
        seconds(entry["seconds"]),
        seconds(entry["predict"]),
        memory,
        share(entry["score"]),
        share(entry["score_of_weights"]),
        above(entry["above"]),
    ]


def seconds(value: float) -> str:
    """Return seconds, or milliseconds where that reads better."""
    return f"{value:.2g} s" if 0.1 <= value < 10 else f"{value:.0f} s" if value >= 10 else ms(value)


def ms(value: float) -> str:
    """Return milliseconds."""
    return f"{1000 * value:.2g} ms"


def share(value: float | None) -> str:
    """Return a score to three digits."""
    return "" if value is None else f"{value:.3f}"


def above(value: float | None) -> str:
    """Return by how many per cent an objective is above the optimum."""
    if value is None:
        return ""
    percent = 100 * value
    return "< 0.1 %" if percent < 0.1 else f"+{percent:.{1 if percent < 10 else 0}f} %"


def same(problem: dict[str, Any]) -> str:
    """Say how far apart two solutions of the same problem are."""
    return "\n".join(
        f"Equal weights are the same problem for kernelweave and {TITLES[other]}: their values for "
        f"the test rows differ by {found['difference']:.1e} of the largest."
        for found in problem["same"]
        for other in [found["other"].split()[0]]
    )


def spectra(found: dict[str, Any]) -> str:
    """Return the times of the spectrum kernels' matrices."""
    rows = [
        [title, seconds(answer["seconds"]) if "seconds" in answer else row_of_reason(answer)]
        for title, answer in found["found"].items()
    ]
    text = (
        f"{found['m']} matrices over {found['rows']} sequences of {found['letters']} letters.\n\n"
        + table(["", "all matrices"], rows)
    )
    if "difference" in found:
        text += f"\n\nThe matrices differ by {found['difference']:.1e} at most."
    return text


def row_of_reason(answer: dict[str, Any]) -> str:
    """Say why there is no time."""
    return f"more than {answer['late']:g} s" if "late" in answer else f"`{answer['error']}`"
