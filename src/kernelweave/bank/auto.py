"""Choosing how to keep the kernels, from n, m, their ranks and the memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave.bank.batch import BatchBank
from kernelweave.bank.dense import DenseBank
from kernelweave.bank.factored import FactoredBank, RankExceeded, factor_kernel
from kernelweave.bank.given import GivenBank
from kernelweave.bank.lazy import LazyBank
from kernelweave.bank.memory import cache_bytes
from kernelweave.bank.positional import PositionalBank
from kernelweave.bank.protocol import Array, KernelBank
from kernelweave.bank.source import Source
from kernelweave.bank.sparse import SparseBank
from kernelweave.bank.stacked import StackedBank
from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.batch_set import BatchSet
from kernelweave.kernels.composite_set import CompositeSet
from kernelweave.kernels.kernel_set import KernelSet
from kernelweave.validation import unknown_name

__all__ = ["BANKS", "build_bank", "storage_dtype"]

BANKS = ("auto", "dense", "factored", "lazy", "positional", "sparse")

# A factor of rank r costs 2 r multiplications a sample and product, a dense row n: below n/4 the
# factor wins clearly, and what it costs to find it is small beside a single dense matrix.
_RANK_SHARE = 4
_PROBE = 128
# A pass reads every sparse feature twice, and looking one up takes as long as reading some four
# entries of a matrix from front to back: features win below n^2 / 8 of them.
_FEATURE_COST = 8


def storage_dtype(tol: float) -> str:
    """Return the storage type that a relative gap of `tol` allows.

    float32 rounds kernel values at 6e-8. At tolerances of 1e-4 and above that is far below what
    the fit itself leaves; the certificate counts it, and the fit is repeated on float64 kernels
    if it should matter after all.

    Examples
    --------
    >>> storage_dtype(1e-3), storage_dtype(1e-6)
    ('float32', 'float64')
    """
    return "float32" if tol >= 1e-4 else "float64"


def build_bank(
    spec: Any,
    kernel_set: KernelSet | BatchSet | CompositeSet,
    *,
    cache_mb: float = 1000,
    tol: float = 1e-3,
    random_state: int | None = None,
) -> KernelBank:
    """Build the bank an estimator was asked for.

    Parameters
    ----------
    spec : {"auto", "dense", "lazy", "factored", "sparse", "positional"}, or with ``build(kernels)``
        "auto" keeps weighted degree kernels by their sequences ("positional"), kernels with at
        most n^2 / 8 sparse features by these ("sparse"), factors every kernel whose rank is below
        n/4 (probed on a random subset first), keeps the others dense while they fit in `cache_mb`,
        and otherwise takes sparse features if there are any, or computes rows on demand. Matrices
        the user holds already cost nothing and stay dense.
    kernel_set : KernelSet, BatchSet or CompositeSet
        The kernels on the training rows. Those of a batch are never stored unless "dense" or
        "factored" asks for it.
    cache_mb : float
        Megabytes for matrices or cached rows; where memory is short, half of what there is.
    tol : float
        Relative gap the fit aims at: decides the storage type and the factors' trace error.
    random_state : int or None
        Draws the subset on which ranks are probed.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.kernels import KernelSet, Polynomial
    >>> X = np.linspace(-1, 1, 100)[:, None]
    >>> type(build_bank("auto", KernelSet.build([Polynomial(2)], X))).__name__
    'FactoredBank'
    """
    if getattr(spec, "builds_any_set", False):
        return spec.build(kernel_set)
    if isinstance(kernel_set, CompositeSet):
        banks = [
            build_bank(spec, part, cache_mb=cache_mb, tol=tol, random_state=random_state)
            for part in kernel_set.parts
        ]
        return StackedBank(banks, kernel_set.members)
    if hasattr(spec, "build"):
        return spec.build(kernel_set)
    if spec not in BANKS:
        raise unknown_name("bank", spec, BANKS)
    if not cache_mb > 0:
        raise InvalidInputError(f"cache_mb must be > 0; got {cache_mb!r}.")
    dtype = storage_dtype(tol)
    rtol = float(np.clip(1e-3 * tol, 1e-12, 1e-6))
    frugal = spec == "lazy"
    if isinstance(kernel_set, BatchSet) and frugal:
        spec = "auto"
    plans: dict[str, Any] = {
        "dense": DenseBank(dtype),
        "lazy": LazyBank(cache_mb, dtype),
        "factored": FactoredBank(rtol),
        "positional": PositionalBank(),
        "sparse": SparseBank(),
    }
    if spec in plans:
        bank = plans[spec].build(kernel_set)
    elif isinstance(kernel_set, BatchSet):
        # Evaluating these kernels takes little longer than reading them from memory would.
        bank = BatchBank(dtype).build(kernel_set)
    else:
        bank = _automatic(kernel_set, cache_mb, dtype, rtol, random_state)
    for part in bank.parts if isinstance(bank, StackedBank) else (bank,):
        part.cache_mb = cache_mb
    if isinstance(bank, StackedBank):
        bank.cache_mb = cache_mb
    if frugal:
        bank.work_bytes = min(bank.work_bytes, cache_bytes(cache_mb))
    return bank


def _automatic(
    kernel_set: KernelSet,
    cache_mb: float,
    dtype: str,
    rtol: float,
    random_state: int | None,
) -> KernelBank:
    source = Source.of(kernel_set)
    strings = {k: p for k in range(source.m) if (p := source.positional_factor(k)) is not None}
    others = [k for k in range(source.m) if k not in strings]
    features = {k: f for k in others if (f := source.sparse_factor(k)) is not None}
    cheap = {k for k, f in features.items() if _FEATURE_COST * f.features.nnz <= source.n**2}
    pieces = _factor_where_it_pays(source, cheap | set(strings), rtol, random_state)
    thin = np.array([k for k in range(source.m) if pieces[k] is not None], dtype=np.int64)
    sparse = np.array(sorted(cheap), dtype=np.int64)
    aligned = np.array(sorted(strings), dtype=np.int64)
    rest = np.setdiff1d(np.arange(source.m), np.concatenate([thin, sparse, aligned]))
    held = np.array([source.holds_matrix(k) for k in rest], dtype=bool)
    dtype = source.storage(dtype, rest[~held])
    computed_bytes = (~held).sum() * source.n**2 * np.dtype(dtype).itemsize
    dense, lazy = rest, rest[:0]
    if computed_bytes and (
        computed_bytes > 1e6 * cache_mb
        or DenseBank(dtype).bytes_for(source.n, int((~held).sum())) > cache_bytes(float("inf"))
    ):
        dense, lazy = rest[held], rest[~held]
        known = np.array([k in features for k in lazy], dtype=bool)
        sparse, lazy = np.concatenate([sparse, lazy[known]]), lazy[~known]
    parts: list[KernelBank] = []
    members: list[Array] = []
    if len(thin):
        factors = [piece for piece in pieces if piece is not None]
        parts.append(FactoredBank(rtol).from_factors(factors, Source.of(kernel_set, thin)))
        members.append(thin)
    if len(aligned):
        names = [source.names[k] for k in aligned]
        parts.append(PositionalBank().from_factors([strings[k] for k in aligned], names))
        members.append(aligned)
    if len(sparse):
        names = [source.names[k] for k in sparse]
        parts.append(SparseBank().from_factors([features[k] for k in sparse], names))
        members.append(sparse)
    given = GivenBank.of(Source.of(kernel_set, rest[held]))
    if given is not None:
        parts.append(given)
        members.append(rest[held])
        dense = np.setdiff1d(dense, rest[held])
    for plan, own in ((DenseBank(dtype), dense), (LazyBank(cache_mb, dtype), lazy)):
        if len(own):
            parts.append(plan.build(Source.of(kernel_set, own)))
            members.append(own)
    return parts[0] if len(parts) == 1 else StackedBank(parts, members)


def _factor_where_it_pays(
    source: Source, others: set[int], rtol: float, random_state: int | None
) -> list[tuple[Array, Array] | None]:
    """Factor the kernels of low rank that are not in `others`; None for the rest."""
    cap = source.n // _RANK_SHARE
    pieces: list[tuple[Array, Array] | None] = [None] * source.m
    candidates = [k for k in range(source.m) if k not in others and source.form(k) is not None]
    probe = None
    if source.n > 4 * _PROBE:
        chosen = np.random.default_rng(random_state).choice(source.n, _PROBE, replace=False)
        few = source.kernel_set.samples.take(np.sort(chosen))
        probe = Source.of(KernelSet(source.kernel_set.kernels, few, None))

    def work(start: int, stop: int) -> None:
        for k in candidates[start:stop]:
            try:
                if probe is not None:
                    # The rank on a subset is a lower bound: a cheap way to say no.
                    factor_kernel(probe, k, rtol, _PROBE // 2)
                pieces[k] = factor_kernel(source, k, rtol, cap)
            except RankExceeded:
                continue

    map_blocks(work, len(candidates), 1)
    return pieces
