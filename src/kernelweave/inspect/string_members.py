"""The string kernels among those of a fitted model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelweave.errors import InvalidInputError
from kernelweave.inspect.learnt import find_estimator
from kernelweave.kernels import Samples, Spectrum, WeightedDegree
from kernelweave.operators import ComputedOperator, StackedOperator

__all__ = ["StringMember", "string_members"]


@dataclass(frozen=True, eq=False)
class StringMember:
    """One string kernel of a fitted model.

    `index` is its place among all kernels, `place` that in the operator that normalises it.
    """

    index: int
    name: str
    kernel: Any
    place: int
    kernel_set: ComputedOperator

    @property
    def core(self) -> Any:
        """The string kernel itself."""
        return self.kernel.core

    @property
    def column(self) -> str:
        """What its name says about columns."""
        return str(self.kernel.name).removeprefix(self.core.name)

    def see(self, samples: Samples) -> Samples:
        """Return samples as the string kernel sees them."""
        for block in self.kernel.path:
            samples = samples.derive(block)
        return samples


def string_members(model: Any, kernel: str | None = None) -> list[StringMember]:
    """Return the string kernels of a fitted model, those whose name holds `kernel` if given."""
    estimator = find_estimator(model)
    whole, sets = getattr(estimator, "_kernel_set", None), []
    if isinstance(whole, StackedOperator):
        sets = list(zip(whole.parts, whole.members, strict=True))
    elif isinstance(whole, ComputedOperator):
        sets = [(whole, np.arange(whole.m))]
    found = [
        StringMember(int(index), str(part.names[place]), part.kernels[place], place, part)
        for part, own in sets
        if isinstance(part, ComputedOperator)
        for place, index in enumerate(own)
        if isinstance(part.kernels[place].core, Spectrum | WeightedDegree)
    ]
    if not found:
        raise InvalidInputError(
            f"the model has no string kernel (Spectrum, WeightedDegree) on its own; its kernels "
            f"are {_some(estimator.kernel_names_)}."
        )
    if kernel is None:
        return found
    chosen = [member for member in found if kernel in member.name]
    if not chosen:
        raise InvalidInputError(
            f"no string kernel of the model has {kernel!r} in its name; they are "
            f"{_some([member.name for member in found])}."
        )
    return chosen


def _some(names: Any, most: int = 5) -> str:
    shown = ", ".join(repr(str(names[i])) for i in range(min(most, len(names))))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
