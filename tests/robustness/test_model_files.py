"""Models come back from files as they were; what is no model, or not ours, is refused."""

from __future__ import annotations

import inspect
import io
import json
import os
import pickle
import zipfile

import model_file_kinds as kinds
import numpy as np
import pandas as pd
import polars as pl
import polars.testing
import pytest
import skops.io
from same_numbers import AFTER_A_FIT, assert_same_numbers
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import kernelweave
from kernelweave import Checkpoint, MKLClassifier, load, save
from kernelweave.combine import Combination
from kernelweave.errors import InvalidInputError, ModelFileError
from kernelweave.kernels import RBF, Kernel, Linear
from kernelweave.kernels.packing import pack, unpack
from kernelweave.losses import Loss
from kernelweave.model_files import Header, header, read_header
from kernelweave.model_files.schema import walk
from kernelweave.regularizers import Regularizer
from kernelweave.solvers import SOLVERS
from kernelweave.tables import TableEncoder

METHODS = ("predict", "decision_function", "predict_proba", "transform", "score_samples")
KERNELS = [
    cls
    for cls in Kernel.registry
    if cls.__module__.startswith("kernelweave.") and not inspect.isabstract(cls)
]


@pytest.fixture
def there(tmp_path):
    return tmp_path / "model.skops"


def round_trip(model, there, **settings):
    return load(save(model, there), **settings)


def same_answers(first, second, X, rtol=1e-9):
    """Assert that two models answer every question about samples in the same way."""
    asked = [name for name in METHODS if hasattr(first, name)]
    assert asked == [name for name in METHODS if hasattr(second, name)]
    for name in asked:
        assert_same_numbers(getattr(second, name)(X), getattr(first, name)(X), rtol)


# Round trips


def wide_model(n_columns):
    rng = np.random.default_rng(0)
    table = pl.DataFrame(
        rng.normal(size=(12, n_columns)), schema=[f"g{j}" for j in range(n_columns)]
    )
    table = table.with_columns(
        pl.Series("colour", ["red", "blue", None] * 4),
        pl.Series("holes", [None, None, 1.5, 2.5] * 3),
        pl.Series("same", [1.0] * 12),
    )
    return make_pipeline(TableEncoder(), MKLClassifier([Linear()])).fit(table, [0, 1] * 6), table


def test_the_encoder_of_a_table_comes_back_whole(there):
    model, table = wide_model(3)
    before, after = model[0], round_trip(model, there)[0]
    assert after.roles_ == before.roles_ and after.notes_ == before.notes_
    assert after.encoded_columns_ == before.encoded_columns_
    assert after.feature_names_in_.dtype == object
    assert after.feature_names_in_.tolist() == table.columns
    polars.testing.assert_frame_equal(after.transform(table), before.transform(table))


def test_a_file_has_no_node_for_each_column_of_a_table(there):
    """One for each takes minutes to read where there are as many columns as there are genes."""
    counts = []
    for n_columns in (20, 200):
        save(wide_model(n_columns)[0], there)
        with zipfile.ZipFile(there) as archive:
            counts.append(len(list(walk(json.loads(archive.read("schema.json"))))))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("kind", kinds.KINDS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_loaded_model_says_the_same(kind, there):
    model, X = kinds.fitted(kind)
    again = round_trip(model, there)
    assert type(again) is type(model)
    same_answers(model, again, X)
    weights = getattr(model, "class_weight", None)
    assert getattr(again, "class_weight", None) == weights
    plain = (type(None), bool, int, float, str)
    for name, value in model.get_params().items():
        mine = again.get_params()[name]
        assert type(mine) is type(value), name
        assert repr(mine) == repr(value) or not isinstance(value, plain), name
    # It can be saved again, and pickled.
    same_answers(model, round_trip(again, there), X)
    same_answers(model, pickle.loads(pickle.dumps(again)), X)


@pytest.mark.parametrize(
    "kind",
    ["classifier", "ovr", "pandas", "batch and others", "bayesian ovr", "nystrom", "sequences"],
)
def test_what_was_learnt_is_all_there(kind, there):
    model, X = kinds.fitted(kind)
    again = round_trip(model, there)
    learnt = {name for name in vars(model) if name.endswith("_")} | {"kernel_names_"}
    assert {"weights_", "intercept_"} <= learnt
    for name in learnt:
        mine, theirs = getattr(model, name), getattr(again, name)
        assert np.array_equal(mine, theirs), name
    assert type(again.kernel_names_) is type(model.kernel_names_)
    assert_same_numbers(again.combined_kernel(X), model.combined_kernel(X))
    explained, told = model.explain(X), again.explain(X)
    assert_same_numbers(told.values, explained.values)
    if kind == "pandas":
        assert isinstance(again._kernel_set.samples.native, pd.DataFrame)


def test_every_estimator_is_tried():
    source = inspect.getsource(kinds)
    estimators = [name for name in kernelweave.__all__ if "MKL" in name]
    assert len(estimators) >= 8
    assert [name for name in estimators if f" {name}(" not in source] == []


@pytest.mark.parametrize("cls", KERNELS, ids=lambda cls: cls.__name__)
def test_every_kernel_comes_back(cls, there):
    X = cls.example_data(np.random.default_rng(1))
    y = np.arange(len(X)) % 2
    model = MKLClassifier(cls.examples(), solver="uniform", normalize=None, tol=0.1).fit(X, y)
    again = round_trip(model, there)
    assert again.kernel_names_ == model.kernel_names_
    same_answers(model, again, X)
    assert_same_numbers(again.combined_kernel(X), model.combined_kernel(X))


def settings_to_keep():
    for parameter, kind in [
        ("loss", Loss),
        ("regularizer", Regularizer),
        ("combination", Combination),
    ]:
        for name, cls in kind.registry.items():
            if cls.__module__.startswith("kernelweave."):
                yield pytest.param(parameter, cls.examples()[-1], id=f"{parameter}-{name}")
    for name, cls in SOLVERS.items():
        if cls.__module__.startswith("kernelweave."):
            yield pytest.param("solver", cls(), id=f"solver-{name}")


@pytest.mark.parametrize("parameter, value", list(settings_to_keep()))
def test_objects_as_settings_come_back(parameter, value, there):
    model, _ = kinds.fitted("classifier")
    asked = pickle.loads(pickle.dumps(model)).set_params(**{parameter: value})
    assert round_trip(asked, there).get_params()[parameter] == value


def test_callbacks_are_no_part_of_a_model(there):
    X, y = kinds.iris()
    seen = []
    watchers = [lambda record: seen.append(record), Checkpoint(there.with_suffix(".npz"))]
    model = MKLClassifier(kinds.kernels(), callbacks=watchers, max_time=99.0, warm_start=True).fit(
        X, y
    )
    again = round_trip(model.set_params(warm_start_from=model), there)
    assert seen and model.callbacks is watchers
    assert (again.callbacks, again.warm_start_from, again.max_time) == ((), None, 99.0)
    same_answers(model, again.fit(X, y), X, AFTER_A_FIT)


def test_a_loaded_model_can_be_gone_on_with(there):
    model, X = kinds.fitted("classifier")
    again = round_trip(model, there)
    y = kinds.iris()[1]
    cold = clone(again)
    assert not hasattr(cold, "weights_")
    warm = clone(again).set_params(warm_start_from=again).fit(X, y)
    assert warm.converged_ and warm.n_iter_ <= cold.fit(X, y).n_iter_


def test_the_samples_are_there_once(there):
    X = np.random.default_rng(0).normal(size=(300, 20))
    model = MKLClassifier(["default", RBF(width=9).on([1, 2]), RBF(width=3)]).fit(X, X[:, 0] > 0)
    save(model, there)
    with zipfile.ZipFile(there) as archive:
        arrays = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        schema = archive.read("schema.json").decode()
    stored = sum(info.file_size for info in arrays)
    assert stored < 1.3 * X.nbytes
    # Nor what is made anew.
    assert [cache for cache in ("Plan", "Decisions", "LookUps") if f'"{cache}"' in schema] == []


def test_the_same_model_gives_the_same_file(tmp_path):
    model, _ = kinds.fitted("pandas")
    parts = []
    for name in ("a.skops", "b.skops"):
        with zipfile.ZipFile(save(model, tmp_path / name)) as archive:
            parts.append(
                {n: archive.read(n) for n in archive.namelist() if n != "kernelweave.json"}
            )
    assert parts[0] == parts[1]


def test_skops_itself_reads_the_file(there):
    model, X = kinds.fitted("pandas")
    save(model, there)
    types = skops.io.get_untrusted_types(file=there)
    same_answers(model, skops.io.load(there, trusted=types), X)
    skops.io.visualize(there, trusted=types, sink=lambda *_: None)


PANDAS = {
    "float": pd.Series([1.5, np.nan, -np.inf]),
    "float32": pd.Series([1.5, 2.5, 3.5], dtype="float32"),
    "int8": pd.Series([1, 2, 3], dtype="int8"),
    "bool": pd.Series([True, False, True]),
    "Int64": pd.Series([1, None, 2**60], dtype="Int64"),
    "boolean": pd.Series([True, None, False], dtype="boolean"),
    "str": pd.Series(["a", None, "ü"]),
    "string": pd.Series(["a", None, "ü"], dtype="string"),
    "object": pd.Series(["a", 2, None], dtype=object),
    "bytes": pd.Series([b"a\x00", b"\xff", b""], dtype=object),
    "category": pd.Series(["x", None, "y"], dtype=pd.CategoricalDtype(["y", "x"], ordered=True)),
    "whole category": pd.Series([3, 1, 3], dtype="category"),
    "time": pd.to_datetime(pd.Series(["2020-01-01", None, "2021-05-05"])),
}


@pytest.mark.parametrize("name", PANDAS)
def test_pandas_columns_come_back(name):
    frame = pd.DataFrame({"a": PANDAS[name], "b": ["text", "more", "most"]})
    assert not frame["a"].isna().all()
    again = unpack(json_and_arrays(pack(frame.set_axis([5, 6, 7]))))
    pd.testing.assert_frame_equal(again, frame)


@pytest.mark.parametrize("order", ["C", "F"])
def test_numbers_in_pandas_keep_their_order_in_memory(order):
    values = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], order=order)
    frame = pd.DataFrame(values, columns=[7, 8, 9], copy=False)
    assert frame.to_numpy().flags.c_contiguous == (order == "C")
    again = unpack(pack(frame))
    pd.testing.assert_frame_equal(again, frame)
    assert again.to_numpy().flags.c_contiguous == frame.to_numpy().flags.c_contiguous


POLARS = {
    "float": pl.Series([1.5, None, float("nan")]),
    "int": pl.Series([1, None, 2**60]),
    "uint8": pl.Series([1, 2, 3], dtype=pl.UInt8),
    "bool": pl.Series([True, None, False]),
    "str": pl.Series(["a", None, "ü"]),
    "binary": pl.Series([b"a", None, b"\xff"]),
    "categorical": pl.Series(["x", None, "y"], dtype=pl.Categorical),
    "enum": pl.Series(["x", None, "y"], dtype=pl.Enum(["y", "x"])),
    "date": pl.Series(["2020-01-01", None, "2021-05-05"]).str.to_date(),
    "time": pl.Series([1, None, 3]).cast(pl.Datetime("ms", "UTC")),
    "duration": pl.Series([1, None, 3]).cast(pl.Duration("us")),
}


@pytest.mark.parametrize("name", POLARS)
def test_polars_columns_come_back(name):
    frame = pl.DataFrame({"a": POLARS[name], "b": ["text", "more", "most"]})
    again = unpack(json_and_arrays(pack(frame)))
    polars.testing.assert_frame_equal(again, frame)


def json_and_arrays(state):
    """Check that packed tables hold arrays of plain values, and what JSON has."""
    if isinstance(state, dict):
        return {key: json_and_arrays(value) for key, value in state.items()}
    if isinstance(state, np.ndarray):
        assert not state.dtype.hasobject
        return state
    if isinstance(state, list) and any(isinstance(item, dict) for item in state):
        return [json_and_arrays(item) for item in state]
    return json.loads(json.dumps(state))


@pytest.mark.parametrize(
    "frame, said",
    [
        (pl.DataFrame({"a": [[1, 2], [3]]}), "column 'a'.*List"),
        (pd.DataFrame({"a": [1.0, 2.0], "b": [{1}, {2}]}), "column 'b'.*set"),
        (pd.DataFrame({(1, 2): [1.0, 2.0]}), "labels"),
        (pd.DataFrame({"a": pd.period_range("2020", periods=2)}), "column 'a'.*period"),
    ],
)
def test_columns_that_cannot_be_kept_are_named(frame, said):
    with pytest.raises(ModelFileError, match=said):
        pack(frame)


def test_a_missing_package_is_named(monkeypatch):
    state = pack(pd.DataFrame({"a": [1.0]}))
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(ModelFileError, match=r"fitted on a pandas frame.*Install pandas"):
        unpack(state)


# Headers


def test_the_header_tells_of_the_model(there):
    model, _ = kinds.fitted("ovr")
    save(model, there, about={"data": "iris", "scores": [0.9, 1]})
    told = read_header(there)
    assert (told.format, told.model, told.estimator) == (1, "MKLClassifier", "MKLClassifier")
    assert told.versions["kernelweave"] == kernelweave.__version__
    assert set(told.versions) == {
        "kernelweave",
        "python",
        "numpy",
        "scipy",
        "scikit-learn",
        "skops",
    }
    assert told.about == {"data": "iris", "scores": [0.9, 1]}
    assert told.n_kernels == 3
    weights = dict(zip(model.kernel_names_, model.weights_.mean(axis=0), strict=True))
    assert {k["name"]: k["weight"] for k in told.kernels} == {n: w for n, w in weights.items() if w}
    assert told.certificate == {
        "gap": model.gap_,
        "gap_kind": "duality",
        "objective": model.objective_,
        "dual_objective": model.dual_objective_,
        "converged": True,
        "n_iter": model.n_iter_,
        "tol": 1e-3,
    }


@pytest.mark.parametrize(
    "kind, model, estimator",
    [
        ("pipeline", "Pipeline", "MKLClassifier"),
        ("search", "GridSearchCV", "MKLClassifier"),
        ("calibrated", "CalibratedClassifierCV", ""),
        ("nystrom", "NystromMKLClassifier", "NystromMKLClassifier"),
    ],
)
def test_the_header_finds_the_estimator(kind, model, estimator, there):
    told = read_header(save(kinds.fitted(kind)[0], there))
    assert (told.model, told.estimator) == (model, estimator)
    assert bool(told.kernels) == bool(estimator)


def test_the_header_of_a_bayesian_model_has_the_bound(there):
    model, _ = kinds.fitted("bayesian")
    certificate = read_header(save(model, there)).certificate
    assert certificate["lower_bound"] == model.lower_bound_
    assert certificate["change"] == model.history_[-1].change


def test_names_of_very_many_kernels_are_not_written_out():
    class Names:
        asked = 0

        def __len__(self):
            return 200_000

        def __getitem__(self, k):
            self.asked += 1
            return f"k{k}"

    class Model:
        weights_ = np.arange(200_000.0)
        kernel_names_ = Names()

    kept = header._kernels(Model)
    assert len(kept) == Model.kernel_names_.asked == 10_000
    assert kept[0] == {"name": "k199999", "weight": 199999.0}


@pytest.mark.parametrize("about", [{"a": {1, 2}}, {"a": np.nan}, {1: "a"}, [1], "text"])
def test_about_must_be_json(about, there):
    with pytest.raises(ModelFileError, match="about must be a dict"):
        save(kinds.fitted("classifier")[0], there, about=about)
    assert not there.exists()


# What cannot be saved


def test_a_model_that_is_not_fitted_is_not_saved(there):
    for model in (MKLClassifier(), make_pipeline(MKLClassifier())):
        with pytest.raises(ModelFileError, match=r"is not fitted.*call fit"):
            save(model, there)
    for other in (MKLClassifier, {"a": 1}, RBF(width=1)):
        with pytest.raises(ModelFileError, match="save takes a fitted estimator"):
            save(other, there)


def test_a_bad_place_is_named(tmp_path):
    model, _ = kinds.fitted("classifier")
    with pytest.raises(ModelFileError, match=r"folder of '.*no_such.*' does not exist"):
        save(model, tmp_path / "no_such" / "model.skops")
    with pytest.raises(ModelFileError, match="is a folder"):
        save(model, tmp_path)


def local_kernel():
    class Local(kinds.Wavelet):
        pass

    return Local()


UNSAVEABLE = {
    "a lambda": (
        lambda: FunctionTransformer(lambda X: X),
        r"model\.kernels\[0\]\.selection.*lambda",
    ),
    "a local class": (None, r"kernels\[0\].*Local"),
    "a generator": (lambda: FunctionTransformer(kw_args={"a": (i for i in "a")}), "generator"),
    "a frame": (lambda: FunctionTransformer(kw_args={"a": pd.DataFrame()}), "DataFrame"),
}


@pytest.mark.parametrize("name", UNSAVEABLE)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_cannot_be_saved_is_named_and_the_old_file_stays(name, there):
    X, y = kinds.iris()
    make, said = UNSAVEABLE[name]
    model, _ = kinds.fitted("classifier")
    save(model, there)
    own = local_kernel() if make is None else Linear()
    wrong = MKLClassifier([own]).fit(X, y)
    if make is not None:
        wrong.kernels = [own.on([0, 1], make())]
    with pytest.raises(ModelFileError, match=f"cannot be saved: .*{said}"):
        save(wrong, there)
    same_answers(model, load(there), X)


def test_a_later_format_of_skops_is_refused_by_name(there, monkeypatch):
    dumps = skops.io.dumps

    def later(value):
        """What a later version would write."""
        changed = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(dumps(value))) as old:
            schema = json.loads(old.read("schema.json"))
        with zipfile.ZipFile(changed, "w") as new:
            new.writestr("schema.json", json.dumps({**schema, "protocol": 99}))
        return changed.getvalue()

    model = MKLClassifier("linear", random_state=np.random.RandomState(0))
    model.fit(np.arange(4.0)[:, None], [0, 0, 1, 1])
    save(model, there)
    monkeypatch.setattr(skops.io, "dumps", later)
    with pytest.raises(ModelFileError, match=r"random_state.*format 99.*install skops"):
        save(model, there)


def test_a_model_that_holds_itself_is_refused(there):
    model = pickle.loads(pickle.dumps(kinds.fitted("classifier")[0]))
    model.other_ = [model]
    with pytest.raises(ModelFileError, match=r"model\.other_\[0\].*holds itself"):
        save(model, there)


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_save_that_fails_leaves_the_old_file(call, there, monkeypatch):
    model, X = kinds.fitted("classifier")
    save(model, there)

    def fail(*_):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(ModelFileError, match="cannot be written: no space left"):
            save(kinds.fitted("ovr")[0], there)
    assert [file.name for file in there.parent.iterdir()] == [there.name]
    same_answers(model, load(there), X)


def test_header_is_exported():
    assert isinstance(Header.__doc__, str)
    with pytest.raises(InvalidInputError, match="trusted must be"):
        load("x", trusted="a.b")
