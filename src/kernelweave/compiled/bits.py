"""Counting bits of 64-bit words, one machine instruction each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

__all__ = ["count_ones", "leading_zeros"]


@intrinsic
def _count_ones(typingctx: Any, word: Any) -> Any:
    """Number of bits of a uint64 that are set."""
    if word != types.uint64:
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(word), codegen


@intrinsic
def _leading_zeros(typingctx: Any, word: Any) -> Any:
    """Number of bits of a uint64 above the highest one that is set; 64 for zero."""
    if word != types.uint64:
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(word), codegen


# The decorator hides the argument from type checkers; this is how compiled code calls them.
count_ones: Callable[[Any], int] = cast(Any, _count_ones)
leading_zeros: Callable[[Any], int] = cast(Any, _leading_zeros)
