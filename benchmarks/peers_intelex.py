"""scikit-learn-intelex as a contestant of ``peers.py``: its SVC with one Gaussian kernel.

With a given matrix it hands the work back to scikit-learn, so there is nothing to compare.
"""

from __future__ import annotations

import peers_sklearn
from sklearnex.svm import SVC


class Columns(peers_sklearn.Columns):
    """The same machine, in oneDAL."""

    svc = SVC


CONTESTANTS = {"SVC, rbf": Columns}
