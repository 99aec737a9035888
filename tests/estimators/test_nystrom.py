"""Nystrom features of every kernel and a linear SVM: the scalable baseline."""

from __future__ import annotations

import pickle
import warnings
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from same_numbers import assert_same_numbers
from scipy import sparse
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from kernelweave import MKLClassifier, NystromMKLClassifier, sample_ids
from kernelweave.errors import InvalidInputError, MemoryBudgetError
from kernelweave.estimators.nystrom import NystromMap
from kernelweave.kernels import RBF, Linear, Polynomial, RBFBatch, Spectrum, from_matrices
from kernelweave.operators import ComputedOperator, bind_kernels


def numbers(n=60):
    return np.random.default_rng(0).normal(size=(n, 3))


KERNELS = [RBF(width=1.0), RBF(width=3.0).on(0), Polynomial(3).on(1), Linear()]


class TestFeatures:
    @pytest.mark.parametrize("normalize", ["trace", None, "center", ("diagonal", "center")])
    def test_with_all_rows_as_landmarks_they_are_exact(self, normalize):
        X, new = numbers(), np.random.default_rng(1).normal(size=(25, 3))
        kernels = bind_kernels(KERNELS, X, normalize=normalize)
        features = NystromMap(kernels, np.arange(60))
        phi = features.of_training()
        mean = kernels.block(np.arange(60)).mean(axis=0)
        np.testing.assert_allclose(phi @ phi.T, mean, atol=1e-7)
        np.testing.assert_allclose(
            features.of_new(new) @ phi.T, kernels.against(new).block().mean(0), atol=1e-6
        )

    def test_otherwise_they_are_those_of_williams_and_seeger(self):
        X, new = numbers(), np.random.default_rng(1).normal(size=(25, 3))
        kernels = bind_kernels(KERNELS, X)
        landmarks = np.array([3, 10, 11, 40, 59])
        features = NystromMap(kernels, landmarks)
        expected = np.zeros((25, 25))
        blocks = kernels.block(landmarks, landmarks)
        for across, block in zip(
            kernels.against(new).block(columns=landmarks), blocks, strict=True
        ):
            expected += across @ np.linalg.pinv(block, rcond=1e-10, hermitian=True) @ across.T
        phi = features.of_new(new)
        np.testing.assert_allclose(phi @ phi.T, expected / len(KERNELS), atol=1e-9)
        # Training rows go another way; the features are the same.
        np.testing.assert_allclose(features.of_training(), features.of_new(X), atol=1e-9)

    def test_one_kernel_is_as_in_scikit_learn(self):
        X = numbers()
        features = NystromMap(bind_kernels(RBF(gamma=0.5), X), np.arange(0, 60, 4))
        known = Nystroem(gamma=0.5, n_components=15)
        known.fit(X[::4])  # All of these rows are its landmarks.
        theirs = known.transform(X)
        ours = features.of_training()
        np.testing.assert_allclose(ours @ ours.T, theirs @ theirs.T, atol=1e-8)

    def test_low_rank_is_seen_and_does_no_harm(self):
        """Eigenvalues that are rounding are left out; their inverse roots would be huge."""
        X = numbers(200)
        X[100:] = X[:100]
        kernels = bind_kernels([Linear(), Polynomial(3).on(1), Linear().on(0), RBF(width=50.0)], X)
        features = NystromMap(kernels, np.arange(200))
        assert features.ranks[:3].tolist() == [3, 4, 1]
        assert features.ranks[3] < 40
        new = np.random.default_rng(1).normal(size=(500, 3))
        phi = features.of_new(new)
        ends = np.concatenate([[0], np.cumsum(features.ranks)])
        diagonal = np.array([np.diag(K) for K in kernels.between(new, new).block()])
        for k in range(4):
            norms = (phi[:, ends[k] : ends[k + 1]] ** 2).sum(axis=1)
            # A projection is never longer than what it projects.
            assert np.all(norms <= diagonal[k] / 4 * (1 + 1e-5))
            np.testing.assert_allclose(norms, diagonal[k] / 4, rtol=1e-4)

    def test_a_kernel_that_is_zero_has_no_features(self):
        X = numbers()
        X[:, 0] = 0.0
        features = NystromMap(
            bind_kernels([Linear().on(0), Linear()], X, normalize=None), [1, 2, 3]
        )
        assert features.ranks.tolist() == [0, 2]
        assert features.owner.tolist() == [1, 1]

    def test_more_kernels_and_rows_than_are_taken_at_a_time(self):
        rng = np.random.default_rng(1)
        X, new = rng.normal(size=(600, 3)), rng.normal(size=(300, 3))
        columns = [[[0, 1], [1, 2], [0, 2]][k % 3] for k in range(700)]
        kernels = bind_kernels(RBFBatch(columns, np.geomspace(0.1, 10, 700)), X)
        landmarks = np.arange(0, 600, 10)
        features = NystromMap(kernels, landmarks)
        coef = rng.normal(size=(2, features.width))
        for samples, phi in ((X, features.of_training()), (new, features.of_new(new))):
            for k in (0, 350, 699):
                own = phi[:, features.own(k)]
                some = np.array([k])
                cross = kernels.against(samples).block(None, landmarks, some)[0]
                gram = kernels.block(landmarks, landmarks, some)[0]
                expected = cross @ np.linalg.pinv(gram, rcond=1e-10, hermitian=True) @ cross.T
                np.testing.assert_allclose(700 * own @ own.T, expected, atol=1e-6)
        decided = features.decide(new, coef)
        np.testing.assert_allclose(decided, features.of_new(new) @ coef.T, atol=1e-9)


class TestFit:
    @pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
    def test_with_all_rows_as_landmarks_it_is_the_svm_of_the_mean_kernel(self, two_classes, loss):
        X, y = two_classes
        model = NystromMKLClassifier(
            n_components=1000, C=3.0, loss=loss, tol=1e-8, max_iter=10**6
        ).fit(X, y)
        assert model.landmarks_.tolist() == list(range(120))
        # Any root of the mean kernel will do: the SVM does not see rotations.
        mean = ComputedOperator.build("default", X).block(np.arange(120)).mean(axis=0)
        s, U = np.linalg.eigh(mean)
        kept = s > 1e-10 * s[-1]
        svm = LinearSVC(C=3.0, loss=loss, dual="auto", tol=1e-8, max_iter=10**6, random_state=0)
        svm.fit(U[:, kept] * np.sqrt(s[kept]), y)
        expected = svm.decision_function(U[:, kept] * np.sqrt(s[kept]))
        np.testing.assert_allclose(model.decision_function(X), expected, atol=2e-4)

    def test_it_is_near_the_uniform_model(self, two_classes):
        X, y = two_classes
        ours = NystromMKLClassifier(n_components=1000, C=0.5).fit(X, y)
        uniform = MKLClassifier(loss="squared_hinge", C=0.5, solver="uniform").fit(X, y)
        ours, theirs = ours.decision_function(X), uniform.decision_function(X)
        # LIBLINEAR shrinks the intercept a little.
        assert np.corrcoef(ours, theirs)[0, 1] > 0.999
        assert np.abs(ours - theirs).max() < 0.1

    def test_few_landmarks_do_well(self):
        X, y = make_classification(800, 6, n_informative=4, n_redundant=0, random_state=0)
        few = NystromMKLClassifier(n_components=60).fit(X[:400], y[:400])
        exact = NystromMKLClassifier(n_components=400).fit(X[:400], y[:400])
        assert few.ranks_.max() == 60 and len(few.landmarks_) == 60
        assert few.score(X[400:], y[400:]) > exact.score(X[400:], y[400:]) - 0.03

    def test_three_classes(self, three_classes):
        X, y = three_classes
        names = np.array(["a", "b", "c"])[y]
        model = NystromMKLClassifier(n_components=50).fit(X, names)
        decisions = model.decision_function(X)
        assert decisions.shape == (150, 3) and model.coef_.shape[0] == 3
        np.testing.assert_array_equal(model.predict(X), model.classes_[decisions.argmax(axis=1)])
        assert model.score(X, names) > 0.95

    @pytest.mark.parametrize("data", ["two_classes", "three_classes"])
    def test_decisions_are_features_times_coefficients(self, data, request):
        X, y = request.getfixturevalue(data)
        model = NystromMKLClassifier(n_components=30).fit(X, y)
        expected = model.transform(X) @ model.coef_.T + model.intercept_
        np.testing.assert_allclose(
            model.decision_function(X).reshape(len(X), -1), expected, atol=1e-9
        )

    def test_weights_are_shares_of_the_coefficients(self, two_classes):
        X, y = two_classes
        model = NystromMKLClassifier(KERNELS, n_components=40).fit(X[:, :3], y)
        ends = np.concatenate([[0], np.cumsum(model.ranks_)])
        squares = [np.sum(model.coef_[:, a:b] ** 2) for a, b in pairwise(ends)]
        np.testing.assert_allclose(model.weights_, np.array(squares) / np.sum(squares))
        assert model.weights_.sum() == pytest.approx(1.0)
        assert len(model.kernel_names_) == 4

    def test_the_column_that_matters_has_the_weight(self):
        X = np.random.default_rng(0).normal(size=(300, 3))
        y = np.abs(X[:, 2]) > 0.7
        model = NystromMKLClassifier([RBF(width=1.0).on(j) for j in range(3)]).fit(X, y)
        assert model.weights_[2] > 0.8

    def test_weights_of_samples_and_classes(self, two_classes):
        X, y = two_classes
        model = NystromMKLClassifier(n_components=40, tol=1e-8, max_iter=10**5)
        plain = model.fit(X, y).decision_function(X)
        double = model.fit(X, y, sample_weight=np.full(120, 2.0)).decision_function(X)
        raised = model.set_params(C=2.0).fit(X, y).decision_function(X)
        np.testing.assert_allclose(double, raised, atol=1e-4)
        assert np.abs(double - plain).max() > 1e-2
        weight = np.where(y == 1, 3.0, 1.0)
        by_sample = model.set_params(C=1.0).fit(X, y, sample_weight=weight).decision_function(X)
        model.set_params(class_weight={0: 1.0, 1: 3.0})
        np.testing.assert_allclose(model.fit(X, y).decision_function(X), by_sample, atol=1e-6)

    def test_samples_without_weight_do_not_count(self, two_classes):
        X, y = two_classes
        weight = np.where(np.arange(120) < 90, 1.0, 0.0)
        wrong = np.where(weight > 0, y, 1 - y)
        model = NystromMKLClassifier(n_components=40, tol=1e-6, max_iter=10**5)
        first = model.fit(X, y, sample_weight=weight).decision_function(X)
        np.testing.assert_allclose(
            model.fit(X, wrong, sample_weight=weight).decision_function(X), first, atol=1e-6
        )

    def test_landmarks_follow_the_seed(self, two_classes):
        X, y = two_classes
        first, again, other = (
            NystromMKLClassifier(n_components=20, random_state=seed).fit(X, y).landmarks_
            for seed in (1, 1, 2)
        )
        assert len(set(first.tolist())) == 20
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, other)

    def test_threads_do_not_matter(self, two_classes):
        X, y = two_classes
        one, two = (NystromMKLClassifier(n_jobs=jobs).fit(X, y) for jobs in (1, 2))
        np.testing.assert_array_equal(one.coef_, two.coef_)
        np.testing.assert_array_equal(one.decision_function(X), two.decision_function(X))


class TestInput:
    def test_frames_with_a_pipeline_for_each_group(self, two_classes):
        X, y = two_classes
        frame = pd.DataFrame(X, columns=list("abcdef"))
        kernels = [RBF(width=1.0).on(["a", "b"], StandardScaler()), Linear().on(["c", "f"])]
        model = NystromMKLClassifier(kernels, n_components=30).fit(frame, y)
        assert model.kernel_names_[1] == "linear on c, f"
        expected = model.decision_function(frame[::-1])[::-1]
        np.testing.assert_allclose(model.decision_function(frame), expected, atol=1e-9)

    def test_precomputed_matrices_and_a_search(self, two_classes):
        X, y = two_classes
        matrices = list(ComputedOperator.build([Linear(), RBF(width=2.0)], X).block(np.arange(120)))
        model = NystromMKLClassifier(from_matrices(matrices), n_components=30)
        ids = sample_ids(120)
        search = GridSearchCV(model, {"C": [0.1, 1.0], "n_components": [5, 30]}, cv=3).fit(ids, y)
        assert search.best_score_ > 0.7
        by_columns = NystromMKLClassifier([Linear(), RBF(width=2.0)], n_components=30)
        np.testing.assert_allclose(
            model.fit(ids, y).decision_function(ids),
            by_columns.fit(X, y).decision_function(X),
            atol=1e-3,
        )

    def test_sequences(self):
        rng = np.random.default_rng(0)
        X = ["".join(rng.choice(list("ACGT"), 30)) for _ in range(80)]
        y = np.array(["GA" in x[:15] for x in X])
        kernels = [Spectrum(2), Spectrum(3)]
        assert NystromMKLClassifier(kernels, n_components=40).fit(X, y).score(X, y) > 0.8

    def test_sparse_columns(self, two_classes):
        X, y = two_classes
        X = np.where(np.abs(X) > 0.7, X, 0.0)
        model = NystromMKLClassifier([Linear(), RBF(width=2.0)], n_components=30)
        dense = model.fit(X, y).decision_function(X)
        np.testing.assert_allclose(
            model.fit(sparse.csr_array(X), y).decision_function(sparse.csr_array(X)),
            dense,
            atol=1e-6,
        )

    def test_a_batch_beside_other_kernels(self, two_classes):
        X, y = two_classes
        batch = RBFBatch([[0, 1], [2, -1]], [0.5, 1.0])
        same = [RBF(gamma=0.5).on([0, 1]), RBF(gamma=1.0).on(2)]
        ours = NystromMKLClassifier([batch, Linear()], n_components=40).fit(X, y)
        theirs = NystromMKLClassifier([*same, Linear()], n_components=40).fit(X, y)
        np.testing.assert_allclose(ours.weights_, theirs.weights_, atol=1e-4)
        np.testing.assert_allclose(
            ours.decision_function(X), theirs.decision_function(X), atol=1e-3
        )

    def test_in_a_pipeline_and_as_a_transformer(self, two_classes):
        X, y = two_classes
        pipe = make_pipeline(StandardScaler(), NystromMKLClassifier(n_components=20))
        assert cross_val_score(pipe, X, y, cv=3).mean() > 0.8
        features = NystromMKLClassifier(n_components=20).fit(X, y)
        then = make_pipeline(NystromMKLClassifier(n_components=20), LinearSVC()).fit(X, y)
        assert then.score(X, y) > 0.8
        names = features.get_feature_names_out()
        assert len(names) == features.transform(X).shape[1] == features.ranks_.sum()
        assert names[0] == f"{features.kernel_names_[0]} #0" and len(set(names)) == len(names)
        frame = features.set_output(transform="pandas").transform(X)
        assert list(frame.columns) == list(names)

    def test_pickle(self, two_classes):
        X, y = two_classes
        model = NystromMKLClassifier(n_components=20).fit(X, y)
        again = pickle.loads(pickle.dumps(model))
        assert_same_numbers(again.decision_function(X), model.decision_function(X))
        assert_same_numbers(again.transform(X), model.transform(X))

    def test_features_beyond_memory_are_refused_before_they_are_computed(
        self, two_classes, monkeypatch
    ):
        X, y = two_classes
        model = NystromMKLClassifier(n_components=20)
        width = int(model.fit(X, y).ranks_.sum())

        def fail(*args, **kwargs):
            raise AssertionError("features were computed")

        monkeypatch.setattr(NystromMap, "of_training", fail)
        # Enough for the features themselves, not for LIBLINEAR's copy of them.
        monkeypatch.setattr("kernelweave.memory.available_bytes", lambda: 2.0 * 8.0 * 120 * width)
        with pytest.raises(MemoryBudgetError, match="Lower n_components") as caught:
            model.fit(X, y)
        assert f"{width} Nystrom features of 120 samples" in str(caught.value)

    def test_maps_beyond_memory_are_refused(self, two_classes, monkeypatch):
        X, y = two_classes
        kernels = RBFBatch([[0]] * 2000, np.geomspace(10, 1000, 2000))
        # Enough for the first of them, by which the size of all is known.
        monkeypatch.setattr("kernelweave.memory.available_bytes", lambda: 5e7)
        with pytest.raises(MemoryBudgetError, match=r"Nystrom maps.*Lower n_components"):
            NystromMKLClassifier(kernels, n_components=120).fit(X, y)

    @pytest.mark.parametrize(
        ("params", "message"),
        [
            ({"n_components": 0}, "n_components must be an integer >= 1; got 0"),
            ({"n_components": 2.5}, "n_components"),
            ({"C": -1.0}, "C must"),
            ({"tol": -1.0}, "tol must"),
            ({"max_iter": 0}, "max_iter"),
            ({"loss": "logistic"}, "squared_hinge"),
            ({"n_jobs": 0}, "n_jobs"),
        ],
    )
    def test_bad_settings(self, two_classes, params, message):
        with pytest.raises((InvalidInputError, ValueError), match=message):
            NystromMKLClassifier(**params).fit(*two_classes)

    def test_bad_data(self, two_classes):
        X, y = two_classes
        with pytest.raises(InvalidInputError, match="one class only"):
            NystromMKLClassifier().fit(X, np.zeros(120))
        with pytest.raises(InvalidInputError, match="sample_weight"):
            NystromMKLClassifier().fit(X, y, sample_weight=np.ones(3))
        with pytest.raises(InvalidInputError, match="every kernel is zero"):
            NystromMKLClassifier("linear", normalize=None).fit(np.zeros((120, 2)), y)

    def test_an_end_before_the_tolerance_is_told(self, two_classes):
        X, y = two_classes
        with pytest.warns(ConvergenceWarning):
            NystromMKLClassifier(max_iter=1, tol=1e-12, loss="hinge").fit(X, y)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            NystromMKLClassifier().fit(X, y)
