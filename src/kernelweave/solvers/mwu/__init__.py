"""MWUMKL: matrix multiplicative weights, O(m n) memory, no Gram matrix and no inner solver."""

from __future__ import annotations

from kernelweave.solvers.mwu.solver import MWU

__all__ = ["MWU"]
