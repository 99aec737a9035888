"""Chunking: alpha moves in small working sets, and every kernel's outputs move along with it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernelweave.bank.protocol import KernelBank, semi_definite
from kernelweave.compiled.dense_rows import copy_rectangle
from kernelweave.compiled.passes import add_outputs, add_rows
from kernelweave.compiled.threads import map_blocks
from kernelweave.problem import Array, Problem
from kernelweave.solvers.feasible import feasible_alpha
from kernelweave.solvers.inner import Point
from kernelweave.solvers.signed_qp import (
    Ends,
    SignedQP,
    intercept_of,
    mend_sum,
    signed_form,
    smo_until,
    worst_violators,
)

__all__ = ["ChunkEvaluator"]

# A chunk is solved to this part of the violation over all variables: more would be undone later.
_LOCAL = 0.1
_VIOLATION_FLOOR = 1e-13
_MOST_STEPS = 1_000_000
_SINGLE_TOL = 1e-5
_COLUMN_BLOCK = 512
# Chunks without progress after which rounding has won.
_STALLED = 50


def _diagonal(bank: KernelBank, d: Array) -> Array:
    """Diagonal of K(d), which is zero where no kernel has weight."""
    active = np.flatnonzero(d)
    return d[active] @ bank.diag(active) if len(active) else np.zeros(bank.n)


class CombinedByKernel:
    """K(d) for banks whose products are cheap, or of too many samples: kernel by kernel.

    Attributes
    ----------
    d, active, diagonal : ndarrays
        The weights, the kernels that have one, and the diagonal of K(d).
    followed : ndarray
        Kernels whose rows of g `add` brings up to date.
    """

    def __init__(self, bank: KernelBank, d: Array) -> None:
        self._bank = bank
        self.d = d
        self.active = self.followed = np.flatnonzero(d)
        self.diagonal = _diagonal(bank, d)

    def block(self, idx: Array) -> Array:
        """K(d)[idx][:, idx]."""
        return np.ascontiguousarray(self._bank.combine_block(self.d, idx))

    def add(self, idx: Array, change: Array, outputs: Array, fitted: Array) -> None:
        """Add what a change of alpha at `idx` does to the rows of g in use, and to their mix."""
        v = np.zeros(self._bank.n)
        v[idx] = change
        parts = self._bank.matvec(v, self.active)
        add_outputs(parts, self.active, self.d[self.active], outputs, fitted)


class CombinedRows:
    """K(d) for banks that work with rows: those asked for, kept until the weights change."""

    def __init__(self, bank: KernelBank, dtype: np.dtype) -> None:
        self._bank = bank
        self.dtype = dtype
        self.followed = np.empty(0, dtype=np.int64)
        # Memory that is never written is never taken.
        self._slab = np.empty((bank.n, bank.n), dtype)
        self._slot = np.full(bank.n, -1)

    def go_to(self, d: Array) -> None:
        """Be K(d) from now on."""
        self.d = d
        self.active = np.flatnonzero(d)
        self.diagonal = _diagonal(self._bank, d)
        self._slot[:] = -1
        self._used = 0

    def _slots(self, idx: Array) -> Array:
        """Places of these rows in the slab; computes those that are not there."""
        missing = idx[self._slot[idx] < 0]
        if len(missing):
            first, last = self._used, self._used + len(missing)
            self._bank.combine_rows(self.d, missing, self._slab[first:last])
            self._slot[missing] = np.arange(first, last)
            self._used = last
        return self._slot[idx]

    def block(self, idx: Array) -> Array:
        """K(d)[idx][:, idx]."""
        slots = self._slots(idx)
        out = np.empty((len(idx), len(idx)), self.dtype)

        def work(start: int, stop: int) -> None:
            copy_rectangle(self._slab, slots, idx, 1.0, out, start, stop)

        map_blocks(work, len(idx), 128, float(out.size))
        return out

    def add(self, idx: Array, change: Array, outputs: Array, fitted: Array) -> None:
        """Add what a change of alpha at `idx` does to the mix of all outputs."""
        slots = self._slots(idx)

        def work(start: int, stop: int) -> None:
            add_rows(self._slab, slots, change, fitted, start, stop)

        map_blocks(work, len(fitted), _COLUMN_BLOCK, float(len(fitted)) * len(idx))


class ChunkEvaluator:
    r"""The single-kernel problems of SILP's Algorithm 2, for piecewise-linear losses.

    Keeps the matrix :math:`g_{ki} = (K_k \alpha)_i` of all kernels. A chunk takes the `size`
    variables that violate optimality most under :math:`\hat g = \sum_k d_k g_k`, solves the dual
    over them with the others fixed, and adds what the change of alpha does to the rows of g. A
    change of the weights then costs one product :math:`d \cdot g`: nothing is started anew.

    Where the bank works with rows, those of :math:`\sum_k d_k K_k` that chunks ask for are kept
    until the weights change, chunks move :math:`\hat g` alone, and all of g follows at the end.

    It answers as :class:`~kernelweave.solvers.inner.Evaluator` does; kernels are never screened
    here, for no loss that it takes allows the proof.

    Attributes
    ----------
    n_solves, n_steps : int
        Single-kernel problems so far, and the SMO steps in them.
    n_chunks : int
        Chunks so far.
    """

    def __init__(self, problem: Problem, start: Point | None, size: int) -> None:
        self.problem = problem
        # A block, and a copy of it.
        self.size = problem.bank.square_limit(size, copies=2)
        self.n_solves = self.n_steps = self.n_chunks = 0
        shape = problem.n_tasks, problem.n
        self._alpha = feasible_alpha(problem, np.zeros(shape) if start is None else start.alpha)
        self._outputs = np.zeros((problem.m, *shape))
        if self._alpha.any():
            self._outputs += problem.bank.matvec(self._alpha)
        self._has_state = False
        self._rows: CombinedRows | None = None
        self._single_tol = _SINGLE_TOL
        self._previous = [np.empty(0, dtype=np.int64) for _ in range(problem.n_tasks)]
        programs = [problem.loss.box_qp(y, C) for y, C in zip(problem.y, problem.C, strict=True)]
        self._totals = [program.total for program in programs]
        self._forms = [signed_form(program, problem.n) for program in programs]

    def evaluate(self, d: Array, tol: float) -> Point:
        """Go on with alpha at the weights d until it owes a relative duality gap of at most tol.

        Deadlines count as in :meth:`Evaluator.evaluate`.
        """
        ended = self.problem.deadline
        if self._has_state:
            ended.check()
        combined = self._combined_at(d, tol)
        point = self._go_on(d, tol, combined)
        # Rounded rows may hide what alpha owes. From exact outputs a second look moves alpha by
        # little, and rounds as little; if that is still too much, rows are exact from now on.
        if self._is_rounded(combined) and self._most_owed(point) > tol and not ended.passed():
            point = self._go_on(d, tol, combined)
            if self._most_owed(point) > tol and not ended.passed():
                self._single_tol = np.inf
                point = self._go_on(d, tol, self._combined_at(d, tol))
        self.n_solves += self.problem.n_tasks
        return point

    def _go_on(self, d: Array, tol: float, combined: CombinedByKernel | CombinedRows) -> Point:
        problem = self.problem
        fitted, change = np.empty_like(self._alpha), np.empty_like(self._alpha)
        intercept = np.empty(problem.n_tasks)
        for t in range(problem.n_tasks):
            mixed = self._mixed(combined, t)
            state = SignedQP(*self._forms[t], self._alpha[t].copy(), mixed)
            self._solve(state, t, combined, tol)
            mend_sum(state, self._totals[t])
            change[t] = state.alpha - self._alpha[t]
            self._alpha[t], fitted[t] = state.alpha, state.fitted
            intercept[t] = intercept_of(state.ends())
            self.n_steps += state.n_steps
        self._let_follow(change, combined, fitted)
        value = problem.inner_value(d, self._alpha, fitted)
        return Point(d, self._alpha.copy(), fitted, intercept, value)

    def _is_rounded(self, combined: CombinedByKernel | CombinedRows) -> bool:
        return isinstance(combined, CombinedRows) and combined.dtype == np.float32

    def _most_owed(self, point: Point) -> float:
        """Largest relative duality gap of a task, from exact outputs."""
        tasks = zip(self._forms, point.alpha, point.fitted, strict=True)
        states = [SignedQP(*form, alpha, fitted) for form, alpha, fitted in tasks]
        return max(self._owed(state, t, state.ends()) for t, state in enumerate(states))

    def _combined_at(self, d: Array, tol: float) -> CombinedByKernel | CombinedRows:
        bank = self.problem.bank
        if not (bank.keeps_rows and bank.forms_matrix):
            return CombinedByKernel(bank, d)
        # A rough alpha needs no more than float32; g itself is in float64.
        dtype = np.dtype(np.float32 if tol >= self._single_tol else np.float64)
        if self._rows is None or self._rows.dtype != dtype:
            self._rows = CombinedRows(bank, dtype)
        self._rows.go_to(d)
        return self._rows

    def _let_follow(
        self, change: Array, combined: CombinedByKernel | CombinedRows, fitted: Array
    ) -> None:
        """Bring the rows of g up to date that the chunks have left behind."""
        behind = np.setdiff1d(np.arange(self.problem.m), combined.followed)
        if not len(behind) or not change.any():
            return
        self._outputs[behind] += self.problem.bank.matvec(change, behind)
        if not len(combined.followed):
            # The rows were rounded; their sum is not.
            for t in range(len(fitted)):
                fitted[t] = self._mixed(combined, t)

    def _mixed(self, combined: CombinedByKernel | CombinedRows, task: int) -> Array:
        active = combined.active
        mixed = np.zeros(self._outputs.shape[2])
        add_rows(self._outputs[:, task], active, combined.d[active], mixed, 0, len(mixed))
        return mixed

    def _solve(
        self, state: SignedQP, task: int, combined: CombinedByKernel | CombinedRows, tol: float
    ) -> None:
        """Solve chunk after chunk."""
        best, stalled = np.inf, 0
        while stalled < _STALLED:
            ends = state.ends()
            violation = ends[2] - ends[3]
            stalled = 0 if violation < best else stalled + 1
            best = min(best, violation)
            least = _VIOLATION_FLOOR * self.problem.decision_unit
            if violation <= least or self._owed(state, task, ends) <= tol:
                return
            if self.problem.deadline.passed():
                return
            idx = self._choose(ends, task)
            if not len(idx) or not self._chunk(state, task, idx, combined, _LOCAL * violation):
                return

    def _owed(self, state: SignedQP, task: int, ends: Ends) -> float:
        """Relative duality gap of alpha at these weights."""
        y, C, loss = self.problem.y[task], self.problem.C[task], self.problem.loss
        b = intercept_of(ends)
        losses = float(np.sum(loss.value(y, state.fitted + b, C))) + loss.alpha_sum * b
        quadratic = 0.5 * float(state.alpha @ state.fitted)
        above = losses + quadratic
        below = -float(np.sum(loss.conjugate(y, state.alpha, C))) - quadratic
        return (above - below) / self.problem.unit(above, below)

    def _choose(self, ends: Ends, task: int) -> Array:
        """All variables that can still move, or those of them that violate most."""
        up, low, top, bottom = ends
        open_ones = np.flatnonzero((up >= bottom) | (low <= top))
        if len(open_ones) > self.size:
            # A pair has no room for old ones.
            previous = self._previous[task] if self.size > 2 else np.empty(0, dtype=np.int64)
            chosen = worst_violators(ends, previous, self.size)
            self._previous[task] = chosen
            return np.sort(chosen)
        # Nearly all of them: then all, and the chunk is the whole problem.
        whole = len(open_ones) > 0.9 * len(up) and len(up) <= self.size
        return np.arange(len(up)) if whole else open_ones

    def _chunk(
        self,
        state: SignedQP,
        task: int,
        idx: Array,
        combined: CombinedByKernel | CombinedRows,
        tol: float,
    ) -> bool:
        """Solve over the variables `idx`; returns whether any of them moved."""
        alpha, fitted = state.alpha[idx], state.fitted[idx]
        steps, _ = smo_until(
            self.problem.deadline,
            combined.block(idx),
            combined.diagonal[idx],
            fitted,
            state.pos[idx],
            state.neg[idx],
            state.lo[idx],
            state.hi[idx],
            alpha,
            tol,
            _MOST_STEPS,
            0,
        )
        self.n_chunks += 1
        state.n_steps += steps
        moved = np.flatnonzero(alpha != state.alpha[idx])
        if not len(moved):
            return False
        who, change = idx[moved], alpha[moved] - state.alpha[idx[moved]]
        state.alpha[who] = alpha[moved]
        combined.add(who, change, self._outputs[:, task], state.fitted)
        return True

    def quad(self, point: Point) -> Array:
        """q_k(alpha) for all kernels; `point` is the one evaluated last."""
        self._has_state = True
        quad = np.einsum("ktn,tn->k", self._outputs, point.alpha)
        return semi_definite(quad, point.alpha, self.problem.bank, np.arange(self.problem.m))

    def curvature_parts(self, point: Point) -> tuple[Callable[..., Array], Callable[..., Array]]:
        """What :func:`~kernelweave.solvers.curvature.curvature_root` asks for at this point."""

        def products(task: int, samples: Array, kernels: Array) -> Array:
            return self._outputs[:, task][np.ix_(kernels, samples)]

        def block(d: Array, samples: Array, dtype: type) -> Array:
            if self._rows is not None and self._rows.d is d:
                return self._rows.block(samples).astype(dtype)
            return self.problem.bank.combine_block(d, samples).astype(dtype)

        return products, block
