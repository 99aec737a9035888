"""Every `kernelweave` line that the documentation shows in a console block runs."""

from __future__ import annotations

import re
import shlex

import pytest
from doc_pages import ROOT, commands, run_page
from typer.testing import CliRunner

from kernelweave.cli.app import app, report_error

PAGE = ROOT / "docs" / "command_line.md"
EXIT_CODE = re.compile(r"#.*exit code (\d+)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the files that the commands read: the page's Python writes them."""
    path = tmp_path_factory.mktemp("commands")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        run_page(PAGE)
    return path


def run(command: str) -> tuple[int, str]:
    """Run one command in this process; return its exit code and what it printed."""
    result = CliRunner().invoke(app, shlex.split(command, comments=True)[1:])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return report_error(result.exception), repr(result.exception)
    return result.exit_code, result.output


@pytest.mark.parametrize("page", [PAGE, ROOT / "README.md"], ids=lambda page: page.name)
def test_commands_of_a_page_run(page, folder, monkeypatch):
    monkeypatch.chdir(folder)
    # Completion is for the shell that started the program; tests may run without one.
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    for command in commands(page):
        if command.startswith("kernelweave demo"):
            continue  # takes long, and has tests of its own
        expected = int(found.group(1)) if (found := EXIT_CODE.search(command)) else 0
        code, output = run(command)
        assert code == expected, f"{page.name}: {command}\n{output}"


def test_the_page_shows_every_command():
    shown = {shlex.split(line)[1] for line in commands(PAGE)}
    there = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert there <= shown
