"""Parts of cross products of test parameters that are too large to run in full."""

from __future__ import annotations

from itertools import product

__all__ = ["thinned"]


def thinned(*factors, keep=2):
    """One in `keep` of all combinations: those whose positions add up to a multiple of it.

    Where every factor has at least `keep` values, each value occurs; of three factors and more
    each pair of values of two factors does, too.
    """
    return [
        tuple(value for _, value in chosen)
        for chosen in product(*(list(enumerate(factor)) for factor in factors))
        if sum(position for position, _ in chosen) % keep == 0
    ]
