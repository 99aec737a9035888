"""Shards on the workers of a cluster: supersteps, and what happens when a worker dies."""

from __future__ import annotations

import itertools
import pickle
import threading
import time
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kernelweave.compiled.threads import one_blas_thread, use_threads
from kernelweave.errors import ClusterError, InvalidInputError, MemoryBudgetError
from kernelweave.memory import format_bytes

_KEYS = itertools.count()
# Seconds between two looks at whether a worker that has not answered is there: a look takes a
# message, and one that died is noticed that much later. While a free worker is waited for, Dask's
# own interval.
_LOOK, _POLL = 2.0, 0.1
# Seconds in which a scheduler has to answer that has not ended: Dask's own for a connection.
_ANSWER = 30.0
# A shard that kills its workers would do so for ever.
_MOST_REPLACED = 3
# Part of a worker's memory limit that shards may take: above it Dask pauses the worker.
_ROOM = 0.8


class Host:
    """One shard on a worker of `dask.distributed`, and what others keep there under keys.

    Whatever the shard raises is returned, so that an exception of the call itself can only mean
    that the worker cannot be reached.
    """

    def __init__(self) -> None:
        self._shard: Any = None
        self._states: dict[int, Any] = {}

    def do(self, name: str, args: tuple[Any, ...]) -> tuple[bool, Any]:
        """Call one of the methods below; returns (True, answer) or (False, exception)."""
        from distributed import get_worker

        try:
            # As many threads as the worker was given, whatever else runs on its machine.
            with use_threads(get_worker().state.nthreads), one_blas_thread():
                return True, getattr(self, "_" + name)(*args)
        except Exception as error:
            return False, error

    def _room(self) -> float:
        """Bytes this worker may take; infinity if nobody set a limit."""
        from distributed import get_worker

        return float(get_worker().memory_manager.memory_limit or float("inf"))

    def _load(self, make: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._shard = make(*args)

    def _ask(self, *args: Any) -> Any:
        return self._shard.ask(*args)

    def _begin(self, key: int, make: Callable[..., Any], *args: Any) -> None:
        self._states[key] = make(self._shard, *args)

    def _state(self, key: int, name: str, *args: Any) -> Any:
        return getattr(self._states[key], name)(*args)

    def _forget(self, key: int) -> None:
        self._states.pop(key, None)


class _Lost(Exception):
    """A worker cannot be reached."""


@dataclass
class _Seat:
    """Where a shard lives."""

    address: str
    future: Any
    actor: Any


def check_client(client: Any) -> None:
    if not hasattr(client, "scheduler_info") or not hasattr(client, "submit"):
        raise InvalidInputError(
            f"DaskBank needs a dask.distributed.Client; got {client!r}. For this machine: "
            "Client(LocalCluster())."
        )
    if client.asynchronous:
        raise InvalidInputError(
            "DaskBank needs a client in blocking mode; got one with asynchronous=True."
        )
    if client.status != "running":
        raise ClusterError(
            f"the dask client of the bank is {client.status}; a fit needs one that is running. Its "
            "scheduler may have ended, or the client was closed."
        )


def _workers(client: Any) -> list[str]:
    """Addresses of the workers; raises if the scheduler does not answer."""
    ends = time.monotonic() + _ANSWER
    while True:
        check_client(client)
        try:
            return list(client.sync(client.scheduler.ncores, callback_timeout=_LOOK))
        except OSError as error:  # TimeoutError is one of them.
            # One that is busy, as while it imports kernelweave, keeps its line to the client open.
            line = client.scheduler_comm
            if time.monotonic() > ends or line is None or line.closed():
                raise ClusterError(
                    f"the scheduler of the dask cluster does not answer ({type(error).__name__}): "
                    "it has ended, or the network to it is down."
                ) from error


def pickled_bytes(obj: Any) -> float:
    """Bytes of an object as it travels; its arrays are counted and not copied."""
    buffers: list[Any] = []
    head = pickle.dumps(obj, protocol=5, buffer_callback=buffers.append)
    return float(len(head) + sum(buffer.raw().nbytes for buffer in buffers))


class Team:
    """One actor for each shard, on a worker of its own while there are enough of them.

    ``make(*recipe(w))`` is shard w: the recipe is called here, again if its worker has died, `make`
    on a worker. `needed` has the bytes of every shard, `patience` the seconds to wait for a free
    worker in place of one that died.
    """

    def __init__(
        self,
        client: Any,
        make: Callable[..., Any],
        recipe: Callable[[int], tuple[Any, ...]],
        needed: Sequence[float],
        patience: float,
    ) -> None:
        self._client, self._make, self._recipe = client, make, recipe
        self._needed, self._patience = list(needed), patience
        self._kept: weakref.WeakKeyDictionary[Any, Kept] = weakref.WeakKeyDictionary()
        self._seats: list[_Seat | None] = [None] * len(self._needed)
        # Combinations ask from several threads; a superstep is everybody's.
        self._lock = threading.RLock()
        self.replaced = 0
        addresses = self.addresses(client)
        with self._ready():
            # Everybody is asked first.
            for w in range(len(self)):
                self._seats[w] = self._hire(addresses[w % len(addresses)])
            for w in range(len(self)):
                self._require(w, self._needed[w], "its shard")
            self.ask("load", {w: (make, recipe(w)) for w in range(len(self))})

    @staticmethod
    def addresses(client: Any) -> list[str]:
        found = _workers(client)
        if not found:
            raise ClusterError(
                "the dask cluster has no workers; start some (LocalCluster(n_workers=2), "
                "cluster.scale(10)) and wait for them with client.wait_for_workers(n)."
            )
        return found

    def __len__(self) -> int:
        return len(self._needed)

    # Supersteps

    def ask(self, name: str, args: dict[int, tuple[Any, ...]]) -> list[Any]:
        """Call a method of several shards at once, each with its arguments; returns the answers.

        A shard whose worker has died is made again elsewhere and asked again; the others are not.
        """
        answers: dict[int, Any] = {}
        todo = list(args)
        with self._lock, self._ready():
            for _ in range(_MOST_REPLACED + 1):
                sent = [(w, self._send(w, name, args[w])) for w in todo]
                todo = []
                for w, future in sent:
                    try:
                        answers[w] = self._answer(w, future)
                    except _Lost:
                        todo.append(w)
                if not todo:
                    return [answers[w] for w in args]
                for w in todo:
                    self._replace(w)
        raise ClusterError(
            f"shard {todo[0]} of {len(self)} lost its worker {_MOST_REPLACED + 1} times in one "
            "step: it may need more memory than a worker has. Use more or larger workers."
        )

    def ask_all(self, name: str, *args: Any) -> list[Any]:
        """Call a method of every shard at once, all with the same arguments."""
        return self.ask(name, dict.fromkeys(range(len(self)), args))

    def keep(self, owner: Any, beginnings: dict[int, tuple[Any, ...]]) -> Kept:
        """Return what the shards keep for `owner` while it is there.

        When shard w has been made again, the calls that ``owner.past(w)`` yields have to bring its
        new state to where the old one was before the superstep.
        """
        kept = self._kept[owner] = Kept(self, next(_KEYS), beginnings)
        weakref.finalize(owner, self._drop, kept.key)
        return kept

    def _drop(self, key: int) -> None:
        if self._client.status == "running":
            for w in range(len(self)):
                self._send(w, "forget", (key,))

    def require(self, extra: Callable[[int], float], what: str) -> None:
        """Raise if some worker has no room for that much beside its shard."""
        with self._ready():
            for w in range(len(self)):
                self._require(w, self._needed[w] + extra(w), what)

    # Workers

    @contextmanager
    def _ready(self) -> Iterator[None]:
        """A running client, which actors look for in the background."""
        check_client(self._client)
        with self._client.as_current():
            yield

    def _hire(self, address: str) -> _Seat:
        key = f"kernelweave-shard-{uuid.uuid4().hex}"
        future = self._client.submit(Host, actor=True, workers=[address], key=key, pure=False)
        try:
            return _Seat(address, future, self._wait(future, address, future))
        except ImportError as error:
            raise ClusterError(
                f"worker {address} cannot import kernelweave ({error}); install the same "
                "version of it on every worker."
            ) from error

    def _seat(self, w: int) -> _Seat:
        seat = self._seats[w]
        if seat is None:
            raise _Lost
        return seat

    def _wait(self, asked: Any, address: str, future: Any) -> Any:
        """Wait for a result, and look now and then whether the worker of an actor is there."""
        while True:
            try:
                return asked.result(timeout=_LOOK)
            except TimeoutError:
                gone = address not in _workers(self._client)
                # One that was just asked for may have failed meanwhile: its result says why.
                if gone or (asked is not future and future.status not in ("finished", "pending")):
                    raise _Lost from None
            except (OSError, CancelledError):
                _workers(self._client)  # Raises if it is the scheduler that has ended.
                raise _Lost from None

    def _send(self, w: int, name: str, args: tuple[Any, ...]) -> Any:
        """Start a call; None if the worker is known to be gone."""
        try:
            return self._seat(w).actor.do(name, args)
        except (RuntimeError, _Lost):
            return None

    def _answer(self, w: int, asked: Any) -> Any:
        """Wait for what an actor says."""
        seat = self._seat(w)
        if asked is None:
            raise _Lost
        fine, answer = self._wait(asked, seat.address, seat.future)
        if not fine:
            raise answer
        return answer

    def _call(self, w: int, name: str, *args: Any) -> Any:
        return self._answer(w, self._send(w, name, args))

    def _require(self, w: int, needed: float, what: str) -> None:
        seat = self._seat(w)
        room = self._call(w, "room")
        others = (
            self._needed[other]
            for other, theirs in enumerate(self._seats)
            if other != w and theirs is not None and theirs.address == seat.address
        )
        if needed + sum(others) > _ROOM * room:
            raise MemoryBudgetError(
                f"shard {w} of {len(self)} with {what} needs {format_bytes(needed)} on worker "
                f"{seat.address}, whose memory limit is {format_bytes(room)}. Use more workers, "
                "workers with more memory, or fewer kernels."
            )

    def _replace(self, w: int) -> None:
        """Make shard w again on another worker; if that one is lost too, the shard stays lost."""
        old = self._seats[w]
        self._seats[w] = None
        self.replaced += 1
        try:
            self._seats[w] = self._hire(self._free_worker(None if old is None else old.address))
            self._require(w, self._needed[w], "its shard")
            self._call(w, "load", self._make, self._recipe(w))
            for owner, kept in list(self._kept.items()):
                if w in kept.beginnings:
                    self._call(w, "begin", kept.key, *kept.beginnings[w])
                    for name, *args in owner.past(w):
                        self._call(w, "state", kept.key, name, *args)
        except _Lost:
            self._seats[w] = None

    def _free_worker(self, lost: str | None) -> str:
        """Return a worker without a shard, after some time any worker there is."""
        deadline = time.monotonic() + self._patience
        taken = Counter(seat.address for seat in self._seats if seat is not None)
        while True:
            there = [address for address in _workers(self._client) if address != lost]
            best = min(there, key=lambda address: taken[address], default=None)
            late = time.monotonic() > deadline
            if best is not None and (late or not taken[best]):
                return best
            if late:
                raise ClusterError(
                    f"a worker of the dask cluster died and none has come in its place within "
                    f"{self._patience:g} s; a fit needs at least one."
                )
            time.sleep(_POLL)


@dataclass(frozen=True)
class Kept:
    """A state on each of some shards, under a key: ``make(shard, *args)`` of its (make, *args)."""

    team: Team
    key: int
    beginnings: dict[int, tuple[Any, ...]]

    def begin(self) -> None:
        self.team.ask("begin", {w: (self.key, *own) for w, own in self.beginnings.items()})

    def ask(self, name: str, args: dict[int, tuple[Any, ...]]) -> list[Any]:
        return self.team.ask("state", {w: (self.key, name, *own) for w, own in args.items()})

    def ask_all(self, name: str, *args: Any) -> list[Any]:
        return self.ask(name, dict.fromkeys(self.beginnings, args))
