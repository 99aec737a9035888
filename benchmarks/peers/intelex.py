"""scikit-learn-intelex: its SVC with one Gaussian kernel.

With a given matrix it hands the work back to scikit-learn, so there is nothing to compare.
"""

from functools import partial

from sklearnex.svm import SVC

from benchmarks.peers.sklearn import columns

CONTESTANTS = {"SVC, rbf": partial(columns, svc=SVC)}
