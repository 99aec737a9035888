"""The types of arrays, for the whole library."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Numbers in double precision: what solvers compute with.
Array = NDArray[np.float64]
# Places in other arrays: kernels, samples.
Index = NDArray[np.intp]
# A yes or no for each entry.
Flags = NDArray[np.bool_]
# Kernel values in the precision that they are kept in, labels, and whatever a user hands in.
AnyArray = NDArray[Any]
