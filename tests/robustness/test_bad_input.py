"""Bad input gets a clear error, hard input a right answer."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from kernelweave import MKLClassifier, MKLRegressor, sample_ids
from kernelweave.errors import IndefiniteKernelWarning, InvalidInputError, MemoryBudgetError
from kernelweave.kernels import RBF, Linear, Polynomial, Precomputed, from_matrices
from kernelweave.regularizers import LpBall

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3))
y = (X[:, 0] + 0.3 * RNG.normal(size=40) > 0).astype(int)


class TestValues:
    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_not_finite(self, value):
        bad = X.copy()
        bad[3, 1] = value
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            MKLClassifier().fit(bad, y)
        model = MKLClassifier().fit(X, y)
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            model.predict(bad)

    def test_not_finite_in_a_frame_names_the_column(self):
        frame = pd.DataFrame(X, columns=["a", "b", "c"])
        frame.loc[5, "b"] = np.nan
        with pytest.raises(ValueError, match=r"NaN.*'b'"):
            MKLClassifier(Linear()).fit(frame, y)

    def test_not_finite_target(self):
        target = X[:, 0].copy()
        target[0] = np.nan
        with pytest.raises(ValueError, match="NaN"):
            MKLRegressor().fit(X, target)


class TestShapes:
    def test_one_dimension(self):
        with pytest.raises(ValueError, match="1D array"):
            MKLClassifier().fit(X[:, 0], y)

    def test_different_numbers_of_samples(self):
        with pytest.raises(ValueError, match=r"inconsistent numbers of samples.*40, 39"):
            MKLClassifier().fit(X, y[:-1])

    def test_other_columns_at_prediction(self):
        model = MKLClassifier().fit(X, y)
        with pytest.raises(ValueError, match="2 features, but MKLClassifier is expecting 3"):
            model.predict(X[:, :2])

    def test_empty_frame(self):
        frame = pd.DataFrame(X, columns=["a", "b", "c"])
        with pytest.raises(ValueError, match="0 rows"):
            MKLClassifier().fit(frame[:0], y[:0])

    def test_one_class(self):
        with pytest.raises(ValueError, match=r"one class only \(.*7.*\); at least two"):
            MKLClassifier().fit(X, np.full(40, 7))

    def test_sample_weight(self):
        for weight, message in [
            (np.ones(3), r"40 samples; got shape \(3,\)"),
            (-np.ones(40), ">= 0"),
            (np.zeros(40), "zero for every sample"),
        ]:
            with pytest.raises(ValueError, match=message):
                MKLClassifier().fit(X, y, sample_weight=weight)
        with pytest.raises(TypeError, match="sample_wieght"):
            MKLClassifier().fit(X, y, sample_wieght=np.ones(40))


class TestNames:
    @pytest.mark.parametrize(
        ("parameter", "value", "suggestion"),
        [
            ("kernels", "simplemk", "simplemkl"),
            ("loss", "hing", "hinge"),
            ("regularizer", "simplx", "simplex"),
            ("combination", "summ", "sum"),
            ("solver", "unifrom", "uniform"),
            ("normalize", "tracee", "trace"),
            ("multi_class", "share", "shared"),
            ("bank", "dence", "dense"),
        ],
    )
    def test_unknown_names_suggest_the_closest(self, parameter, value, suggestion):
        with pytest.raises(ValueError, match=f"{value}.*did you mean '{suggestion}'"):
            MKLClassifier(**{parameter: value}).fit(X, y)

    def test_loss_of_the_wrong_task(self):
        with pytest.raises(ValueError, match=r"'squared' is for regression.*'hinge'"):
            MKLClassifier(loss="squared").fit(X, y)
        with pytest.raises(ValueError, match=r"'hinge' is for classification.*'squared'"):
            MKLRegressor(loss="hinge").fit(X, y)


class TestNumbers:
    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"C": -1.0}, "C must be a finite number > 0; got -1.0"),
            ({"C": 0}, "C must be"),
            ({"C": "1"}, "C must be"),
            ({"tol": -1e-9}, "tol must be"),
            ({"max_iter": 0}, "max_iter must be an integer >= 1; got 0"),
            ({"max_time": -1}, "max_time must be"),
            ({"cache_mb": 0}, "cache_mb must be > 0"),
            ({"n_jobs": 0}, "n_jobs must be"),
            ({"callbacks": [1]}, "callbacks must be"),
            ({"regularizer": LpBall(0.5)}, "p"),
        ],
    )
    def test_out_of_range(self, parameters, message):
        with pytest.raises(InvalidInputError, match=message):
            MKLClassifier(**parameters).fit(X, y)

    def test_negative_epsilon(self):
        with pytest.raises(InvalidInputError, match="epsilon must be"):
            MKLRegressor(epsilon=-0.1).fit(X, X[:, 0])


class TestMatrices:
    K = RBF(width=1.0)(X)

    def test_asymmetric(self):
        bad = self.K.copy()
        bad[0, 1] += 0.5
        with pytest.raises(InvalidInputError, match="'expression' is not symmetric"):
            MKLClassifier(Precomputed(bad, name="expression")).fit(sample_ids(40), y)

    def test_indefinite(self):
        bad = np.tanh(X @ X.T - 1)
        with pytest.raises(InvalidInputError, match=r"'sigmoid' is not positive.*nearest_psd"):
            MKLClassifier(Precomputed(bad, name="sigmoid")).fit(sample_ids(40), y)

    def test_slightly_off_is_repaired_with_a_warning(self):
        bad = self.K.copy()
        bad[0, 1] += 1e-8
        with pytest.warns(IndefiniteKernelWarning, match="'expression'"):
            model = MKLClassifier(Precomputed(bad, name="expression")).fit(sample_ids(40), y)
        good = MKLClassifier(Precomputed(self.K)).fit(sample_ids(40), y)
        np.testing.assert_allclose(
            model.decision_function(sample_ids(40)),
            good.decision_function(sample_ids(40)),
            atol=1e-3,
        )

    def test_not_square(self):
        with pytest.raises(InvalidInputError, match=r"'K1' has shape \(40, 3\).*square"):
            MKLClassifier(from_matrices([X])).fit(sample_ids(40), y)

    def test_raw_matrices_as_kernels_say_which_call_was_meant(self):
        with pytest.raises(InvalidInputError, match=r"from_matrices|Precomputed"):
            MKLClassifier([self.K, self.K]).fit(sample_ids(40), y)

    def test_features_instead_of_ids(self):
        with pytest.raises(InvalidInputError, match="sample_ids"):
            MKLClassifier(Precomputed(self.K)).fit(X, y)

    def test_ids_beyond_the_matrix(self):
        with pytest.raises(InvalidInputError, match=r"41|40"):
            MKLClassifier(Precomputed(self.K)).fit(sample_ids(45)[5:], y)

    def test_sizes_that_differ(self):
        with pytest.raises(InvalidInputError, match=r"same samples.*40.*30"):
            from_matrices([self.K, self.K[:30, :30]])

    def test_zero_trace(self):
        kernels = from_matrices([self.K, np.zeros((40, 40))], names=["good", "empty"])
        with pytest.raises(InvalidInputError, match=r"'empty'.*normalize=None"):
            MKLClassifier(kernels).fit(sample_ids(40), y)
        model = MKLClassifier(kernels, normalize=None).fit(sample_ids(40), y)
        assert model.weights_[0] == pytest.approx(1.0)


class TestHardButFine:
    def test_constant_features(self):
        Z = np.column_stack([X, np.full(40, 3.0)])
        model = MKLClassifier("simplemkl").fit(Z, y)
        assert model.converged_ and np.isfinite(model.decision_function(Z)).all()
        assert MKLClassifier().fit(Z, y).converged_

    def test_nothing_but_constant_features(self):
        model = MKLClassifier().fit(np.ones((10, 2)), [0, 1] * 5)
        assert np.isfinite(model.decision_function(np.ones((2, 2)))).all()

    def test_duplicate_rows(self):
        Z, t = np.repeat(X, 4, axis=0), np.repeat(y, 4)
        model = MKLClassifier(C=0.25, tol=1e-6, normalize=None).fit(Z, t)
        once = MKLClassifier(C=1.0, tol=1e-6, normalize=None).fit(X, y)
        np.testing.assert_allclose(model.decision_function(X), once.decision_function(X), atol=0.02)

    def test_contradicting_duplicates(self):
        Z, t = np.repeat(X, 2, axis=0), np.tile([0, 1], 40)
        model = MKLClassifier().fit(Z, t)
        assert model.converged_
        np.testing.assert_allclose(model.decision_function(X), 0.0, atol=0.05)

    def test_two_samples(self):
        model = MKLClassifier().fit([[0.0], [1.0]], ["a", "b"])
        assert list(model.predict([[0.0], [1.0]])) == ["a", "b"]
        assert model.converged_
        assert np.isfinite(MKLRegressor().fit([[0.0], [1.0]], [0.0, 1.0]).predict([[0.5]])).all()

    def test_single_kernel(self):
        model = MKLClassifier(Linear()).fit(X, y)
        assert model.weights_.tolist() == [1.0] and model.converged_

    def test_the_same_kernel_many_times(self):
        model = MKLClassifier([RBF(width=1.0)] * 5).fit(X, y)
        once = MKLClassifier(RBF(width=1.0)).fit(X, y)
        assert model.objective_ == pytest.approx(once.objective_, rel=2e-3)
        assert len(set(model.kernel_names_)) == 5

    def test_constant_target(self):
        model = MKLRegressor().fit(X, np.full(40, 2.5))
        np.testing.assert_allclose(model.predict(X), 2.5, atol=0.11)

    @pytest.mark.parametrize("C", [1e-6, 1e6])
    @pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "logistic"])
    def test_extreme_C_gives_a_true_certificate_or_says_no(self, C, loss):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = MKLClassifier(C=C, loss=loss, max_iter=50).fit(X, y)
        assert np.isfinite(model.decision_function(X)).all()
        assert model.converged_ == (model.gap_ <= 1e-3)
        assert model.converged_ or any("gap" in str(w.message) for w in caught)

    def test_wildly_different_scales(self):
        kernels = [Polynomial(3).on(0), RBF(width=1e-4), Linear().on(1)]
        model = MKLClassifier(kernels).fit(X * [1e4, 1.0, 1e-4], y)
        assert model.converged_

    def test_one_against_many(self):
        t = np.zeros(40, dtype=int)
        t[3] = 1
        assert MKLClassifier(class_weight="balanced").fit(X, t).converged_


class TestMemory:
    def test_dense_matrices_beyond_memory_are_refused(self):
        Z = np.zeros((300_000, 1))
        Z[1::2] = 1.0
        with pytest.raises(MemoryBudgetError, match=r"TB .* free.*bank='lazy'"):
            MKLClassifier([RBF(width=w) for w in range(1, 20)], bank="dense").fit(Z, Z[:, 0] > 0.5)

    def test_automatic_choice_keeps_to_the_budget(self):
        Z = np.random.default_rng(0).normal(size=(600, 12))
        t = Z[:, 0] > 0
        small = MKLClassifier([RBF(width=1.0), RBF(width=2.0)], cache_mb=0.2).fit(Z, t)
        large = MKLClassifier([RBF(width=1.0), RBF(width=2.0)]).fit(Z, t)
        np.testing.assert_allclose(small.weights_, large.weights_, atol=0.02)
