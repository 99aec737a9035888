"""What a fit is taken up from: the arrays of a checkpoint, by name, and the check of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.validation import LARGEST, require_array

# What a fit can be taken up from, by name; those of a part begin with its name and a dot.
Numbers = Mapping[str, Array]
ABOVE_ZERO = float(np.finfo(np.float64).tiny)


def prefixed(part: str, numbers: Numbers) -> dict[str, Array]:
    """Return the numbers of a part, under its name."""
    return {f"{part}.{name}": value for name, value in numbers.items()}


def part_of(numbers: Numbers, part: str) -> dict[str, Array]:
    """Return the numbers of a part, without its name."""
    start = f"{part}."
    return {k.removeprefix(start): v for k, v in numbers.items() if k.startswith(start)}


@dataclass(frozen=True)
class Progress:
    """How far a fit had come that another one goes on with; at first nowhere.

    `witness` are dual variables that bound the optimum better than its alpha.
    """

    iteration: int = 0
    seconds: float = 0.0
    gap: float = np.inf
    witness: Array | None = None


class Kept(NamedTuple):
    """What one array of a checkpoint has to be.

    The shape has a letter for each axis: "T", "n" and "m" are tasks, samples and kernels; any other
    letter is a length that all arrays with that letter share. No number is below `low` or beyond
    1e100. With `kernels` they are numbers of kernels, in order.
    """

    shape: tuple[str, ...] = ()
    low: float = -np.inf
    kernels: bool = False
    infinite: bool = False
    needed: bool = True


# What every convex fit writes down of a point, and besides.
POINT_KEPT: Mapping[str, Kept] = {
    "d": Kept(("m",), low=0.0),
    "alpha": Kept(("T", "n")),
    "intercept": Kept(("T",)),
}
FIT_KEPT: Mapping[str, Kept] = {
    **POINT_KEPT,
    "C": Kept(("T", "n"), low=0.0),
    "witness": Kept(("T", "n"), needed=False),
}
RECORD_KEPT: Mapping[str, Kept] = {
    "iteration": Kept(low=0.0),
    "seconds": Kept(low=0.0),
    "gap": Kept(low=0.0, infinite=True),
}
# What cutting planes remember, under the name of the solver that handed over to them as well.
PLANES_KEPT: Mapping[str, Kept] = {
    "inner_tol": Kept(low=ABOVE_ZERO, needed=False),
    "planes": Kept(needed=False),
    "witness.alpha": Kept(("T", "n"), needed=False),
}


def check_kept(
    numbers: Numbers, kept: Mapping[str, Kept], sizes: Mapping[str, int], *, or_none: bool = False
) -> None:
    """Raise unless each array that is known is what it has to be; others are left alone.

    With ``or_none=True`` those that are needed may also be missing altogether.
    """
    known = dict(sizes)
    needed = [name for name, entry in kept.items() if entry.needed]
    missing = [name for name in needed if name not in numbers]
    if missing and not (or_none and missing == needed):
        raise InvalidInputError(f"{missing[0]!r} is missing.")
    for name, entry in kept.items():
        if name not in numbers:
            continue
        value = np.asarray(numbers[name])
        for letter, size in zip(entry.shape, value.shape, strict=False):
            known.setdefault(letter, size)
        shape = tuple(known.get(letter) for letter in entry.shape)
        if entry.kernels:
            top = known["m"] - 1
            require_array(repr(name), value, shape, whole=True, low=0, high=top)
            if (np.diff(value) <= 0).any():
                raise InvalidInputError(f"{name!r} must name kernels in order, each once.")
            continue
        # Counts are whole numbers where they are written.
        numeric = value.astype(np.float64) if value.dtype.kind in "iub" else value
        if entry.infinite and numeric.dtype == np.float64:
            numeric = np.asarray(np.minimum(numeric, LARGEST))
        low = max(entry.low, -LARGEST)
        require_array(repr(name), numeric, shape, low=low, high=LARGEST)


@contextmanager
def refused_by_name(where: str) -> Iterator[None]:
    """Say of numbers that are refused where they come from."""
    try:
        yield
    except Exception as error:
        raise InvalidInputError(
            f"warm_start_from: {where} cannot be gone on with: {str(error).rstrip('.')}. It is "
            "damaged, or has been changed; leave warm_start_from=None to start anew."
        ) from error
