"""Kernels evaluated on samples as they are asked for, normalised: what an estimator keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse

from kernelweave.arrays import Array
from kernelweave.compiled.blocks import STACK_ENTRIES
from kernelweave.compiled.dense_rows import fits_float32
from kernelweave.compiled.threads import rows_of
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import ElementwiseForm, Kernel
from kernelweave.kernels.evaluate import NotFiniteError, Plan, evaluate_stack
from kernelweave.kernels.families import resolve
from kernelweave.kernels.names import unique_names
from kernelweave.kernels.normalize import Normalization, ScaledFactor, Scaling, Target
from kernelweave.kernels.samples import Samples, as_samples
from kernelweave.operators.base import Which, kernel_indices, kernel_runs, sample_indices
from kernelweave.operators.bounds import ErrorBound, largest_error, rounding_error
from kernelweave.operators.features import FeatureRows
from kernelweave.operators.sampled import Rows, SampledOperator, check_kernels
from kernelweave.validation import require_kind

_FEWEST_ROWS = 64  # Whose means are taken at a time: each time all samples are read for them.
_STATE = ("kernels", "samples", "normalization", "names", "steps")


class ComputedOperator(SampledOperator):
    """Several bound kernels between samples, on a common scale; nothing is stored.

    Parameters
    ----------
    kernels : sequence of Kernel
        Kernels bound to `samples`.
    samples : Samples
        The training samples.
    normalize : {"trace", "diagonal", "center"}, None or tuple of these, default="trace"
        The normalisation; its constants are learnt from the training samples when first needed.

    Attributes
    ----------
    n, m : int
        Numbers of right samples and kernels.
    names : list of str
        One readable, unique name for each kernel.
    steps : list of NormalizationStep
        What the normalisation does, in order.

    Examples
    --------
    >>> from kernelweave.kernels import Linear, RBF
    >>> kernels = ComputedOperator.build([Linear(), RBF(width=1)], [[1.0], [3.0]])
    >>> kernels.names
    ['linear', 'rbf(width=1)']
    >>> kernels.block([0]).round(3)
    array([[[0.2  , 0.6  ]],
    <BLANKLINE>
           [[1.   , 0.135]]])
    >>> kernels.against([[2.0]]).block(columns=[1], kernels=[0])
    array([[[1.2]]])
    """

    keeps_rows = computes_rows = True
    # Relative errors of float32 values, where these are what is computed.
    _unit: Array | None = None
    # Samples, and what they are seen through some column blocks, those asked for last.
    _view: tuple[Samples, tuple[Any, ...], Samples] | None = None

    def __init__(
        self, kernels: Sequence[Kernel], samples: Samples, normalize: Any = "trace"
    ) -> None:
        self.kernels = list(kernels)
        self.samples = samples
        self.normalization = Normalization.parse(normalize)
        self.names: list[str] = unique_names(self.kernels)
        self.steps = self.normalization.steps(len(self.kernels))
        self._reset()

    def _reset(self) -> None:
        self.m, self.only_scales = len(self.kernels), self.normalization.pure_scaling
        # The places of these kernels among those that the steps know.
        self._places = list(range(self.m))
        # The two sides; None stands for all training samples.
        self._left: Rows | None = None
        self._right: Rows | None = None
        # By place, which kernels the steps have learnt, and what they make of the training samples.
        self._learnt: set[int] = set()
        self._scalings: dict[int, Scaling] = {}
        self._plan: tuple[list[int], Plan] | None = None

    @classmethod
    def build(cls, kernels: Any, X: Any, normalize: Any = "trace") -> ComputedOperator:
        """Bind whatever an estimator's `kernels` accepts to the samples `X`."""
        samples = as_samples(X)
        return cls(resolve(kernels, samples), samples, normalize)

    def __getstate__(self) -> dict[str, Any]:
        state = {name: getattr(self, name) for name in _STATE}
        if self._places != list(range(self.m)):
            # The constants of some of the kernels are learnt again.
            state["steps"] = self.normalization.steps(self.m)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({name: state[name] for name in _STATE})
        self._reset()

    def _after_load(self) -> None:
        check_kernels(self.kernels, self.samples, self.names)
        require_kind("the normalization", self.normalization, Normalization)
        asked = [type(step) for step in self.normalization.steps(0)]
        require_kind("the steps of the normalization", self.steps, list)
        if [type(step) for step in self.steps] != asked:
            raise InvalidInputError(f"the steps of {self.normalization!r} are others.")
        for step in self.steps:
            step.check(self.m, self.samples.n)
        self._reset()

    def _side(self, new: Samples) -> Rows:
        return Rows(new)

    def select(self, kernels: Array) -> ComputedOperator:
        """Return some of the kernels; what their normalisation learns is shared."""
        chosen = kernel_indices(kernels, self.m).tolist()
        return self._but(
            kernels=[self.kernels[k] for k in chosen],
            names=[self.names[k] for k in chosen],
            m=len(chosen),
            _places=[self._places[k] for k in chosen],
            _plan=None,
            _unit=None if self._unit is None else self._unit[chosen],
        )

    def in_type(self, dtype: str) -> ComputedOperator:
        """See `SampledOperator`; the error of float32 is measured on a few rows, times four."""
        out = self._but(dtype=dtype, _unit=None)
        if dtype != "float64":
            out._unit = np.maximum(4.0 * largest_error(self, out), 2.0**-24)
        return out

    def error(self, v: Array, d: Array) -> ErrorBound:
        if self._unit is None:
            return ErrorBound.none(self.m)
        return rounding_error(v, d, self.diagonal(), self._unit)

    def pack(self, idx: Array) -> Rows:
        """Return training samples as they travel, for `of_rows` there."""
        self.learn(range(self.m))
        scalings = {}
        if not self.only_scales:
            scalings = {place: self._training(k).take(idx) for k, place in enumerate(self._places)}
        return Rows(Samples(self.samples.take(idx).native), scalings)

    def without_samples(self) -> ComputedOperator:
        self.learn(range(self.m))
        # Samples bring along what steps that centre know of them.
        less: dict[str, Any] = {} if self.only_scales else {"steps": [], "_scalings": {}}
        return self._but(samples=Samples(self.samples.take([0]).native), **less)

    def block(self, rows: Which = None, columns: Which = None, kernels: Which = None) -> Array:
        chosen = kernel_indices(kernels, self.m).tolist()
        self.learn(chosen)
        left = _positions(rows, self.shape[0])
        right = _positions(columns, self.n)
        new = self._left is not None and self._left.scalings is None
        if new and self._right is None and any(step.needs_means for step in self.steps):
            return self._centred_block(chosen, left, right)
        mine, theirs = self._samples(self._left, left), self._samples(self._right, right)
        kind, plan = np.dtype(self.dtype), self._planned(chosen)
        try:
            values = plan.evaluate(mine, theirs, kind)
        except NotFiniteError:
            if kind == np.float64:
                raise
            # In float32 numbers may overflow on the way to values that do not.
            values = plan.evaluate(mine, theirs, np.float64)
        same = self._left is self._right and left is right
        for own, k in zip(values, chosen, strict=True):
            a = self._scaling(self._left, k, mine, left)
            b = a if same else self._scaling(self._right, k, theirs, right)
            a.normalise(own, b)
        return values.astype(kind, copy=False)

    def _centred_block(self, kernels: list[int], left: Any, right: Any) -> Array:
        """New samples against training samples, all of which their means are taken over."""
        new = self._samples(self._left, left)
        out = np.empty((len(kernels), new.n, self.n if right is None else len(right)), self.dtype)
        height = rows_of(self.n * len(kernels), STACK_ENTRIES)
        for start in range(0, new.n, height):
            part = new.rows(start, start + height)
            # In float64: a mean over many samples is taken off, of which little may be left.
            whole = self._planned(kernels).evaluate(part, self.samples)
            for k, own, target in zip(kernels, whole, out[:, start : start + height], strict=True):
                self._new_scaling(k, part, own).normalise(own, self._training(k))
                target[:] = own if right is None else own[:, right]
        return out

    def _samples(self, side: Rows | None, index: Any) -> Samples:
        samples = self.samples if side is None else side.samples
        return samples if index is None else samples.take(index)

    # What the normalisation knows of samples

    def _scaling(self, side: Rows | None, k: int, samples: Samples, index: Any) -> Scaling:
        """What is known of some samples of one side."""
        if self.only_scales:
            return self._training(k)  # One number, whichever the samples.
        if side is None:
            known = self._training(k)
        elif side.scalings is not None:
            known = side.scalings[self._places[k]]
        else:
            return self._new_scaling(k, samples)
        return known if index is None else known.take(index)

    def _training(self, k: int) -> Scaling:
        place = self._places[k]
        if place not in self._scalings:
            self._scalings[place] = self._normalised(k, Scaling.none(self.samples.n))
        return self._scalings[place]

    def _normalised(self, k: int, target: Target, stage: int | None = None) -> Target:
        """What the first steps, or all of them, make of the training samples."""
        place = self._places[k]
        for step in self.steps[:stage]:
            target = step.on(place, target, step.sides.get(place))
        return target

    def _new_scaling(
        self, k: int, new: Samples, values: Array | None = None, centred: bool = True
    ) -> Scaling:
        """What is known of new samples, by their `values` against the training samples if there.

        Without `centred` steps that centre are left out.
        """
        steps = [step for step in self.steps if centred or not step.needs_means]
        if values is None and any(step.needs_means for step in steps):
            values = evaluate_stack([self.kernels[k]], new, self.samples)[0]
        # Samples that a given matrix got after the fit have no diagonal: only where a step asks.
        needed = any(step.needs_diagonal for step in steps)
        raw = self._raw_diagonal(k, new) if needed else np.zeros(new.n)
        place, n = self._places[k], self.samples.n
        mine, theirs, means = Scaling.none(new.n), Scaling.none(n), None
        for step in steps:
            if values is not None and step.needs_means:
                means = mine.product(values.__matmul__, np.full(n, 1.0 / n), theirs)
            side = step.side(self.names[k], mine.diagonal(raw), means)
            mine = step.on(place, mine, side)
            theirs = step.on(place, theirs, step.sides.get(place))
        return mine

    def diagonal(self, kernels: Which = None) -> Array:
        chosen = kernel_indices(kernels, self.m).tolist()
        self.learn(chosen)
        out = np.empty((len(chosen), self.n))
        samples = self._samples(self._right, None)
        for row, k in zip(out, chosen, strict=True):
            own = self._scaling(self._right, k, samples, None)
            row[:] = own.diagonal(self._raw_diagonal(k, samples))
        return out

    def weighted(
        self, d: ArrayLike, rows: Which = None, columns: Which = None, out: Array | None = None
    ) -> Array:
        """See :class:`KernelOperator`; kernels that are only scaled are added up as computed."""
        if not self.only_scales:
            return super().weighted(d, rows, columns, out)
        weights = np.asarray(d, dtype=np.float64)
        chosen = np.flatnonzero(weights).tolist()
        scaled = weights[chosen] * self.scale(chosen)
        left = self._samples(self._left, _positions(rows, self.shape[0]))
        right = self._samples(self._right, _positions(columns, self.n))
        out = self._sum_memory(left.n, right.n) if out is None else out
        return self._planned(chosen).weighted(scaled, left, right, out)

    # What representations are made from

    def sharing(self, kernels: Array) -> list[int]:
        numbers: dict[Any, int] = {}
        return [numbers.setdefault(self.kernels[k].path, len(numbers)) for k in kernels]

    def storage(self, dtype: str, kernels: Any, on_the_way: bool = False) -> str:
        if dtype == "float64":
            return dtype
        for k in kernels:
            core = self.kernels[k].core
            known = self.normalization.scales and core.squared_rate is not None
            numbers = [] if known else [self.diagonal(np.array([k]))]
            if on_the_way:
                form = core.form()
                rate = form.p0 if form is not None and form.ingredient == "sqdist" else 1.0
                numbers += [np.array([rate]), self._raw_diagonal(k, self.samples)]
            if not all(map(fits_float32, numbers)):
                return "float64"
        return dtype

    def _seen(self, k: int) -> tuple[Kernel, Samples]:
        """Return the core of kernel k and the training samples as it sees them."""
        kernel, view = self.kernels[k], self._view
        if view is None or view[0] is not self.samples or view[1] != kernel.path:
            # Kernels on the same columns are asked for one after the other.
            seen = self.samples.through(kernel.path)
            view = self._view = self.samples, kernel.path, seen
        return kernel.core, view[2]

    def given_matrix(self, k: int) -> tuple[Array, Array, float] | None:
        core, samples = self._seen(k)
        given = core.given if self.only_scales else None
        if given is None or given.rate is not None:
            return None
        return given.matrix, np.asarray(core.ids(samples)), float(self.scale([k])[0])

    def formula(self, k: int) -> tuple[ElementwiseForm, Array] | None:
        core, samples = self._seen(k)
        form = core.form()
        if form is None or samples.is_sparse:
            return None
        return form, np.ascontiguousarray(samples.array())

    def thin_factor(self, k: int, stage: int | None = None) -> ScaledFactor | None:
        # After the first steps of the normalisation, or all of them.
        core, samples = self._seen(k)
        found = core.features(samples)
        factor: Any = FeatureRows.of(found) if issparse(found) else found
        if not isinstance(factor, ScaledFactor):
            return None
        if stage is None:
            self.learn([k])
        scaling = self._normalised(k, factor.scaling, stage)
        return replace(factor, scaling=scaling)  # type: ignore[type-var]

    def dense_features(self, k: int) -> Array | None:
        core, samples = self._seen(k)
        features = core.features(samples)
        return features if isinstance(features, np.ndarray) else None

    def raw(self, samples: Samples | None = None) -> ComputedOperator:
        """See :class:`KernelOperator`; as if they were bound to other samples, if these are given.

        The numbers and the names of the kernels stay.
        """
        return self._but(
            samples=self.samples if samples is None else samples,
            steps=[],
            normalization=Normalization(),
            only_scales=True,
            _scalings={},
            _learnt=set(self._places),
        )

    def normalised(self, k: int, target: Target) -> Target:
        self.learn([k])
        return self._normalised(k, target)

    # The constants of the normalisation

    def scale(self, kernels: list[int]) -> Array:
        """The factors of kernels that normalising only scales."""
        self.learn(kernels)
        factors = np.ones(len(kernels))
        for step in self.steps:
            factors *= step.scale[[self._places[k] for k in kernels]]  # type: ignore[attr-defined]
        return factors

    def coefficients(self, k: int, v: Array) -> tuple[Array, Array, float]:
        """Return c, s of the training samples and b, see `Scaling.coefficients`."""
        self.learn([k])
        c, b = self._training(k).coefficients(v)
        return c, self._training(k).scale, b

    def new_roots(self, k: int, new: Samples) -> Array:
        """What new samples are multiplied by, where centring comes after all that divides."""
        return self._new_scaling(k, new, centred=False).scale

    def _planned(self, kernels: list[int]) -> Plan:
        """The plan for these kernels; solvers ask for the same ones again and again."""
        known = self._plan
        if known is None or known[0] != kernels:
            known = self._plan = (kernels, Plan([self.kernels[k] for k in kernels]))
        return known[1]

    def learn(self, kernels: Sequence[int]) -> None:
        """Learn the constants of the normalisation for these kernels, where they are not known."""
        known = all(side and side.scalings for side in (self._left, self._right))
        new = [k for k in kernels if self._places[k] not in self._learnt]
        if known or not new:
            return
        for stage, step in enumerate(self.steps):
            if not (missing := [k for k in new if not step.has(self._places[k])]):
                continue
            if stage == 0 and not step.needs_means:
                units = {k for k in missing if self.kernels[k].core.squared_rate is not None}
                step.learn_units([self._places[k] for k in missing if k in units], self.samples.n)
                missing = [k for k in missing if k not in units]
            means = self._stage_means(missing, stage) if step.needs_means else repeat(None)
            for k, own in zip(missing, means, strict=False):
                step.learn(self._places[k], self.names[k], self._stage_diagonal(k, stage), own)
        if not self.normalization.scales:
            for k in new:
                diagonal = self._stage_diagonal(k, len(self.steps))
                self.normalization.check_size(self.names[k], diagonal)
        self._learnt.update(self._places[k] for k in new)

    def _raw_diagonal(self, k: int, samples: Samples) -> Array:
        """k(x, x) before normalisation, all finite."""
        core, seen = self._seen(k) if samples is self.samples else (self.kernels[k], samples)
        with np.errstate(over="ignore", invalid="ignore"):
            diagonal = np.asarray(core.diagonal(seen), dtype=np.float64)
        if not np.isfinite(diagonal).all():
            raise NotFiniteError(self.names[k])
        return diagonal

    def _stage_diagonal(self, k: int, stage: int) -> Array:
        """The diagonal of the training samples after the first steps."""
        raw, n = self._raw_diagonal(k, self.samples), self.samples.n
        return self._normalised(k, Scaling.none(n), stage).diagonal(raw) if stage else raw

    def _stage_means(self, kernels: list[int], stage: int) -> Array:
        """Row means over the training samples after the first steps, in bounded memory."""
        n = self.samples.n
        mean = np.full(n, 1.0 / n)
        means, computed = np.empty((len(kernels), n)), []
        for i, k in enumerate(kernels):
            factor = self.thin_factor(k, stage)
            if factor is None:
                computed.append(i)
            else:
                means[i] = factor.product(mean)
        for run in kernel_runs(len(computed), _FEWEST_ROWS * n):
            places = [computed[i] for i in run]
            part = [kernels[i] for i in places]
            before = [self._normalised(k, Scaling.none(n), stage) for k in part]
            height = rows_of(n * len(part), STACK_ENTRIES)
            for start in range(0, n, height):
                idx = np.arange(start, min(start + height, n))
                values = self._planned(part).evaluate(self.samples.take(idx), self.samples)
                for i, own, scaling in zip(places, values, before, strict=True):
                    means[i, idx] = scaling.take(idx).product(own.__matmul__, mean, scaling)
        return means


def _positions(idx: Any, n: int) -> Array | None:
    return None if idx is None else sample_indices(idx, n)
