"""Look into the library while it works: the one way to count or time calls of its functions.

A place is ``"Class.method"`` or ``"module:function"``, where the module is named by the last part
of its path and is the one that makes the call. Wherever the library keeps them, places are found by
these names; one that is gone is an error that lists all that are, and `tests/test_watch.py` looks
for every place that a benchmark names.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import kernelweave.bayes
import kernelweave.solvers  # noqa: F401  All that places can name is imported by these two.

Function = Callable[..., Any]


def holders(place: str) -> list[tuple[Any, str]]:
    """Return the modules, or the class, that hold the function of a place, and its name there."""
    modules = {
        path: module for path, module in sys.modules.items() if path.startswith("kernelweave")
    }
    if ":" in place:
        where, name = place.split(":")
        found = [module for path, module in modules.items() if path.endswith(f".{where}")]
    else:
        owner, name = place.split(".")
        classes = [vars(module).get(owner) for module in modules.values()]
        found = list({id(one): one for one in classes if isinstance(one, type)}.values())
    return [(holder, name) for holder in found if hasattr(holder, name)]


def missing(places: Iterable[str]) -> list[str]:
    return [place for place in places if not holders(place)]


@contextmanager
def watching(wrappers: dict[str, Callable[[Function], Function]]) -> Iterator[None]:
    """Put a wrapper in the place of each of these functions while the block runs."""
    gone = missing(wrappers)
    if gone:
        raise LookupError(f"no longer in the library: {', '.join(gone)}")
    with ExitStack() as stack:
        for place, wrap in wrappers.items():
            for holder, name in holders(place):
                stack.enter_context(patch.object(holder, name, wrap(getattr(holder, name))))
        yield


@contextmanager
def seconds_in(
    kinds: dict[str, Iterable[str]], clock: Callable[[], float] = time.process_time
) -> Iterator[dict[str, float]]:
    """Add up the seconds spent in the places of each kind; calls inside such calls count once."""
    spent = dict.fromkeys(kinds, 0.0)
    inside: list[str] = []

    def timed(kind: str) -> Callable[[Function], Function]:
        def wrap(function: Function) -> Function:
            def call(*args: Any, **more: Any) -> Any:
                inside.append(kind)
                began = clock()
                try:
                    return function(*args, **more)
                finally:
                    inside.pop()
                    if not inside:
                        spent[kind] += clock() - began

            return call

        return wrap

    wrappers = {place: timed(kind) for kind, places in kinds.items() for place in places}
    with watching(wrappers):
        yield spent
