"""What a superstep of `DaskBank` moves and takes, and what 10^8 points on 100 workers would.

    python -m benchmarks.growth.dask_supersteps

Prints the tables of docs/scaling.md. Bytes are those of the serialised messages, both ways.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from distributed import Client, LocalCluster
from distributed.protocol import dumps, to_serialize

from benchmarks.part import read_options
from benchmarks.show import Table, table
from benchmarks.timing import seconds_of
from benchmarks.watch import watching
from kernelweave.bank import DaskBank
from kernelweave.cluster.by_points import PointShard
from kernelweave.compiled.threads import use_threads
from kernelweave.kernels import RBF
from kernelweave.operators import ComputedOperator
from kernelweave.solvers.mwu.on_cluster import PointState
from kernelweave.solvers.mwu.rounds import BoxConstraints, rounds_of

ROUNDS = 200
MESSAGES = ("Team._send", "Team._answer")


def kernels_on(n: int, m: int, p: int) -> ComputedOperator:
    """m Gaussian kernels on p standard normal columns."""
    X = np.random.default_rng(0).normal(size=(n, p))
    return ComputedOperator.build([RBF(width=w) for w in np.linspace(1.0, 9.0, m)], X)


def rules_for(n: int) -> BoxConstraints:
    """An unbounded problem in which every round moves a pair."""
    labels = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    return BoxConstraints(labels, np.ones(n), np.full(n, np.inf), np.full(n, -np.inf))


def walk(rounds: Any, m: int) -> Iterator[None]:
    """Rounds of equal weights and small steps."""
    d = np.full(m, 1.0 / m)
    choice = rounds.start(np.zeros(len(rounds.values())), d)
    while True:
        choice = rounds.advance(choice, 1e-3, -1e-3, d)
        yield


def going(client: Client, n: int, m: int, p: int, shard: str = "points") -> Iterator[None]:
    """Rounds on shards of generated data."""
    bank = DaskBank(client, shard).build(kernels_on(n, m, p))
    yield from walk(rounds_of(bank, rules_for(n)), m)


def quick_seconds(step: Any, count: int, clock: Any = time.perf_counter) -> float:
    """What the quickest tenth of the calls takes, as other programs run on the machine, too."""
    times = [seconds_of(step, clock)[0] for _ in range(count + 16)]
    return float(np.percentile(times[16:], 10))


@contextmanager
def counted_bytes() -> Iterator[list[int]]:
    """Count what shard 0 is sent and what it answers."""
    moved = [0, 0]

    def size(obj: Any) -> int:
        return sum(memoryview(frame).nbytes for frame in dumps(to_serialize(obj)))

    def sending(send: Any) -> Any:
        def call(team: Any, w: int, name: str, args: Any) -> Any:
            moved[0] += size((name, args)) if w == 0 else 0
            return send(team, w, name, args)

        return call

    def answering(answer: Any) -> Any:
        def call(team: Any, w: int, future: Any) -> Any:
            found = answer(team, w, future)
            moved[1] += size(found) if w == 0 else 0
            return found

        return call

    with watching(dict(zip(MESSAGES, (sending, answering), strict=True))):
        yield moved


def bytes_per_superstep(client: Client) -> None:
    """Bytes to and from one worker, by points and by kernels."""
    found = Table("bytes", ["shards", "n", "m", "columns", "to a worker", "from it"])
    cases = [(n, m, p) for n in (1000, 10_000) for m, p in ((10, 50), (100, 50), (10, 500))]
    for shard in ("points", "kernels"):
        for n, m, p in cases:
            rounds = going(client, n, m, p, shard)
            next(rounds)
            with counted_bytes() as moved:
                for _ in range(10):
                    next(rounds)
            found.row(shard, n, m, p, moved[0] // 10, moved[1] // 10)


def latency() -> None:
    """Time of a round on tiny shards: what is left is messages."""
    n, m, p = 200, 10, 10
    found = []
    settings = {"processes": True, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(n_workers=2, **settings) as cluster:
        for direct in (True, False):
            with Client(cluster, direct_to_workers=direct) as client:
                took = quick_seconds(partial(next, going(client, n, m, p)), ROUNDS)
                name = "actors, straight to the worker" if direct else "actors, by the scheduler"
                found.append((name, 1e3 * took))
                if direct:
                    bytes_per_superstep(client)
        with Client(cluster) as client:
            workers, load = list(client.nthreads()), np.zeros(m + 2 * p)

            def tasks() -> Any:
                each = [client.submit(np.sum, load, workers=[w], pure=False) for w in workers]
                return client.gather(each)

            found.append(("tasks pinned to workers", 1e3 * quick_seconds(tasks, ROUNDS)))
    print("\n" + table(["two worker processes", "ms a superstep"], found))


def latency_by_workers() -> float:
    """The same inside one process; returns the seconds that each further worker adds."""
    found = Table("latency", ["workers in this process", "ms a superstep"])
    counts, times = (2, 4, 8, 16), []
    settings = {"processes": False, "threads_per_worker": 1, "dashboard_address": ":0"}
    for count in counts:
        with Client(n_workers=count, **settings) as client:
            times.append(quick_seconds(partial(next, going(client, 320, 10, 10)), ROUNDS))
            found.row(count, 1e3 * times[-1])
    return float(np.polyfit(counts, times, 1)[0])


def pass_rate() -> float:
    """Seconds of one worker's part of a round: 10^6 points, 10 kernels, 50 columns, one thread."""
    n, m, p = 1_000_000, 10, 50
    kernels = kernels_on(n, m, p)
    shard = PointShard(kernels.without_samples(), kernels.pack(np.arange(n)), 0, n, 1000)
    state = PointState(shard, rules_for(n), np.arange(m))
    d, delta = np.full(m, 1.0 / m), np.array([1e-3, -1e-3])
    pairs = iter(np.random.default_rng(1).permutation(n).reshape(-1, 2))

    def move() -> Any:
        idx = next(pairs)
        return state.move(kernels.pack(idx), idx, delta, d)

    same = np.array([0, 1])
    again = kernels.pack(same), same, delta, d
    with use_threads(1):
        fresh = quick_seconds(move, 16, time.process_time)
        kept = quick_seconds(lambda: state.move(*again), 16, time.process_time)
    what = "one worker's part of a round, 10^6 points x 10 kernels x 50 columns"
    rows = [("rows of both samples computed", fresh), ("rows met before", kept)]
    print("\n" + table([what, "s of CPU"], rows))
    return fresh


def projection(per_worker: float, fresh: float, bandwidth: float = 1e9) -> None:
    """10^8 points on 100 workers: T rounds of algorithm 4 at eps = 0.2."""
    rounds = int(np.ceil(8 * 1.5**2 * np.log(1e8) / 0.2**2))
    messages = 100 * per_worker
    total = rounds * (fresh + messages)
    each = f"{fresh:.3f} s pass + {messages:.3f} s messages"
    print(f"\n{rounds} rounds x ({each}) = {total / 60:.0f} min")
    print(f"sending the samples: {1e8 * 50 * 8 / bandwidth / 60:.1f} min at 1 GB/s")
    print(f"n numbers for a certificate: {1e8 * 8 / bandwidth:.1f} s")


if __name__ == "__main__":
    read_options(__doc__, data=False)
    latency()
    projection(latency_by_workers(), pass_rate())
