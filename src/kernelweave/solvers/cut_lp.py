"""The linear program over cutting planes, kept in HiGHS and started from its last basis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np

from kernelweave.arrays import Index
from kernelweave.problem import Array
from kernelweave.solvers.cuts import Cuts

__all__ = ["CutLP", "MasterSolution"]

# A solution is believed if its two sides, computed here, agree to this part of their size.
_AGREEMENT = 1e-6


@dataclass(frozen=True)
class MasterSolution:
    """Weights that minimise r(d) + max_j cut_j(d), and the multipliers of the cuts.

    The multipliers are non-negative and sum to one; `value` is the bound they prove on the cuts'
    minimum, computed here and not by the solver.
    """

    d: Array
    multipliers: Array
    value: float


class CutLP:
    r"""Minimise :math:`s \sum_k d_k + \theta` with :math:`\theta \ge c_j - \frac12 q_j \cdot d`.

    This is SILP's linear program (Algorithm 1, with the opposite sign): on the simplex
    :math:`s = 0` and the weights sum to one, under l1 the sum is free up to `limit`. Rows enter
    one by one, and every solve starts from the basis of the one before. An answer of HiGHS counts
    only if its weights and multipliers prove each other; otherwise the program is built again and
    solved cold, and if that is no better there is no answer.

    Parameters
    ----------
    cuts : Cuts
        Where the rows come from; `drop` them here, not there.
    price : float or None
        s, or None for weights that sum to one.
    """

    def __init__(self, cuts: Cuts, price: float | None) -> None:
        self._cuts = cuts
        self._price = price
        self._limit = 1.0
        self._highs: Any = None
        self._unit = max(1e-8 * (price or 0.0), 1e-300)
        self._rows = 0

    def drop(self, positions: Index) -> None:
        """Drop cuts, from the program and from where they came."""
        if not len(positions):
            return
        inside = positions[positions < self._rows]
        if self._highs is not None and len(inside):
            self._highs.deleteRows(len(inside), (inside + 1).astype(np.int32))
            self._rows -= len(inside)
        self._cuts.drop(positions)

    def solve(self, limit: float = 1.0) -> MasterSolution | None:
        """Return the optimum, or None if HiGHS has none to offer that stands our check."""
        if self._highs is None or self._unit_is_off():
            self._build(limit)
        self._set_limit(limit)
        self._add_rows()
        answer = self._answer()
        if answer is None:
            self._build(limit)
            self._add_rows()
            answer = self._answer()
        return answer

    def _unit_is_off(self) -> bool:
        """Whether the rows have outgrown the scale in which HiGHS sees them."""
        return not 1e-4 * self._unit <= self._size() <= 1e4 * self._unit

    def _size(self) -> float:
        """Size of the latest cut; one of nearly nothing, from alpha = 0, tells no scale."""
        cuts = self._cuts
        latest = max(abs(float(cuts.constants[-1])), 0.5 * float(cuts.quads[-1].max()))
        return latest if latest > 1e-12 * self._unit else self._unit

    def _build(self, limit: float) -> None:
        """Start from nothing: no rows but that on the sum of the weights, no basis."""
        m = self._cuts.quads.shape[1]
        highs = highspy.Highs()
        for option, value in (
            ("output_flag", False),
            ("threads", 1),
            ("presolve", "off"),
            ("random_seed", 0),
            ("primal_feasibility_tolerance", 1e-9),
            ("dual_feasibility_tolerance", 1e-9),
        ):
            highs.setOptionValue(option, value)
        self._unit = self._size()
        infinite = highspy.kHighsInf
        lower = np.append(np.zeros(m), -infinite)
        highs.addVars(m + 1, lower, np.full(m + 1, infinite))
        cost = np.append(np.full(m, (self._price or 0.0) / self._unit), 1.0)
        highs.changeColsCost(m + 1, np.arange(m + 1, dtype=np.int32), cost)
        least = limit if self._price is None else -infinite
        highs.addRow(least, limit, m, np.arange(m, dtype=np.int32), np.ones(m))
        self._highs, self._rows, self._limit = highs, 0, limit

    def _set_limit(self, limit: float) -> None:
        if limit != self._limit:
            least = limit if self._price is None else -highspy.kHighsInf
            self._highs.changeRowBounds(0, least, limit)
            self._limit = limit

    def _add_rows(self) -> None:
        cuts, m = self._cuts, self._cuts.quads.shape[1]
        for j in range(self._rows, len(cuts)):
            row = np.append(0.5 * cuts.quads[j] / self._unit, 1.0)
            lower = cuts.constants[j] / self._unit
            indices = np.arange(m + 1, dtype=np.int32)
            self._highs.addRow(lower, highspy.kHighsInf, m + 1, indices, row)
        self._rows = len(cuts)

    def _run(self) -> tuple[bool, Array, Array]:
        """Let HiGHS solve: whether it says it did, the columns, and the multipliers of the rows."""
        _run_on_one_thread(self._highs)
        solution = self._highs.getSolution()
        optimal = self._highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
        return optimal, np.array(solution.col_value), np.array(solution.row_dual)

    def _answer(self) -> MasterSolution | None:
        optimal, columns, duals = self._run()
        cuts, m = self._cuts, self._cuts.quads.shape[1]
        if not optimal or len(columns) != m + 1 or len(duals) != len(cuts) + 1:
            return None
        d, multipliers = np.maximum(columns[:m], 0.0), np.maximum(duals[1:], 0.0)
        total = multipliers.sum()
        if not (np.isfinite(d).all() and np.isfinite(total) and total > 0):
            return None
        multipliers = multipliers / total
        if self._price is None:
            if not d.sum() > 0:
                return None
            d = d * (self._limit / d.sum())
        price = self._price or 0.0
        above = price * float(d.sum()) + float(cuts.values(d).max())
        most = float(np.max(0.5 * (multipliers @ cuts.quads) - price))
        reach = most if self._price is None else max(most, 0.0)
        below = float(multipliers @ cuts.constants) - self._limit * reach
        if not abs(above - below) <= _AGREEMENT * max(self._unit, abs(above)):
            return None
        return MasterSolution(d, multipliers, below)


def _run_on_one_thread(highs: Any) -> None:
    """Run HiGHS; its threads are the process's, and another user of it may have set their number.

    Then it refuses to run on one of them, while it would run on those there are.
    """
    if highs.run() == highspy.HighsStatus.kError:
        highs.setOptionValue("threads", 0)
        highs.run()
