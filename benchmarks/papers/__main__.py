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
from typing import Any

from benchmarks.part import Settings, run_alone
from benchmarks.show import table
from benchmarks.timing import ROOT, Clock, seconds_of

TITLE = "The five papers"
# By name; OUT is the folder of results. Every script but `strings` takes --data-dir.
SMALL = {
    "silp": "silp --quick",
    "silp-strings": "strings --quick --parts svm --repeat 1",
    "spg": "spg --tables 4 9 --sets sonar --folds 1 --limit 5",
    "spicy": "spicy --parts kernels --sets drawn --losses logistic --gaps 1e-2 --m 1000 3000 "
    "--rounds 1 --max-time 5 --processor",
    "bemkl": "bemkl --parts table1 --sets wdbc ionosphere --replications 2 --sigma-g 1",
    "mwu": "mwu --parts small --small breast heart wdbc --splits 2 --small-C 1",
    "mwu-many": "mwu --parts million --kernels 4000 --million-methods 'mwu paper'",
}
FULL = {
    "silp": "silp --figure OUT/proof_silp.png",
    "silp-sites": "examples/splice_sites.py --sizes 1000 3000 10000 30000 60000 --spectrum "
    "--out OUT",
    "silp-strings": "strings",
    "silp-million": "strings --parts million",
    "silp-solvers": "silp_solvers",
    "spg-small": "spg --figure OUT/proof_spg.png",
    "spg-scaling": "spg_scaling",
    "spg-ablation": "spg_ablation --figure OUT/spg_ablation.png",
    "spg-large": "large_n --parts adult cod_rna",
    "spg-covertype": "large_n --parts covertype --combinations sum --tol 1e-2",
    "spg-million": "million_kernels",
    "spicy": "spicy --repeats 10 --figure OUT/spicy.png",
    "spicy-figures": "spicy --parts progress kernels samples --sets drawn --losses logistic "
    "--gaps 1e-2 --rounds 1 --max-time 10 --processor --figure OUT/proof_spicy.png",
    "bemkl": "bemkl --replications 20 --figure OUT/proof_bemkl.png",
    "mwu": "mwu --splits 30 --figure OUT/proof_mwu.png",
}


def measure(settings: Settings, clock: Clock) -> dict[str, Any]:
    scripts = FULL if settings.full else SMALL
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
