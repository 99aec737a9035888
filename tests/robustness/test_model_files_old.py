"""Old model files load: those of the first version, of other versions, of before classes moved."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import write_model_fixtures as fixtures
from forged_model_files import HEADER, forge, parts_of, put_together
from sklearn.exceptions import InconsistentVersionWarning

from kernelweave import load
from kernelweave.errors import ModelFileError, ModelFileWarning
from kernelweave.model_files import read_header
from kernelweave.model_files.names import MOVED

PANDAS = fixtures.FOLDER / "model_v1_pandas.skops"
EXPECTED = json.loads((fixtures.FOLDER / "model_v1_expected.json").read_text(encoding="utf-8"))
# The versions that wrote the fixtures may be other ones than those that read them.
pytestmark = pytest.mark.filterwarnings("ignore::kernelweave.errors.ModelFileWarning")


@pytest.fixture
def there(tmp_path):
    return tmp_path / "model.skops"


def samples(name):
    columns, _ = fixtures.table()
    if name == "sequences":
        return fixtures.sequences()[0]
    if name in ("bayesian", "regressor"):
        return np.column_stack([columns["age"], columns["dose"]])
    return (fixtures.pl if name == "polars" else fixtures.pd).DataFrame(columns)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_files_of_the_first_version_load(name):
    path = fixtures.FOLDER / f"model_v1_{name}.skops"
    assert read_header(path).about == {"fixture": name}
    model = load(path)
    X = samples(name)
    np.testing.assert_allclose(fixtures.answers(model, X), EXPECTED[name], rtol=1e-7, atol=1e-9)
    # Not only what it predicts: what it can be asked, and a new fit, work too.
    assert repr(model)
    final = model[-1] if name == "pipeline" else model
    if name == "regressor":
        # C and epsilon of its fit were in units of y, and they still are.
        assert final.target_scale is None
        assert (final.target_shift_, final.target_scale_) == (0.0, 1.0)
    assert len(final.kernel_names_) == len(np.atleast_2d(final.weights_)[0])
    if name != "pipeline":
        assert model.combined_kernel(X).shape == (len(X), len(X))
        y = X[:, 1] if name in ("bayesian", "regressor") else np.arange(len(X)) % 2
        assert model.fit(X, y).weights_.any()


def test_the_fixtures_are_written_once(capsys):
    with pytest.raises(SystemExit, match="written once"):
        fixtures.main()


def written_with(there, versions, sklearn_inside=None):
    """A good file that says it was written with other versions."""
    parts = parts_of(PANDAS)
    header = json.loads(parts[HEADER])
    header["versions"] |= versions
    if sklearn_inside is not None:
        mine = header["versions"]["scikit-learn"]
        text = parts["schema.json"].decode()
        now = f'\\"{read_header(PANDAS).versions["scikit-learn"]}\\"'
        assert text.count(now) >= 2, mine
        parts["schema.json"] = text.replace(now, f'\\"{sklearn_inside}\\"').encode()
    return put_together(there, {**parts, HEADER: json.dumps(header).encode()})


def test_another_scikit_learn_is_told_once(there):
    path = written_with(there, {"scikit-learn": "1.2.3"}, "1.2.3")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        load(path)
    kinds = [warning.category for warning in told]
    assert kinds == [ModelFileWarning] and InconsistentVersionWarning not in kinds
    assert "from scikit-learn were fitted with version 1.2.3" in str(told[0].message)
    assert told[0].filename == __file__


def test_versions_that_do_not_matter_are_not_told(there, monkeypatch):
    here = {"scikit-learn": __import__("sklearn").__version__}
    path = written_with(there, {**here, "numpy": "1.0.0", "kernelweave": "0.0.1", "skops": "9.9"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(path)


def test_a_newer_kernelweave_is_told(there):
    path = written_with(there, {"kernelweave": "77.1.0"})
    with pytest.warns(ModelFileWarning, match=r"written by kernelweave 77.1.0.*update"):
        load(path)

    def change(schema):
        schema["content"]["content"]["verbose"] = {
            "__class__": "Future",
            "__module__": "kernelweave.kernels",
            "__loader__": "ObjectNode",
        }

    with pytest.raises(ModelFileError, match=r"kernels\.Future.*77\.1\.0.*update"):
        load(forge(path, there, change))


def test_classes_that_moved_are_found(there, monkeypatch):
    def change(schema):
        text = json.dumps(schema)
        old = '"__class__": "RBF", "__module__": "kernelweave.kernels"'
        assert old in text
        new = '"__class__": "Gauss", "__module__": "kernelweave.old.place"'
        return json.loads(text.replace(old, new))

    forge(PANDAS, there, change)
    with pytest.raises(ModelFileError, match=r"kernelweave\.old\.place\.Gauss"):
        load(there)
    monkeypatch.setitem(MOVED, "kernelweave.old.place.Gauss", "kernelweave.kernels.RBF")
    X = samples("pandas")
    np.testing.assert_allclose(fixtures.answers(load(there), X), EXPECTED["pandas"], rtol=1e-7)


def test_names_lead_to_classes_that_may_be_made():
    from kernelweave.model_files.names import own_class

    for new in MOVED.values():
        module, _, name = new.rpartition(".")
        assert not module.startswith("kernelweave") or own_class(module, name) is not None


@pytest.mark.parametrize("kind", ["FullSquares", "ThinSquares"])
def test_sums_of_squared_kernels_in_older_files(kind):
    """They were classes of their own; now they are matrices like the others."""
    from kernelweave.model_files.names import own_class

    rows = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, -1.0]])
    square = rows.T @ rows
    known = {"_matrix": square} if kind == "FullSquares" else {"_thin": rows}
    module, _, name = MOVED[f"kernelweave.solvers.bemkl.squares.{kind}"].rpartition(".")
    cls = own_class(module, name)
    found = cls.__new__(cls)
    found.__setstate__(known | {"n": 3, "trace": float(np.trace(square))})
    found.check("the sum of squared kernels", 3)
    np.testing.assert_allclose(found.matrix, square)
