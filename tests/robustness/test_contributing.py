"""Every Python block of the README, CONTRIBUTING and the documentation pages runs, in order."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def python_lines(page: Path) -> str:
    """The Python of a page, every line where it stands in the page, the rest left empty."""
    text = page.read_text(encoding="utf-8")
    lines = [""] * text.count("\n")
    for match in BLOCK.finditer(text):
        first = text.count("\n", 0, match.start(1))
        block = match.group(1).splitlines()
        lines[first : first + len(block)] = block
    return "\n".join(lines)


def pages_with_code() -> list[Path]:
    """Pages written by hand that have at least one block."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [page for page in pages if python_lines(page).strip()]


@pytest.mark.parametrize("page", pages_with_code(), ids=lambda page: page.name)
def test_code_blocks_of_a_page_run(page, tmp_path):
    # In a process of its own: the classes that pages define join registries for good.
    script = tmp_path / f"{page.stem}.py"
    script.write_text(python_lines(page), encoding="utf-8")
    command = [sys.executable, "-W", "error::FutureWarning", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, f"{page.name} (line numbers are the page's):\n{done.stderr}"


@pytest.mark.parametrize(
    "command", ["pip install . && kernelweave demo", "pip install '.[test]' && pytest"]
)
def test_readme_shows_the_command_on_a_line_of_its_own(command):
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert command in lines


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_inside_the_repository_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?://|#)([^)#]+)", text)
    missing = [target for target in targets if not (ROOT / target).exists()]
    assert targets
    assert missing == []
