"""The scikit-learn faces of kernelweave."""

from kernelweave.estimators.bayesian_classifier import BayesianMKLClassifier
from kernelweave.estimators.bayesian_regressor import BayesianMKLRegressor
from kernelweave.estimators.classifier import MKLClassifier
from kernelweave.estimators.cv import MKLClassifierCV, MKLRegressorCV
from kernelweave.estimators.decisions import LearntKernel
from kernelweave.estimators.new_rows import with_new_rows
from kernelweave.estimators.nystrom import NystromMKLClassifier
from kernelweave.estimators.one_class import MKLOneClass
from kernelweave.estimators.regressor import MKLRegressor

__all__ = [
    "BayesianMKLClassifier",
    "BayesianMKLRegressor",
    "LearntKernel",
    "MKLClassifier",
    "MKLClassifierCV",
    "MKLOneClass",
    "MKLRegressor",
    "MKLRegressorCV",
    "NystromMKLClassifier",
    "with_new_rows",
]
