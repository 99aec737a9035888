"""Letters of sequence logos as SVG paths, each filling the unit square, and their colours."""

from __future__ import annotations

from functools import cache

import numpy as np

from kernelweave.kernels.strings.alphabet import Alphabet

__all__ = ["letter_colours", "letter_outline"]

# Classes of the style sheet; the letters of proteins by what their side chains are like.
_BASES = {"A": "s2", "C": "s0", "G": "s4", "T": "s1", "U": "s1"}
_RESIDUES = {
    **dict.fromkeys("AVLIMFWCP", "ink"),  # hydrophobic
    **dict.fromkeys("STYNQG", "s2"),  # polar
    **dict.fromkeys("KRH", "s0"),  # positive
    **dict.fromkeys("DE", "s1"),  # negative
}
_CODES = {1: ("M", 1), 2: ("L", 1), 3: ("Q", 2), 4: ("C", 3), 79: ("Z", 0)}


def letter_colours(alphabet: Alphabet) -> dict[str, str]:
    """Return the class of each letter's colour.

    Examples
    --------
    >>> from kernelweave.kernels.strings.alphabet import get_alphabet
    >>> letter_colours(get_alphabet("dna"))
    {'A': 's2', 'C': 's0', 'G': 's4', 'T': 's1'}
    """
    known = {"protein": _RESIDUES, "dna": _BASES, "rna": _BASES}.get(alphabet.name, {})
    return {letter: known.get(letter, "s0") for letter in alphabet.letters}


@cache
def letter_outline(letter: str) -> str:
    """Return the outline of a letter as path data: one high, one wide, its middle at x = 0.

    Examples
    --------
    >>> letter_outline("L")[0], letter_outline("L")[-1]
    ('M', 'Z')
    """
    from kernelweave.report.plots_sequences import _outline

    path = _outline(letter)
    out: list[str] = []
    vertices = iter(np.asarray(path.vertices).round(3).tolist())
    codes = iter(path.codes.tolist())
    for code in codes:
        name, n_points = _CODES[code]
        points = [next(vertices) for _ in range(max(n_points, 1))]
        for _ in range(n_points - 1):
            next(codes)
        said = " ".join(f"{x:g} {y:g}" for x, y in points[:n_points])
        out.append(name + said)
    return "".join(out)
