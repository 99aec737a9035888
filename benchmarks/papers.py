"""The five papers: one small result of each beside the published one, or all their tables.

    python benchmarks/papers.py [--data-dir DIR]           # about one processor minute
    python benchmarks/papers.py --full --data-dir DIR      # every script, many hours

With --full the scripts of all tables and figures run one after the other with the papers' settings,
as far as data are there. What each of them prints is in ``papers-NAME.txt`` in the folder of
results, its figures beside it. The pages of the documentation under "proof" have these numbers
beside the papers' own.
"""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from papers_quick import PAPERS, Data
from part import Clock, Settings, run_alone, table
from sklearn.exceptions import ConvergenceWarning

TITLE = "The five papers"
HERE = Path(__file__).resolve().parent
# By name; OUT is the folder of results. Every script but strings.py takes --data-dir.
SCRIPTS = {
    "silp": "papers_silp.py --figure OUT/proof_silp.png",
    "silp-sites": "../examples/splice_sites.py --sizes 1000 3000 10000 30000 60000 --spectrum "
    "--out OUT",
    "silp-strings": "strings.py",
    "silp-million": "strings.py --parts million",
    "silp-solvers": "silp.py",
    "spg-small": "papers_spg.py --figure OUT/proof_spg.png",
    "spg-scaling": "papers_spg_scaling.py",
    "spg-ablation": "spg_ablation.py --figure OUT/spg_ablation.png",
    "spg-large": "large_n.py --parts adult cod_rna",
    "spg-covertype": "large_n.py --parts covertype --combinations sum --tol 1e-2",
    "spg-million": "million_kernels.py",
    "spicy": "spicy.py --repeats 10 --figure OUT/spicy.png",
    "spicy-figures": "papers_spicy.py --figure OUT/proof_spicy.png",
    "bemkl": "bemkl.py --replications 20 --figure OUT/proof_bemkl.png",
    "mwu": "mwu.py --splits 30 --figure OUT/proof_mwu.png",
}


def measure(settings: Settings, clock: Clock) -> dict[str, Any]:
    """Small results of all papers; with ``--full`` all scripts besides."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    result: dict[str, Any] = {"rows": [], "scripts": []}
    data = Data(settings)
    for paper, look in PAPERS.items():
        settings.say(paper)
        result["rows"] += look(data, clock)
    result["missing"] = data.missing
    if settings.full:
        result["scripts"] = [_run(settings, *item) for item in SCRIPTS.items()]
    return result


def _run(settings: Settings, name: str, command: str) -> dict[str, Any]:
    script, *options = command.split()
    words = [str(HERE / script)] + [word.replace("OUT", str(settings.out)) for word in options]
    if settings.data_dir is not None and script != "strings.py":
        words += ["--data-dir", str(settings.data_dir)]
    shown = settings.out / f"papers-{name}.txt"
    settings.say(f"{name}: {shown}")
    began = time.perf_counter()
    with shown.open("w") as file:
        done = subprocess.run(
            [sys.executable, *words], stdout=file, stderr=subprocess.STDOUT, check=False
        )
    seconds = time.perf_counter() - began
    output = "ended with an error: " * bool(done.returncode) + str(shown)
    return {"name": name, "command": command, "seconds": seconds, "output": output}


def tell(result: dict[str, Any]) -> str:
    """Tables, and what was left out."""
    rows = [[own["paper"], own["what"], own["ours"], own["published"]] for own in result["rows"]]
    text = table(["paper", "what", "here", "published"], rows)
    text += "\n\nOurs are processor seconds. The papers' are those of machines of 2006 to 2014: a"
    text += " ratio says how long one waits now, not which algorithm is better."
    for name, reason in result["missing"].items():
        text += f"\n\nLeft out, {name}: {reason}"
    if result["scripts"]:
        rows = [
            [own["name"], f"`{own['command']}`", f"{own['seconds']:.0f}", own["output"]]
            for own in result["scripts"]
        ]
        text += "\n\n" + table(["script", "command", "seconds", "output"], rows)
    return text


if __name__ == "__main__":
    run_alone(sys.modules[__name__])
