"""The five papers: a small part of each table beside the published numbers, or all tables.

    python -m benchmarks.papers [--data-dir DIR]           # a few processor minutes
    python -m benchmarks.papers --full --data-dir DIR      # every script, many hours

Runs the scripts of this folder one after the other, each in a process of its own, on a few sets and
splits or, with --full, with the papers' settings, as far as data are there. What each of them
prints is in ``papers-NAME.txt`` in the folder of results, its figures beside it. The pages of the
documentation under "proof" have these numbers beside the papers' own.
"""

import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from benchmarks.part import Settings, run_alone
from benchmarks.show import table
from benchmarks.timing import ROOT, Clock, seconds_of

TITLE = "The five papers"
SCRIPTS = tomllib.loads((Path(__file__).parent / "scripts.toml").read_text(encoding="utf-8"))


def measure(settings: Settings, clock: Clock) -> dict[str, Any]:
    scripts = SCRIPTS["full" if settings.full else "small"]
    return {"scripts": [run_script(settings, *item) for item in scripts.items()]}


def run_script(settings: Settings, name: str, command: str) -> dict[str, Any]:
    script, *options = shlex.split(command)
    words = [script] if script.endswith(".py") else ["-m", f"benchmarks.papers.{script}"]
    words += [word.replace("OUT", str(settings.out.resolve())) for word in options]
    if settings.data_dir is not None and script != "strings":
        words += ["--data-dir", str(settings.data_dir)]
    shown = settings.out / f"papers-{name}.txt"
    settings.say(f"{name}: {shown}")
    with shown.open("w") as file:
        streams = {"stdout": file, "stderr": subprocess.STDOUT, "check": False, "cwd": ROOT}
        run = [sys.executable, *words]
        seconds, done = seconds_of(lambda: subprocess.run(run, **streams))
    output = "ended with an error: " * bool(done.returncode) + str(shown)
    printed = shown.read_text(encoding="utf-8")
    return {"command": command, "seconds": seconds, "output": output, "printed": printed}


def tell(result: dict[str, Any]) -> str:
    heads = ["command", "seconds", "output"]
    rows = [[own[head] for head in heads] for own in result["scripts"]]
    printed = [own["printed"].replace("\n## ", "\n### ") for own in result["scripts"]]
    note = (
        "Seconds of the papers are those of machines of 2006 to 2014: a ratio says how long one "
        "waits now, not which algorithm is better."
    )
    return "\n\n".join([table(heads, rows), note, *printed])


if __name__ == "__main__":
    run_alone(sys.modules[__name__])
