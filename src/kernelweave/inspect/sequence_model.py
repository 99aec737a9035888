"""The string kernels of a fitted model, and what they add to its decisions, as scores of k-mers."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.arrays import Array
from kernelweave.cached import cached_property
from kernelweave.combine import WeightedSum
from kernelweave.errors import InvalidInputError
from kernelweave.inspect.ranking import find_estimator
from kernelweave.inspect.string_terms import (
    AlignedTerm,
    Numbers,
    Scale,
    SpectrumTerm,
    add_up,
    other_strand,
)
from kernelweave.kernels import Samples, Spectrum, WeightedDegree
from kernelweave.kernels.samples import as_samples, as_text, is_frame
from kernelweave.kernels.strings.alphabet import Alphabet, get_alphabet
from kernelweave.kernels.strings.sequences import aligned_of, sequences_of
from kernelweave.operators import ComputedOperator, StackedOperator
from kernelweave.validation import some_of

# Numbers that are computed at a time, 32 MB.
_ENTRIES = 2**22


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
        return samples.through(self.kernel.path)


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
            f"are {some_of(map(repr, estimator.kernel_names_), 5)}."
        )
    if kernel is None:
        return found
    chosen = [member for member in found if kernel in member.name]
    if not chosen:
        raise InvalidInputError(
            f"no string kernel of the model has {kernel!r} in its name; they are "
            f"{some_of([repr(member.name) for member in found], 5)}."
        )
    return chosen


@dataclass(frozen=True, eq=False)
class SequenceModel:
    """The string kernels of a fitted model that read one column, as scores of k-mers."""

    alphabet: Alphabet
    terms: list[AlignedTerm | SpectrumTerm]
    # One of the kernels: all see the same samples.
    member: StringMember
    # The class that the scores speak for, or nothing if there is no choice.
    title: str

    @classmethod
    def of(cls, model: Any, kernel: str | None = None, target: Any = None) -> SequenceModel:
        """Read a fitted model."""
        estimator = find_estimator(model)
        members = string_members(estimator, kernel)
        if not isinstance(estimator._combination, WeightedSum):
            raise InvalidInputError(
                f"scores of k-mers add up only in a sum of kernels; the model has "
                f"combination={estimator.combination!r}."
            )
        if not hasattr(estimator, "dual_coef_"):
            raise InvalidInputError(
                "scores of k-mers come from dual coefficients, as MKLClassifier, MKLRegressor and "
                f"MKLOneClass have them; got {type(estimator).__name__}."
            )
        weights, alpha, title = _decision(estimator, target)
        used = [member for member in members if weights[member.index] != 0.0]
        if not used:
            raise InvalidInputError(
                f"all string kernels asked for have weight zero in the model, such as "
                f"'{members[0].name}'."
            )
        first = used[0]
        for member in used:
            same = member.kernel.path == first.kernel.path
            if not same or get_alphabet(member.core.alphabet) != get_alphabet(first.core.alphabet):
                raise InvalidInputError(
                    f"the string kernels read different columns or alphabets, such as "
                    f"'{first.name}' and '{member.name}'; choose by a part of their names, "
                    f"kernel=..."
                )
        return cls(get_alphabet(first.core.alphabet), _terms(used, weights, alpha), first, title)

    @property
    def placed(self) -> bool:
        """Whether scores depend on positions."""
        return any(term.placed for term in self.terms)

    @cached_property
    def lengths(self) -> list[int]:
        """Lengths of k-mers with a weight, ascending."""
        return sorted({k for term in self.terms for k in term.lengths})

    def n_positions(self, k: int) -> int:
        """Number of positions that differ: one if none does."""
        if not self.placed:
            return 1
        return max(0, max(term.length for term in self.terms) - k + 1)

    def at(self, k: int, position: int) -> tuple[Numbers, Array]:
        """Return the k-mers with a score at a position, as numbers, ascending, and the scores."""
        found = [term.at(k, position) for term in self.terms]
        if len(found) == 1:
            return found[0]
        numbers = np.concatenate([np.empty(0, np.uint64), *(own for own, _ in found)])
        values = np.concatenate([np.empty(0), *(own for _, own in found)])
        return add_up(numbers, values, self.alphabet.size**k)

    def table(self, k: int) -> Array:
        """Return the scores of all k-mers at all positions that differ."""
        out = np.zeros((self.alphabet.size**k, self.n_positions(k)))
        for at in range(out.shape[1]):
            numbers, values = self.at(k, at)
            out[numbers, at] = values
        return out

    def shares(
        self, samples: Samples, per: str, width: int
    ) -> Iterator[tuple[NDArray[np.int64], Array]]:
        """Yield what each start position or letter adds, (rows, width), for some rows at a time."""
        step = max(1, _ENTRIES // (width * max(self.lengths, default=1)))
        for first in range(0, samples.n, step):
            rows = np.arange(first, min(first + step, samples.n))
            out = np.zeros((len(rows), width))
            some = samples.take(rows)
            for k, found in chain(*(term.contributions(some) for term in self.terms)):
                # Rows of this block may all be shorter than the longest sequence.
                have = found.shape[1]
                if per == "start":
                    out[:, :have] += found
                    continue
                for offset in range(k):
                    out[:, offset:have] += found[:, : have - offset] / k
            yield rows, out

    @property
    def training(self) -> Samples:
        """The training sequences."""
        return self.member.see(self.member.kernel_set.samples)

    def read(self, X: Any) -> Samples:
        """Return given samples, or sequences without the other columns, as kernels see them."""
        text = None if is_frame(X) or isinstance(X, Samples) else as_text(X)
        alone = text is not None and text.shape[1] == 1
        if alone and self.member.kernel_set.samples.n_columns > 1:
            return Samples(text)
        return self.member.see(as_samples(X))


def _decision(estimator: Any, target: Any) -> tuple[Array, Array, str]:
    """Kernel weights and dual variables (one for each training sample) of one decision function."""
    coefficients, weights = np.atleast_2d(estimator.dual_coef_), np.atleast_2d(estimator.weights_)
    place, sign, title = 0, 1.0, ""
    if hasattr(estimator, "classes_"):
        known = estimator.classes_.tolist()
        if target is None and len(known) == 2:
            target = known[1]
        if target not in known:
            shown = ", ".join(map(repr, known))
            raise InvalidInputError(f"target must be one of the classes {shown}; got {target!r}.")
        place = known.index(target)
        title = f"class {known[place]}"
        if len(coefficients) == 1:
            # One function decides between two classes: what speaks for one is against the other.
            place, sign = 0, 1.0 if place == 1 else -1.0
    elif target is not None:
        raise InvalidInputError(
            f"target chooses a class, and {type(estimator).__name__} has none; got {target!r}."
        )
    alpha = np.zeros(estimator._kernel_set.n)
    alpha[estimator.support_] = sign * coefficients[place]
    return weights[place if len(weights) > 1 else 0], alpha, title


def _terms(
    members: list[StringMember], weights: Array, alpha: Array
) -> list[AlignedTerm | SpectrumTerm]:
    """What the kernels add to the decision function."""
    together: dict[bool, list[tuple[WeightedDegree, float]]] = {}
    terms: list[AlignedTerm | SpectrumTerm] = []
    # All kernels that are no batches are in one operator.
    kernels = members[0].kernel_set
    only_scaled = kernels.normalization.pure_scaling
    for member in members:
        raw, weight = copy.copy(member.core), float(weights[member.index])
        raw.normalize = False
        if isinstance(raw, WeightedDegree) and only_scaled and not member.core.normalize:
            both = bool(raw.reverse_complement)
            factor = float(kernels.scale([member.place])[0])
            together.setdefault(both, []).append((raw, weight * factor))
        else:
            terms.append(_term(member, raw, weight * alpha))
    samples = members[0].see(members[0].kernel_set.samples)
    return terms + [_aligned(parts, samples, alpha) for parts in together.values()]


def _term(member: StringMember, raw: Any, v: Array) -> AlignedTerm | SpectrumTerm:
    """What one kernel adds; `raw` is what it is before it is normalised."""
    normalization = member.kernel_set.normalization
    if normalization.divides_centred:
        raise InvalidInputError(
            f"with normalize={normalization.names!r} decision values are no sums over k-mers: a "
            f"unit diagonal after centring. Fit with one of the two, or 'diagonal' first."
        )
    # The constant that centring leaves belongs to no k-mer.
    v, roots, _ = member.kernel_set.coefficients(member.place, v)
    samples = member.see(member.kernel_set.samples)
    scale: Scale | None = None
    own, typical = np.ones(len(v)), 1.0
    if member.core.normalize or "diagonal" in normalization.names:
        scale = raw.unit
        own = scale(samples)
        typical = float(own.mean())
    # A sample is multiplied by the same multiple of its `scale`, whichever it is.
    some = int(np.argmax(own))
    roots = np.broadcast_to(roots, own.shape)
    v = v * roots[some] * (own if member.core.normalize else 1.0 / own[some])
    if isinstance(raw, WeightedDegree):
        return _aligned([(raw, 1.0)], samples, v, scale, typical)
    return _spectrum(raw, samples, v, scale, typical)


def _aligned(
    parts: list[tuple[WeightedDegree, float]],
    samples: Samples,
    alpha: Array,
    scale: Scale | None = None,
    typical: float = 1.0,
) -> AlignedTerm:
    """A weighted sum of weighted degree kernels, all with both strands or all with one."""
    kernels = [kernel for kernel, _ in parts]
    alphabet = get_alphabet(kernels[0].alphabet)
    used = np.flatnonzero(alpha)
    known = aligned_of(samples, alphabet, kernels[0].reverse_complement)[used]
    length, degree = known.length, max(kernel.degree for kernel in kernels)
    # A k-mer must end within the sequence.
    ends = np.arange(length)[:, None] + np.arange(1, degree + 1) <= length
    weights: dict[int, Array] = {}
    for kernel, weight in parts:
        rules = kernel.position_weights(length)
        for s, factor, inside in rules.shifts():
            sums = weights.setdefault(s, np.zeros((length, degree)))
            sums[:, : rules.degree] += weight * factor * rules.steps * inside[:, None]
    weights = {s: np.where(ends, sums, 0.0) for s, sums in weights.items()}
    return AlignedTerm(alphabet, known, alpha[used] / known.n_strands, weights, scale, typical)


def _spectrum(
    kernel: Spectrum, samples: Samples, v: Array, scale: Scale | None, typical: float
) -> SpectrumTerm:
    alphabet = get_alphabet(kernel.alphabet)
    tables = {}
    for k in range(kernel.lengths[0], kernel.lengths[1] + 1):
        known, values = kernel.kmer_weights(samples, v, k)
        numbers = known.astype(np.uint64)
        if kernel.reverse_complement:
            # One k-mer speaks for both strands, and for itself once if it is its own complement.
            other = other_strand(numbers, k, alphabet)
            differs = other != numbers
            numbers = np.concatenate([numbers, other[differs]])
            values = np.concatenate([values, values[differs]])
        tables[k] = add_up(numbers, values, alphabet.size**k)
    longest = int(sequences_of(samples, alphabet).lengths.max())
    return SpectrumTerm(alphabet, tables, kernel.positions, longest, scale, typical)
