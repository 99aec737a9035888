"""scikit-learn's support vector machine."""

from numpy.typing import NDArray
from sklearn.svm import SVC

from benchmarks.peers.data import TWO_CLASSES, Contestant, OnMatrices


class Mean(OnMatrices):
    """On the mean of the matrices, which is taken inside the clock."""

    def fit(self) -> None:
        self.model = SVC(C=self.data.C, kernel="precomputed")
        self.model.fit(self._train.mean(axis=0), self._y)

    def predict(self) -> NDArray:
        return self.model.predict(self._test.mean(axis=0))

    def decision(self) -> NDArray | None:
        if self.data.kind != TWO_CLASSES:
            return None
        return self.model.decision_function(self._test.mean(axis=0))


class Columns(Contestant):
    """With one Gaussian kernel of its default width on the standardised columns."""

    svc = SVC

    def fit(self) -> None:
        data = self.data
        self.model = self.svc(C=data.C).fit(data.rows[data.train], data.y[data.train])

    def predict(self) -> NDArray:
        return self.model.predict(self.data.rows[self.data.test])


CONTESTANTS = {"SVC, mean": Mean, "SVC, rbf": Columns}
