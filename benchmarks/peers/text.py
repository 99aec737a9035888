"""What was measured, as Markdown and as a figure."""

from pathlib import Path
from typing import Any

from benchmarks.peers.data import NUMBERS
from benchmarks.show import new_figure, save, table

TITLES = {
    "kernelweave": "kernelweave",
    "sklearn": "scikit-learn",
    "intelex": "scikit-learn-intelex",
    "mklpy": "MKLpy",
    "himalaya": "himalaya",
}


def tell(result: dict[str, Any]) -> str:
    parts = [installed(result["peers"])]
    for name, problem in result["problems"].items():
        parts += [f"### {name}", facts(problem), contestants(problem), same(problem)]
    if "spectrum" in result:
        parts += ["### Spectrum kernels", spectra(result["spectrum"])]
    return "\n\n".join(part for part in parts if part)


def installed(peers: dict[str, Any]) -> str:
    rows = [
        [title, ", ".join(f"{name} {v}" for name, v in peer["versions"].items()), peer["note"]]
        for title, peer in peers.items()
    ]
    missing = [title for title, peer in peers.items() if not peer["versions"]]
    said = f"\n\nNot here: {', '.join(missing)}." if missing else ""
    return table(["peer", "versions", "note"], rows) + said


def facts(problem: dict[str, Any]) -> str:
    chosen = sorted(set(problem["C"]))
    return (
        f"{problem['m']} kernel matrices, {problem['train']} training and {problem['test']} test "
        f"rows, splits: {len(problem['C'])}, C = {', '.join(f'{C:g}' for C in chosen)}."
    )


def contestants(problem: dict[str, Any]) -> str:
    what = "R2" if problem["kind"] == NUMBERS else "accuracy"
    heads = ["", "fit", "predict", "memory", what, f"{what}, its weights at our C", "objective"]
    return table(heads, [row(entry, len(problem["C"])) for entry in problem["rows"]])


def row(entry: dict[str, Any], splits: int) -> list[str]:
    title = f"{TITLES[entry['library']]}: {entry['name']}"
    if "seconds" not in entry:
        return [title, row_of_reason(entry), *[""] * 5]
    if entry["splits"] < splits:
        title += f" (splits: {entry['splits']})"
    memory = "" if entry["memory"] is None else f"{max(0.0, entry['memory']):.0f} MB"
    cells = [title, seconds(entry["seconds"]), seconds(entry["predict"]), memory]
    return [*cells, entry["score"], entry["score_of_weights"], above(entry["above"])]


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


def same(problem: dict[str, Any]) -> str:
    return "\n".join(
        f"Equal weights are the same problem for kernelweave and {TITLES[other]}: their values for "
        f"the test rows differ by {found['difference']:.1e} of the largest."
        for found in problem["same"]
        for other in [found["other"].split()[0]]
    )


def spectra(found: dict[str, Any]) -> str:
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
    return f"more than {answer['late']:g} s" if "late" in answer else f"`{answer['error']}`"


# Okabe and Ito's colours, and a shape for each library: neither alone carries the meaning.
LOOKS = {
    "kernelweave": ("#0072B2", "o"),
    "sklearn": ("#E69F00", "s"),
    "mklpy": ("#D55E00", "^"),
    "himalaya": ("#009E73", "D"),
}
LEAST = 1e-3
# The same solution as "auto", from elsewhere.
ALIKE = ("auto, with the check", "auto, from rows")


def draw(result: dict[str, Any], path: Path) -> None:
    """Draw one panel for each problem: seconds to the right, per cent above the optimum upwards."""
    problems = result["problems"]
    columns = min(3, len(problems))
    lines = -(-len(problems) // columns)
    figure, grid = new_figure(3.6 * columns, 3.2 * lines, lines, columns)
    marks: dict[str, Any] = {}
    for axes, (name, problem) in zip(grid.flat, problems.items(), strict=False):
        panel(axes, problem, marks)
        axes.set_title(f"{name}: {problem['m']} kernels, n = {problem['train']}", fontsize=9)
    for axes in grid.flat[len(problems) :]:
        axes.set_axis_off()
    for axes in grid[:, 0]:
        axes.set_ylabel("objective above the optimum, %", fontsize=8)
    for axes in grid[-1]:
        axes.set_xlabel("fit, processor seconds", fontsize=8)
    save(figure, path, (list(marks.values()), list(marks)))


def panel(axes: Any, problem: dict[str, Any], marks: dict[str, Any]) -> None:
    """Draw all contestants whose weights were judged; those that ran out of time are named."""
    shown = [entry for entry in problem["rows"] if entry.get("above") is not None]
    for i, entry in enumerate(entry for entry in shown if entry["name"] not in ALIKE):
        colour, shape = LOOKS[entry["library"]]
        at = entry["seconds"], max(LEAST, 100 * entry["above"])
        marks[TITLES[entry["library"]]] = axes.plot(*at, shape, color=colour, markersize=5)[0]
        name = entry["name"].replace("MultipleKernelRidgeCV, ", "")
        offset = {"xytext": (4, 3 if i % 2 else -7), "textcoords": "offset points"}
        axes.annotate(name, at, fontsize=6, **offset)
    axes.set(xscale="log", yscale="log")
    axes.margins(x=0.2, y=0.15)
    axes.tick_params(labelsize=7)
    late = [entry["name"] for entry in problem["rows"] if "late" in entry]
    if late:
        text = "out of time: " + ", ".join(late)
        axes.text(0.98, 0.5, text, transform=axes.transAxes, fontsize=6, ha="right")
