"""What was measured, as Markdown and as a figure."""

from pathlib import Path
from typing import Any

from benchmarks.peers.data import NUMBERS
from benchmarks.show import new_figure, save, table

# Okabe and Ito's colours, and a shape for each library: neither alone carries the meaning.
LIBRARIES = {
    "kernelweave": ("kernelweave", "#0072B2", "o"),
    "sklearn": ("scikit-learn", "#E69F00", "s"),
    "intelex": ("scikit-learn-intelex", "#CC79A7", "v"),
    "mklpy": ("MKLpy", "#D55E00", "^"),
    "himalaya": ("himalaya", "#009E73", "D"),
}


def tell(result: dict[str, Any]) -> str:
    parts = [installed(result["peers"])]
    for name, problem in result["problems"].items():
        heads = [f"### {name}", facts(problem), contestants(problem)]
        parts += [*heads, *(same(**found) for found in problem["same"])]
    if "spectrum" in result:
        parts += ["### Spectrum kernels", spectra(result["spectrum"])]
    return "\n\n".join(parts)


def installed(peers: dict[str, Any]) -> str:
    rows = [
        [title, ", ".join(f"{name} {v}" for name, v in peer["versions"].items()), peer["note"]]
        for title, peer in peers.items()
    ]
    missing = [title for title, peer in peers.items() if not peer["versions"]]
    said = f"\n\nNot here: {', '.join(missing)}." if missing else ""
    return table(["peer", "versions", "note"], rows) + said


def facts(problem: dict[str, Any]) -> str:
    chosen = ", ".join(f"{C:g}" for C in sorted(set(problem["C"])))
    return (
        f"{problem['m']} kernel matrices, {problem['train']} training and {problem['test']} test "
        f"rows, splits: {len(problem['C'])}, C = {chosen}."
    )


def contestants(problem: dict[str, Any]) -> str:
    what = "R2" if problem["kind"] == NUMBERS else "accuracy"
    heads = ["", "fit", "predict", "memory", what, f"{what}, its weights at our C", "objective"]
    return table(heads, [row(entry, len(problem["C"])) for entry in problem["rows"]])


def row(entry: dict[str, Any], splits: int) -> list[str]:
    title = f"{LIBRARIES[entry['library']][0]}: {entry['name']}"
    if "seconds" not in entry:
        return [title, why_not(entry), *[""] * 5]
    if entry["splits"] < splits:
        title += f" (splits: {entry['splits']})"
    memory = "" if entry["memory"] is None else f"{max(0.0, entry['memory']):.0f} MB"
    cells = [title, seconds(entry["seconds"]), seconds(entry["predict"]), memory]
    return [*cells, entry["score"], entry["score_of_weights"], above(entry["above"])]


def why_not(answer: dict[str, Any]) -> str:
    return f"more than {answer['late']:g} s" if "late" in answer else f"`{answer['error']}`"


def seconds(value: float) -> str:
    if value < 0.1:
        return f"{1000 * value:.2g} ms"
    return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"


def above(value: float | None) -> str:
    """Return by how many per cent an objective is above the optimum."""
    if value is None:
        return ""
    percent = 100 * value
    return "< 0.1 %" if percent < 0.1 else f"+{percent:.{1 if percent < 10 else 0}f} %"


def same(other: str, difference: float) -> str:
    return (
        f"Equal weights are the same problem for kernelweave and {LIBRARIES[other][0]}: their "
        f"values for the test rows differ by {difference:.1e} of the largest."
    )


def spectra(found: dict[str, Any]) -> str:
    rows = [
        [title, seconds(answer["seconds"]) if "seconds" in answer else why_not(answer)]
        for title, answer in found["found"].items()
    ]
    text = f"{found['m']} matrices over {found['rows']} sequences of {found['letters']} letters."
    text += "\n\n" + table(["", "all matrices"], rows)
    if "difference" in found:
        text += f"\n\nThe matrices differ by {found['difference']:.1e} at most."
    return text


LEAST = 1e-3
# The same solution as "auto", from elsewhere.
ALIKE = ("auto, with the check", "auto, from rows")


def draw(result: dict[str, Any], path: Path) -> None:
    """Draw one panel for each problem: seconds to the right, per cent above the optimum upwards.

    Contestants whose weights were judged are shown; those that ran out of time are named.
    """
    problems = result["problems"]
    columns = min(3, len(problems))
    lines = -(-len(problems) // columns)
    figure, grid = new_figure(3.6 * columns, 3.2 * lines, lines, columns)
    marks: dict[str, Any] = {}
    for axes in grid.flat[len(problems) :]:
        axes.set_axis_off()
    for axes, (name, problem) in zip(grid.flat, problems.items(), strict=False):
        shown = [entry for entry in problem["rows"] if entry.get("above") is not None]
        for i, entry in enumerate(entry for entry in shown if entry["name"] not in ALIKE):
            title, colour, shape = LIBRARIES[entry["library"]]
            at = entry["seconds"], max(LEAST, 100 * entry["above"])
            marks[title] = axes.plot(*at, shape, color=colour, markersize=5)[0]
            short = entry["name"].replace("MultipleKernelRidgeCV, ", "")
            offset = {"xytext": (4, 3 if i % 2 else -7), "textcoords": "offset points"}
            axes.annotate(short, at, fontsize=6, **offset)
        late = ", ".join(entry["name"] for entry in problem["rows"] if "late" in entry)
        if late:
            text = f"out of time: {late}"
            axes.text(0.98, 0.5, text, transform=axes.transAxes, fontsize=6, ha="right")
        axes.set(xscale="log", yscale="log")
        axes.margins(x=0.2, y=0.15)
        axes.tick_params(labelsize=7)
        axes.set_title(f"{name}: {problem['m']} kernels, n = {problem['train']}", fontsize=9)
        axes.set_xlabel("fit, processor seconds", fontsize=8)
        axes.set_ylabel("objective above the optimum, %", fontsize=8)
    save(figure, path, (list(marks.values()), list(marks)))
