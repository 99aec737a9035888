"""From what an estimator accepts to operators: its kernels on the samples, and how to keep them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from kernelweave.arrays import Array
from kernelweave.compiled.blocks import SHARED_CACHE_ENTRIES
from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.batch import RBFBatch
from kernelweave.kernels.families import resolve_items
from kernelweave.kernels.samples import as_samples
from kernelweave.kernels.strings.positions import PositionalFactor
from kernelweave.memory import FEW_SAMPLES, cache_bytes, require_bytes
from kernelweave.operators.base import KernelOperator
from kernelweave.operators.computed import ComputedOperator
from kernelweave.operators.dense import DenseOperator, dense_bytes
from kernelweave.operators.factors import (
    FactorOperator,
    Pivots,
    RankExceeded,
    factor_kernel,
    raw_factor,
)
from kernelweave.operators.features import FeatureOperator, FeatureRows
from kernelweave.operators.gaussians import GaussianOperator
from kernelweave.operators.sampled import SampledOperator, gaussian_columns
from kernelweave.operators.sequences import SequenceOperator
from kernelweave.operators.stacked import StackedOperator
from kernelweave.validation import unknown_name

BANKS = ("auto", "dense", "factored", "lazy", "positional", "sparse")

# A factor of rank r costs 2 r multiplications a sample and product, a dense row n: below n/4 the
# factor wins clearly, and what it costs to find it is small beside a single dense matrix.
_RANK_SHARE = 4
# Samples on which ranks are probed, where there are more than four times as many: half as many
# pivots there take at most a sixteenth of the n^3 / 32 multiplications after which a factor is
# given up.
_PROBE = 128
# A Gaussian kernel is computed as fast as it is read from memory while there are at most so many
# columns for each kernel on the same columns: the others cost an exponential alone. Fits of five
# kernels on columns of their own (n = 500 to 4,000) are faster so at 10 columns, slower at 30.
_GAUSSIAN_COLUMNS = 10
# Up to so many kernels, calls between several forms of storage take longer than passes over
# matrices in the cache: the default ones fit 300 samples in 6 instead of 10 ms. With matrices of
# 403 kernels a fit of 60 samples took 47 ms instead of 39.
_FEW_KERNELS = 32
# A pass reads every sparse feature twice, and looking one up takes as long as reading some four
# entries of a matrix from front to back: features win below n^2 / 8 of them.
_FEATURE_COST = 8
# Numbers for each kernel and sample that the smallest fit takes beside two rows: the diagonals, the
# products with alpha, and what is computed from these.
_NUMBERS = 4


def bind_kernels(
    kernels: Any, X: Any, normalize: Any = "trace"
) -> ComputedOperator | GaussianOperator | StackedOperator:
    """Bind whatever an estimator's `kernels` accepts to the samples `X`.

    Parameters
    ----------
    kernels : Kernel, Family, RBFBatch, str, or list of these
        What the user asked for.
    X : array, CSR matrix, DataFrame or Samples
        The training samples.
    normalize : {"trace", "diagonal", "center"}, None or tuple of these, default="trace"
        The normalisation.

    Examples
    --------
    >>> from kernelweave.kernels import Linear
    >>> X = [[0.0, 1.0], [2.0, 1.0]]
    >>> bind_kernels(RBFBatch([[0], [1]], [1.0, 1.0]), X)
    GaussianOperator(n=2, m=2, Normalization('trace'))
    >>> list(bind_kernels([RBFBatch([[1]], [1.0]), Linear()], X).names)
    ['rbf(gamma=1) on column 1', 'linear']
    """
    samples = as_samples(X)
    items = resolve_items(kernels, samples)
    sizes = [item.m if isinstance(item, RBFBatch) else 1 for item in items]
    ends = np.cumsum(sizes)
    parts: list[Any] = []
    members: list[Array] = []
    ordinary = {i: item for i, item in enumerate(items) if isinstance(item, Kernel)}
    if ordinary:
        # All in one operator: they share what they compute, and no two get the same name.
        parts.append(ComputedOperator(list(ordinary.values()), samples, normalize))
        members.append(ends[list(ordinary)] - 1)
    for item, size, end in zip(items, sizes, ends, strict=True):
        if isinstance(item, RBFBatch):
            parts.append(GaussianOperator(item, samples, normalize))
            members.append(np.arange(end - size, end))
    return _stacked(parts, members)


def storage_dtype(tol: float) -> str:
    """Return the storage type that a relative gap of `tol` allows.

    float32 rounds kernel values at 6e-8. At tolerances of 1e-4 and above that is far below what
    the fit itself leaves; the certificate counts it, and the fit is repeated on float64 kernels
    if it should matter after all.
    """
    return "float32" if tol >= 1e-4 else "float64"


def build_bank(
    spec: Any,
    kernels: KernelOperator,
    *,
    cache_mb: float = 1000,
    tol: float = 1e-3,
    random_state: int | None = None,
    stored: bool = False,
) -> KernelOperator:
    """Return kernels on the training samples in the form that an estimator was asked for.

    Parameters
    ----------
    spec : {"auto", "dense", "lazy", "factored", "sparse", "positional"}, or with ``build(kernels)``
        "auto" keeps weighted degree kernels by their sequences ("positional"), kernels with at
        most n^2 / 8 sparse features by these ("sparse"), computes Gaussian kernels that share
        columns, or read few of them, in every pass, factors every other kernel whose rank is below
        n/4 (probed on a random subset first), keeps the rest dense while they fit in `cache_mb`,
        and otherwise takes sparse features if there are any, computes Gaussian kernels in every
        pass, or rows on demand. Matrices the user holds of just these samples cost nothing and
        stay dense. Up to 32 kernels, only some of which are Gaussian, all stay dense where their
        matrices stay in the cache.
    kernels : ComputedOperator, GaussianOperator or StackedOperator
        The kernels on the training samples. Those of a batch are never stored unless "dense" or
        "factored" asks for it.
    cache_mb : float
        Megabytes for matrices or cached rows; where memory is short, half of what there is.
    tol : float
        Relative gap the fit aims at: decides the storage type and the factors' trace error.
    random_state : int or None
        Draws the subset on which ranks are probed.
    stored : bool
        Whether passes over the kernels are taken so often, as along a path, that "auto" keeps
        Gaussian kernels as it does others, and all as matrices if these stay in the cache.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.kernels import Polynomial
    >>> X = np.linspace(-1, 1, 100)[:, None]
    >>> type(build_bank("auto", ComputedOperator.build([Polynomial(2)], X))).__name__
    'FactorOperator'
    """
    if getattr(spec, "builds_any_set", False):
        return spec.build(kernels)
    if isinstance(kernels, StackedOperator):
        more: Any = {"tol": tol, "random_state": random_state, "stored": stored}
        parts = [build_bank(spec, part, cache_mb=cache_mb, **more) for part in kernels.parts]
        return StackedOperator(parts, kernels.members)
    if hasattr(spec, "build"):
        return spec.build(kernels)
    if spec not in BANKS:
        raise unknown_name("bank", spec, BANKS)
    if not cache_mb > 0:
        raise InvalidInputError(f"cache_mb must be > 0; got {cache_mb!r}.")
    dtype = storage_dtype(tol)
    rtol = float(np.clip(1e-3 * tol, 1e-12, 1e-6))
    if isinstance(kernels, GaussianOperator) and spec in ("auto", "lazy"):
        # Evaluating these kernels takes little longer than reading them from memory would.
        built: Any = kernels.in_type(dtype)
    elif isinstance(kernels, ComputedOperator) and spec == "auto":
        built = _automatic(kernels, cache_mb, dtype, rtol, random_state, stored)
    else:
        plans: dict[str, Callable[[Any], KernelOperator]] = {
            "dense": partial(DenseOperator.of, dtype=dtype),
            "lazy": partial(_nothing_stored, dtype=dtype),
            "factored": partial(FactorOperator.of, rtol=rtol),
            "positional": SequenceOperator.of,
            "sparse": FeatureOperator.of,
        }
        built = plans[spec](kernels)
    forms = built.parts if isinstance(built, StackedOperator) else (built,)
    if kernels.n > FEW_SAMPLES:
        # Once for all of them: to ask takes a part of the time of a small fit.
        room = cache_bytes(float("inf"))
        for part in forms:
            part.__dict__.setdefault("work_bytes", room)
    for part in dict.fromkeys((*forms, built)):
        part.cache_mb = cache_mb
        if spec == "lazy" or part.computes_rows:
            part.work_bytes = min(part.work_bytes, 1e6 * cache_mb)
    return built


def _automatic(
    kernels: ComputedOperator,
    cache_mb: float,
    dtype: str,
    rtol: float,
    random_state: int | None,
    stored: bool,
) -> KernelOperator:
    n, m = kernels.n, kernels.m
    kernels.learn(range(m))
    factors = [kernels.thin_factor(k) for k in range(m)]
    form = np.full(m, "dense", dtype=object)
    for k, factor in enumerate(factors):
        if isinstance(factor, PositionalFactor):
            form[k] = "positional"
        elif isinstance(factor, FeatureRows) and _FEATURE_COST * factor.nnz <= n**2:
            form[k] = "sparse"
    in_cache = np.dtype(dtype).itemsize * m * n**2 <= 8 * SHARED_CACHE_ENTRIES
    most = 0 if stored else _GAUSSIAN_COLUMNS
    gaussian = _gaussians(kernels, np.flatnonzero(form == "dense"), most)
    small = in_cache and m <= _FEW_KERNELS and 0 < len(gaussian) < np.sum(form != "positional")
    if not small:
        form[gaussian] = "gaussian"
    pieces: dict[int, Pivots] = {}
    # Matrices that stay in the cache are added up quicker than sums of factors are formed, with r
    # multiplications for each entry.
    if not (small or (stored and in_cache)):
        candidates = np.flatnonzero(form == "dense")
        pieces = _factor_where_it_pays(kernels, candidates, rtol, random_state)
    form[list(pieces)] = "factored"
    computed = [
        k for k in np.flatnonzero(form == "dense").tolist() if kernels.given_matrix(k) is None
    ]
    dtype = kernels.storage(dtype, computed)
    if computed and (
        len(computed) * n**2 * np.dtype(dtype).itemsize > 1e6 * cache_mb
        or dense_bytes(n, len(computed), dtype) > cache_bytes(float("inf"))
    ):
        known = [isinstance(factors[k], FeatureRows) for k in computed]
        form[computed] = np.where(known, "sparse", "lazy")
        form[_gaussians(kernels, np.flatnonzero(form == "lazy"), np.inf)] = "gaussian"
    return _made(kernels, form, dtype, pieces, factors, rtol)


def _made(
    kernels: ComputedOperator,
    form: Array,
    dtype: str,
    pieces: dict[int, Pivots],
    factors: Any = (),
    rtol: float = 0.0,
) -> Any:
    """Make an operator of the kernels of each form, and put them side by side."""
    members: dict[str, Array] = {name: np.flatnonzero(form == name) for name in np.unique(form)}
    if "gaussian" in members:
        # Those on the same columns, which share them, follow each other.
        own = members["gaussian"]
        members["gaussian"] = own[np.argsort(kernels.sharing(own), kind="stable")]
    makers: dict[str, Callable[[ComputedOperator], KernelOperator]] = {
        "factored": lambda few: FactorOperator(
            [pieces[k] for k in members["factored"]], few.names, few, rtol
        ),
        "positional": lambda few: SequenceOperator(
            [factors[k] for k in members["positional"]], few.names
        ),
        "sparse": lambda few: FeatureOperator([factors[k] for k in members["sparse"]], few.names),
        "gaussian": lambda few: GaussianOperator.of(few).in_type(dtype),
        "dense": partial(DenseOperator.of, dtype=dtype),
        "lazy": partial(computed_rows, dtype=dtype),
    }
    parts, used = [], [name for name in makers if name in members]
    for name in used:
        parts.append(makers[name](kernels.select(members[name])))
    return _stacked(parts, [members[name] for name in used])


def computed_rows(kernels: SampledOperator, dtype: str) -> KernelOperator:
    """Return kernels whose rows are computed in that type, or in float64 if they do not fit in it.

    If the smallest fit has no room, raises `MemoryBudgetError`.
    """
    require_bytes(
        (2.0 * np.dtype(dtype).itemsize + 8.0 * _NUMBERS) * kernels.m * kernels.n,
        f"two rows of {kernels.m} kernels on {kernels.n} samples, and products with them,",
        kernels=kernels.m,
    )
    return kernels.in_type(kernels.storage(dtype, range(kernels.m), on_the_way=True))


def _nothing_stored(kernels: ComputedOperator, dtype: str) -> KernelOperator:
    """Gaussian kernels share their distances in every pass, rows of the others are computed."""
    form = np.full(kernels.m, "lazy", dtype=object)
    form[_gaussians(kernels, range(kernels.m), np.inf)] = "gaussian"
    return _made(kernels, form, dtype, {})


def _stacked(parts: list[Any], members: list[Array]) -> Any:
    """Return the only part if it holds the kernels in their order."""
    if len(parts) == 1 and np.all(np.diff(members[0]) == 1):
        return parts[0]
    return StackedOperator(parts, members)


def _gaussians(kernels: ComputedOperator, candidates: Iterable[int], most: float) -> Array:
    """Return the Gaussian kernels that read at most so many columns each, shared among them."""
    alike: dict[Any, list[int]] = {}
    for k in candidates:
        found = gaussian_columns(kernels, k)
        if found is not None:
            alike.setdefault((found[1], tuple(found[2])), []).append(k)
    few = [own for (_, columns), own in alike.items() if len(columns) <= most * len(own)]
    return np.array([k for own in few for k in own], dtype=np.int64)


def _factor_where_it_pays(
    kernels: ComputedOperator, among: Array, rtol: float, random_state: int | None
) -> dict[int, Pivots]:
    """Factor the kernels of low rank among these."""
    cap = kernels.n // _RANK_SHARE
    pieces: dict[int, Pivots] = {}
    candidates = [
        k for k in among if kernels.formula(k) is not None or kernels.dense_features(k) is not None
    ]
    probe, raw = None, kernels.raw()
    if kernels.n > 4 * _PROBE:
        chosen = np.random.default_rng(random_state).choice(kernels.n, _PROBE, replace=False)
        few = kernels.samples.take(np.sort(chosen))
        probe = kernels.raw(few)

    def work(start: int, stop: int) -> None:
        for k in candidates[start:stop]:
            try:
                features = kernels.dense_features(k)
                if probe is not None and (features is None or features.shape[1] > cap):
                    # The rank on a subset is a lower bound: a cheap way to say no.
                    raw_factor(probe, k, rtol, _PROBE // 2)
                pieces[k] = factor_kernel(kernels, k, rtol, cap, raw)
            except RankExceeded:
                continue

    # As if all had a rank of about sqrt(8 n): their ranks are not known before.
    map_blocks(work, len(candidates), 1, 4.0 * len(candidates) * kernels.n**2)
    return pieces
