"""Every Python block of the README, CONTRIBUTING and the documentation pages runs, in order."""

from __future__ import annotations

import re

import pytest
from doc_pages import ROOT, pages_with_code, run_page

from kernelweave.losses import Loss


# In this process: starting Python, scikit-learn and Numba anew takes longer than most pages.
@pytest.mark.parametrize("page", pages_with_code(), ids=lambda page: page.name)
def test_code_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(page)


def test_no_block_of_python_escapes():
    """Other ways to write a fence would show code that nobody runs."""
    other = re.compile(
        r"^[ \t]+```python|^\s*```((py|python3|pycon|ipython)\b|\{code)", re.MULTILINE
    )
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    assert [page.name for page in pages if other.search(page.read_text(encoding="utf-8"))] == []


def test_a_page_leaves_no_class_behind(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nfrom kernelweave.losses import Squared\n\n\n"
        "class Left(Squared):\n    name = 'left_behind'\n```\n"
    )
    run_page(page)
    assert "left_behind" not in Loss.names()


def test_an_error_in_a_page_has_its_line(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("Text.\n\n```python\nx = 1\n```\n\nMore.\n\n```python\nx.missing\n```\n")
    with pytest.raises(AttributeError) as found:
        run_page(page)
    assert found.traceback[-1].lineno + 1 == 10


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
