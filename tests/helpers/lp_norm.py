"""The lp norm, written down a second time."""

from __future__ import annotations

import numpy as np

__all__ = ["norm"]


def norm(x, p):
    """The largest entry is taken out first: powers neither overflow nor underflow."""
    size = np.abs(np.asarray(x, dtype=np.float64))
    top = float(size.max(initial=0.0))
    return top * float(np.sum((size / top) ** p) ** (1.0 / p)) if top > 0 else 0.0
