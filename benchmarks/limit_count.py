"""Counts what runs inside a block of code, where the library calls its banks and compiled loops.

The formulas are in limit_bank.py and limit_inner.py. Every call that they name is done as ever; its
amounts and its processor seconds go to a ledger. One thread: a call in another would be counted but
not timed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import limit_bank
import limit_inner
from limit_ledger import Ledger

__all__ = ["counting"]


@contextmanager
def counting() -> Iterator[Ledger]:
    """Count the work of all calls inside the block.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.bank import DenseOperator
    >>> bank = DenseBank().from_matrices([np.eye(4), np.ones((4, 4))])
    >>> with counting() as ledger:
    ...     _ = bank.matvec(np.array([1.0, 0.0, 0.0, 2.0]))
    >>> ledger.total("moved")  # 2 kernels, 2 rows of 4 numbers of 8 bytes
    128.0
    """
    ledger = Ledger()
    with ExitStack() as stack:
        for module, owner, name, kind, amounts in limit_bank.COUNTS + limit_inner.COUNTS:
            where = importlib.import_module(module)
            holder = where if owner is None else getattr(where, owner)
            done = getattr(holder, name)
            stack.enter_context(patch.object(holder, name, _counted(ledger, kind, done, amounts)))
        yield ledger


def _counted(
    ledger: Ledger, kind: str, done: Callable[..., Any], amounts: Callable[..., dict[str, Any]]
) -> Callable[..., Any]:
    def work(*args: Any, **more: Any) -> Any:
        out = ledger.timed(kind, lambda: done(*args, **more))
        ledger.add(kind, **amounts(out, *args, **more))
        return out

    return work
