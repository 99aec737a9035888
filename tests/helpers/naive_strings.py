"""The weighted degree kernel written out, and a dictionary of weights of k-mers at positions."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

__all__ = [
    "PROTEIN",
    "Dictionary",
    "blocks",
    "length_weights",
    "naive_gram",
    "other_strand",
    "random_texts",
]

PROTEIN = "ACDEFGHIKLMNPQRSTVWY"
_PAIRS = str.maketrans("ACGT", "TGCA")
_RNA_PAIRS = str.maketrans("ACGU", "UGCA")


def random_texts(n, length, rng, letters="ACGT", ambiguous="N", often=0.05):
    """Random sequences of one length, a few letters of them ambiguous."""
    every = list(letters + ambiguous)
    odds = np.full(len(every), 1.0 / len(letters))
    odds[len(letters) :] = often
    return ["".join(row) for row in rng.choice(every, (n, length), p=odds / odds.sum())]


def other_strand(text, rna=False):
    return text.upper().translate(_RNA_PAIRS if rna else _PAIRS)[::-1]


def length_weights(degree):
    k = np.arange(1, degree + 1)
    return 2.0 * (degree - k + 1) / (degree * (degree + 1))


def _runs(text, letters):
    """For each position the number of letters up to the first that is none of `letters`."""
    out = np.zeros(len(text) + 1, int)
    for at in reversed(range(len(text))):
        out[at] = out[at + 1] + 1 if text[at] in letters else 0
    return out


def _value(x, z, weights, shift, positions, letters):
    start, stop = positions or (0, len(x))
    valid = _runs(x, letters)
    total = 0.0
    for at in range(start, min(stop, len(x))):
        for there in range(max(at - shift, start), min(at + shift + 1, stop, len(x))):
            factor = 1.0 if at == there else 0.5 / (abs(at - there) + 1)
            for k in range(1, len(weights) + 1):
                if k > min(valid[at], len(x) - there) or x[at : at + k] != z[there : there + k]:
                    break  # A longer k-mer begins with the shorter one.
                total += factor * weights[k - 1]
    return total


def naive_gram(
    X,
    Z,
    degree,
    *,
    shift=0,
    lengths=None,
    positions=None,
    letters="ACGT",
    normalize=False,
    reverse_complement=False,
):
    """The Gram matrix of `WeightedDegree` with these parameters, k-mer by k-mer."""
    weights = length_weights(degree)
    if lengths is not None:
        k = np.arange(1, degree + 1)
        weights = ((k >= lengths[0]) & (k <= lengths[1])).astype(float)

    def value(x, z):
        x, z = x.upper(), z.upper()
        rest = weights, shift, positions, letters
        if not reverse_complement:
            return _value(x, z, *rest)
        return 0.5 * sum(_value(a, b, *rest) for a in _both(x) for b in _both(z))

    def _both(text):
        return text, other_strand(text, "U" in letters)

    K = np.array([[value(x, z) for z in Z] for x in X])
    if normalize:
        left, right = (np.sqrt([value(x, x) for x in some]) for some in (X, Z))
        with np.errstate(invalid="ignore"):
            K = np.nan_to_num(K / np.outer(left, right))
    return K


def blocks(x, z, degree):
    """The O(L) form of the kernel: a polynomial of the length of every run of matches."""
    d, total, run = degree, 0.0, 0
    for same in [*(a == b and a in "ACGT" for a, b in zip(x, z, strict=True)), False]:
        if same:
            run += 1
            continue
        if run <= d:
            total += run * (-(run**2) + 3 * d * run + 3 * d + 1) / (3 * d * (d + 1))
        else:
            total += (3 * run - d + 1) / 3
        run = 0
    return total


class Dictionary:
    """Weights of k-mers at positions, as `PositionWeights` describes them: one number a k-mer."""

    def __init__(self, weights, letters="ACGT"):
        self.weights = weights
        self.letters = letters
        self.fold = str.upper if letters.isupper() else str
        self.store = defaultdict(float)

    def _kmers(self, text):
        valid = _runs(text, self.letters)
        for at in range(len(text)):
            for k in range(1, min(valid[at], self.weights.degree) + 1):
                yield at, k, text[at : at + k]

    def add(self, texts, v):
        w, window_of = self.weights, self.weights.window_of
        near = {
            there: [
                (at, 1.0 if at == there else 0.5 / (abs(at - there) + 1))
                for at in range(max(there - w.shift, 0), min(there + w.shift + 1, w.length))
                if window_of[at] == window_of[there] >= 0
            ]
            for there in range(w.length)
        }
        for text, amount in zip(texts, v, strict=True):
            for there, _, kmer in self._kmers(self.fold(text)):
                for at, factor in near[there]:
                    self.store[at, kmer] += factor * amount
        return self

    def look_up(self, texts):
        """Shape (windows, lengths or 1, n)."""
        w = self.weights
        out = np.zeros((w.n_windows, w.degree if w.by_length else 1, len(texts)))
        for i, text in enumerate(texts):
            for at, k, kmer in self._kmers(self.fold(text)):
                if w.window_of[at] >= 0:
                    found = self.store.get((at, kmer), 0.0)
                    if w.by_length:
                        out[w.window_of[at], k - 1, i] += found
                    else:
                        out[w.window_of[at], 0, i] += w.steps[at, k - 1] * found
        return out
