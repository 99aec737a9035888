"""scikit-learn's support vector machine."""

from typing import Any

from sklearn.svm import SVC

from benchmarks.peers.data import TWO_CLASSES, Contestant, Data, on_mean


def mean(data: Data) -> Contestant:
    decision = "decision_function" if data.kind == TWO_CLASSES else None
    return on_mean(data, lambda: SVC(C=data.C, kernel="precomputed"), decision)


def columns(data: Data, svc: Any = SVC) -> Contestant:
    """With one Gaussian kernel of its default width on the standardised columns."""
    train, test = data.rows[data.train], data.rows[data.test]
    return Contestant(data, lambda: svc(C=data.C), lambda: train, lambda: test)


CONTESTANTS = {"SVC, mean": mean, "SVC, rbf": columns}
