"""Machine instructions that Numba has no name for. Only compiled code calls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic


@intrinsic
def _count_ones(typingctx: Any, word: Any) -> Any:
    """Number of bits of a uint64 that are set."""
    if word != types.uint64:
        return None
    return types.int64(word), lambda context, builder, signature, args: builder.ctpop(args[0])


@intrinsic
def _leading_zeros(typingctx: Any, word: Any) -> Any:
    """Number of bits of a uint64 above the highest one that is set; 64 for zero."""
    if word != types.uint64:
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(word), codegen


@intrinsic
def _fmax(typingctx: Any, left: Any, right: Any) -> Any:
    """Larger of two floats of one type, neither of them NaN.

    Python's ``max`` compiles to a comparison that keeps Python's order of NaN, which stops LLVM
    from vectorising a loop that takes a running maximum. ``llvm.maxnum`` with the flags "no NaN,
    sign of zero does not matter" is one instruction for 4 (float64) or 8 (float32) lanes.
    """
    if not (isinstance(left, types.Float) and left == right):
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = args[0].type
        signature = ir.FunctionType(kind, [kind, kind])
        function = builder.module.declare_intrinsic("llvm.maxnum", [kind], signature)
        return builder.call(function, args, fastmath=("nnan", "nsz"))

    return left(left, right), codegen


# The decorator hides the arguments from type checkers.
count_ones: Callable[[Any], int] = cast(Any, _count_ones)
leading_zeros: Callable[[Any], int] = cast(Any, _leading_zeros)
fmax: Callable[[float, float], float] = cast(Any, _fmax)
