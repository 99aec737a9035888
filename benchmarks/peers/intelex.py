"""scikit-learn-intelex: its SVC with one Gaussian kernel.

With a given matrix it hands the work back to scikit-learn, so there is nothing to compare.
"""

from sklearnex.svm import SVC

from benchmarks.peers import sklearn


class Columns(sklearn.Columns):
    """The same machine, in oneDAL."""

    svc = SVC


CONTESTANTS = {"SVC, rbf": Columns}
