"""Sequences with or without their other strands, as one kernel sees them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.kernels.samples import Samples
from kernelweave.kernels.strings.aligned import Aligned, aligned_of
from kernelweave.kernels.strings.alphabet import Alphabet
from kernelweave.kernels.strings.position_table import PositionTable
from kernelweave.kernels.strings.position_weights import PositionWeights

__all__ = ["Strands"]

Floats = NDArray[np.float64]


class Strands:
    r"""Aligned sequences, alone or together with their reverse complements.

    With both strands the features of a sample are those of one plus those of the other, divided by
    :math:`\sqrt 2`: then :math:`k(x, x') = \tfrac12 \sum_{s, s'} k_0(x_s, x'_{s'})`.

    Parameters
    ----------
    strands : sequence of Aligned
        One or two.

    Examples
    --------
    >>> from kernelweave.kernels.strings.alphabet import get_alphabet
    >>> some = Strands.of(Samples(["ACG", "TTT"]), get_alphabet("dna"), both=True)
    >>> some.n, some.length, len(some.strands)
    (2, 3, 2)
    """

    def __init__(self, strands: Sequence[Aligned]) -> None:
        self.strands = tuple(strands)

    @classmethod
    def of(cls, samples: Samples, alphabet: Alphabet, both: bool) -> Strands:
        """Read the only column of some samples."""
        return cls([aligned_of(samples, alphabet, other) for other in (False, True)[: 1 + both]])

    @property
    def n(self) -> int:
        """Number of samples."""
        return self.strands[0].n

    @property
    def length(self) -> int:
        """Number of letters of each."""
        return self.strands[0].length

    @property
    def nbytes(self) -> int:
        """Bytes of all strands."""
        return sum(strand.nbytes for strand in self.strands)

    def __getitem__(self, index: Any) -> Strands:
        return Strands([strand[index] for strand in self.strands])

    @property
    def _share(self) -> float:
        return 1.0 / len(self.strands)

    def products(self, weights: PositionWeights, new: Strands, v: Floats) -> Floats:
        """sum_j v_j k_w(x_j, x) for new samples x."""
        used = np.flatnonzero(v != 0)
        known, amounts = self[used].joined(v[used])
        return self._mean([weights.products(strand, known, amounts) for strand in new.strands])

    def joined(self, v: Floats) -> tuple[Aligned, Floats]:
        """Return all strands as one set of sequences, with the coefficients that belong to them."""
        return Aligned.join(self.strands), np.tile(v, len(self.strands))

    def table(self, weights: PositionWeights, v: Floats) -> Callable[[Strands], Floats]:
        """Return x -> sum_j v_j k(x_j, x), with all that depends on the x_j done beforehand."""
        used = np.flatnonzero(v != 0)
        table = PositionTable(weights, *self[used].joined(v[used]))
        return lambda new: self._mean([table.look_up(strand) for strand in new.strands])

    def add_pairs(
        self, weights: PositionWeights, right: Strands, out: Floats, lower: bool = False
    ) -> None:
        """Add k between these samples and those of `right`; of j <= i alone if `lower`."""
        share = weights.times(self._share) if len(self.strands) > 1 else weights
        for a in self.strands:
            for b in right.strands:
                share.add_pairs(a, b, out, lower)

    def rows_of_pairs(self, weights: PositionWeights, right: Strands) -> Floats:
        """k_w between these samples and those of `right`, for every window (and length)."""
        pairs = [(a, b) for a in self.strands for b in right.strands]
        return self._mean([weights.rows_of_pairs(a, b) for a, b in pairs])

    def diagonals(self, weights: PositionWeights) -> Floats:
        """k_w(x, x) for every window (and length)."""
        pairs = [(a, b) for a in self.strands for b in self.strands]
        return self._mean([weights.diagonals(a, b) for a, b in pairs])

    def _mean(self, parts: list[Floats]) -> Floats:
        return parts[0] if len(parts) == 1 else self._share * np.sum(parts, axis=0)
