"""The types of arrays, for the whole library."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Numbers: float64 in solvers, kernel values in the precision that they are kept in, and what a user
# hands in.
Array = NDArray[Any]
# Places in other arrays: kernels, samples.
Index = NDArray[np.intp]
# A yes or no for each entry.
Flags = NDArray[np.bool_]
