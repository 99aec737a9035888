r"""Sparse weight vectors over k-mers: clear, add sequences, look sequences up.

Sonnenburg et al. (2006), algorithm 3: with :math:`w = \sum_i \delta_i \Phi(x_i)` in a store,
:math:`\sum_i \delta_i k(x_i, x) = \langle w, \Phi(x) \rangle` costs as many look-ups as x has
k-mers, whatever the number of the :math:`x_i`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelweave.kernels.strings.array_store import ArrayStore
from kernelweave.kernels.strings.kmer_space import KmerSpace
from kernelweave.kernels.strings.sorted_store import SortedStore
from kernelweave.kernels.strings.trie_store import TrieStore
from kernelweave.kernels.strings.weight_store import WeightStore

__all__ = ["ArrayStore", "SortedStore", "TrieStore", "WeightStore", "choose_store"]

# Looking up a k-mer of random DNA among those of 2,000 sequences of 141 letters, in nanoseconds
# on one core, for k = 4, 8, 10, 12: array 2, 3, 5, 20; sorted codes 9, 16, 30, 27; trie 10, 30,
# 80, 80. For all lengths from 1 to k: array the same; sorted codes 30, 90, 230, 450; trie 10, 30,
# 80, 90. So an array is quickest at any size, but to touch one of 4^12 codes for the first time
# takes 0.4 s, as long as 10^7 look-ups. Beyond it one length is looked up best in sorted codes,
# several in a trie.
_MOST_CODES = 2**22
# An array that stays nearly empty is a waste: there may be one for each of very many positions.
_CODES_FOR_A_KMER = 64
_FEW_CODES = 2**14


def choose_store(
    space: KmerSpace, factors: Sequence[float] | None = None, n_kmers: int | None = None
) -> WeightStore:
    """Return an empty store of the kind that suits the alphabet and the lengths.

    Parameters
    ----------
    space : KmerSpace
        Which k-mers there are.
    factors : sequence of float, optional
        The factor of each length.
    n_kmers : int, optional
        About how many k-mers will be added, if that is known.

    Examples
    --------
    >>> from kernelweave.kernels.strings.alphabet import get_alphabet
    >>> dna, protein = get_alphabet("dna"), get_alphabet("protein")
    >>> for space in KmerSpace(dna, 1, 8), KmerSpace(dna, 20, 20), KmerSpace(protein, 1, 6):
    ...     print(type(choose_store(space)).__name__)
    ArrayStore
    SortedStore
    TrieStore
    """
    room = _MOST_CODES if n_kmers is None else max(_FEW_CODES, _CODES_FOR_A_KMER * n_kmers)
    if space.n_columns <= min(room, _MOST_CODES):
        return ArrayStore(space, factors)
    kind = SortedStore if space.shortest == space.longest else TrieStore
    return kind(space, factors)
