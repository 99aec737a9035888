"""scikit-learn's support vector machine as a contestant of ``peers.py``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from peers_data import TWO_CLASSES, Contestant, Data
from sklearn.svm import SVC


class Mean(Contestant):
    """On the mean of the matrices, which is taken inside the clock."""

    def __init__(self, data: Data) -> None:
        super().__init__(data)
        self._train = data.between(data.train, data.train)
        self._test = data.between(data.test, data.train)

    def fit(self) -> None:
        self.model = SVC(C=self.data.C, kernel="precomputed")
        self.model.fit(self._train.mean(axis=0), self.data.y[self.data.train])

    def predict(self) -> NDArray:
        return self.model.predict(self._test.mean(axis=0))

    def decision(self) -> NDArray | None:
        if self.data.kind != TWO_CLASSES:
            return None
        return self.model.decision_function(self._test.mean(axis=0))

    def weights(self) -> NDArray:
        return np.full(len(self._train), 1 / len(self._train))


class Columns(Contestant):
    """With one Gaussian kernel of its default width on the standardised columns."""

    svc = SVC

    def fit(self) -> None:
        data = self.data
        self.model = self.svc(C=data.C).fit(data.rows[data.train], data.y[data.train])

    def predict(self) -> NDArray:
        return self.model.predict(self.data.rows[self.data.test])


CONTESTANTS = {"SVC, mean": Mean, "SVC, rbf": Columns}
