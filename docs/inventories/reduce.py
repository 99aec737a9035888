"""Make the inventories in this folder: what intersphinx links to, without asking the network.

An inventory (objects.inv) lists the names a documentation describes and where. Whole ones are
large; here are the classes, functions, exceptions and modules of each. Take a newer whole one,
from a package such as Debian's python-scipy-doc or from the site itself, and run

    python docs/inventories/reduce.py scipy path/to/objects.inv

NumPy's and Matplotlib's are made from the short lists below (`python docs/inventories/reduce.py
--listed`): every one of their pages is named after what it describes.
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
KEPT = {"py:class", "py:exception", "py:function", "py:module"}

NUMPY_PAGE = "reference/generated/{name}.html#$"
MATPLOTLIB_PAGE = "api/_as_gen/{name}.html#$"
LISTED = {
    "numpy": [
        *[("py:class", name, NUMPY_PAGE) for name in ("numpy.ndarray", "numpy.dtype")],
        *[
            ("py:function", f"numpy.{name}", NUMPY_PAGE)
            for name in ("array", "asarray", "load", "save", "savez", "argsort", "allclose")
        ],
        ("py:class", "numpy.random.Generator", "reference/random/generator.html#$"),
    ],
    "matplotlib": [
        ("py:class", "matplotlib.axes.Axes", MATPLOTLIB_PAGE),
        ("py:class", "matplotlib.figure.Figure", MATPLOTLIB_PAGE),
        ("py:function", "matplotlib.pyplot.subplots", MATPLOTLIB_PAGE),
    ],
}


def read(path: Path) -> tuple[str, list[str]]:
    """Return the four lines of text of an inventory and its list of names."""
    content = path.read_bytes()
    start = 0
    for _ in range(4):
        start = content.index(b"\n", start) + 1
    return content[:start].decode(), zlib.decompress(content[start:]).decode().splitlines()


def write(project: str, head: str, lines: list[str]) -> None:
    """Write the inventory of a project into this folder."""
    text = "".join(f"{line}\n" for line in sorted(lines))
    path = HERE / f"{project}.inv"
    path.write_bytes(head.encode() + zlib.compress(text.encode(), 9))
    print(f"{path.name}: {len(lines)} names, {path.stat().st_size} bytes")


def reduce(project: str, whole: Path) -> None:
    """Keep what is linked to: `name role priority page title` in every line."""
    head, lines = read(whole)
    kept = [line for line in lines if line.split(" ")[1] in KEPT]
    # Names that start with an underscore, or with a part that does, are not for readers.
    write(project, head, [line for line in kept if "._" not in f".{line.split(' ')[0]}"])


def from_list(project: str) -> None:
    """Write the inventory of a project whose names are listed above."""
    head = (
        "# Sphinx inventory version 2\n"
        f"# Project: {project}\n# Version: stable\n"
        "# The remainder of this file is compressed using zlib.\n"
    )
    lines = [f"{name} {role} 1 {page.format(name=name)} -" for role, name, page in LISTED[project]]
    write(project, head, lines)


if __name__ == "__main__":
    if sys.argv[1:] == ["--listed"]:
        for name in LISTED:
            from_list(name)
    elif len(sys.argv) == 3:
        reduce(sys.argv[1], Path(sys.argv[2]))
    else:
        sys.exit(__doc__)
