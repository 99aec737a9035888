"""kernelweave beside MKLpy, himalaya, scikit-learn and scikit-learn-intelex on the same matrices.

    python -m benchmarks.peers                              # wdbc, diabetes, drawn sequences
    python -m benchmarks.peers --full --data-dir DIR        # and sonar, ionosphere, mfeat

Peers are installed by ``pip`` into environments of their own, in the folder that the variable
KERNELWEAVE_PEERS names (default ``~/.cache/kernelweave-peers``); only the first run does so, and
it takes minutes. KERNELWEAVE_PEERS_TORCH names the PyTorch for MKLpy (default "torch").

Every contestant runs in a process of its own, bound to one core, on the same splits, after a
warm-up on 60 rows and 3 kernels. Times are processor seconds, so that other work on the machine
counts for little: the smallest of several fits where one takes less than a second, and the mean of
that over the splits. Memory is the peak of the resident set during the first fit above what the
process held before it, the data among that.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.part import Settings, run_alone
from benchmarks.peers.data import NUMBERS, Data
from benchmarks.peers.kernelweave import given
from benchmarks.peers.problems import sets
from benchmarks.peers.run import OWN, PEERS, Environment, contest, folder, prepare, run
from benchmarks.peers.text import draw, tell
from benchmarks.timing import Clock

__all__ = ["TITLE", "measure", "tell"]
TITLE = "The peers"
QUICK_SECONDS, FULL_SECONDS = 10.0, 20.0
QUICK_SPLITS, FULL_SPLITS = 1, 3


def measure(settings: Settings, clock: Clock) -> dict[str, Any]:
    made = {name: prepare(name, peer, folder(), settings.say) for name, peer in PEERS.items()}
    seconds = FULL_SECONDS if settings.full else QUICK_SECONDS
    count = FULL_SPLITS if settings.full else QUICK_SPLITS
    environments = {**made, **dict.fromkeys(OWN, Environment(sys.executable, {}))}
    result: dict[str, Any] = {
        "peers": {
            peer.title: {"versions": made[name].versions, "note": made[name].note}
            for name, peer in PEERS.items()
        },
        "limit": seconds,
        "problems": {},
    }
    with tempfile.TemporaryDirectory() as named:
        room = Path(named)
        for load in sets(settings.full, settings.data_dir):
            given = load(settings.data_dir)
            settings.say(f"{given.name}: {len(given.y)} rows, {len(given.kernels)} kernels")
            splits = [given.split(settings.seed + i) for i in range(count)]
            result["problems"][given.name] = contest(
                splits, environments, seconds, room, settings.say
            )
            if given.rows.ndim == 1:
                result["spectrum"] = spectra(splits[0], environments, seconds, room)
            if not (settings.full and given.name not in ("wdbc", "diabetes")):
                register(clock, given.name, splits[0])
    draw(result, settings.out / "peers.png")
    return result


def spectra(data: Data, environments: dict[str, Any], seconds: float, room: Path) -> dict[str, Any]:
    path = room / "sequences.npz"
    data.save(path)
    pair = {"MKLpy": ("mklpy", "spectrum_kernel"), "kernelweave": ("kernelweave", "Spectrum")}
    found = {
        title: run(environments[library], library, [name], [path], seconds)[name][0]
        for title, (library, name) in pair.items()
    }
    matrices = {title: answer.pop("decision", None) for title, answer in found.items()}
    rows = {"rows": len(data.y), "letters": len(data.rows[0]), "m": len(data.kernels)}
    if None in matrices.values():
        return {**rows, "found": found}
    ours, theirs = (np.array(matrices[title]) for title in ("kernelweave", "MKLpy"))
    return {**rows, "found": found, "difference": float(np.abs(ours - theirs).max())}


def register(clock: Clock, name: str, data: Data) -> None:
    """Let the clock of all runs time a few of our own fits."""
    solvers = ("auto", "spicy") if data.kind == NUMBERS else ("auto", "silp", "spg")
    for solver in solvers:
        fit = given(data, solver=solver).fit
        fit()
        clock.time(f"peers/{name} {solver}", fit)


if __name__ == "__main__":
    run_alone(sys.modules[__name__])
