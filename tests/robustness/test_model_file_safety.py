"""Files that are damaged, foreign or forged are refused, and nothing in them is run."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path

import model_file_kinds as kinds
import numpy as np
import pytest
import skops.io
from forged_model_files import (
    HEADER,
    SCHEMA,
    attributes,
    call,
    forge,
    node,
    parts_of,
    put_together,
    several,
    value,
)
from same_numbers import assert_same_numbers
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import kernelweave
from kernelweave import Checkpoint, MKLClassifier, load, save
from kernelweave.errors import MemoryBudgetError, ModelFileError, ModelFileWarning
from kernelweave.kernels import RBF, Linear, families
from kernelweave.model_files import names, read_header
from kernelweave.model_files.names import own_class


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    X, y = kinds.iris()
    model = MKLClassifier([RBF(width=1).on([0, 2], StandardScaler()), Linear()]).fit(X, y)
    path = save(model, tmp_path_factory.mktemp("models") / "model.skops")
    return path, model.decision_function(X)


@pytest.fixture
def there(tmp_path):
    return tmp_path / "forged.skops"


# Forged files


def forged_nodes(flag):
    """Nodes that would leave a file at `flag`, or that are the means to it."""
    code = f"open({str(flag)!r}, 'w').close()"
    shell = f"touch {flag}"
    system = node("os.system", "FunctionNode")
    none = value(None)
    partial = {"func": system, "args": several(shell), "kwds": attributes(), "namespace": none}
    scaler = node("sklearn.preprocessing._data.StandardScaler", "ObjectNode")
    own = node("kernelweave.kernels.RBF", "ObjectNode", content=attributes(width=value(1.0)))
    random = {"bit_generator": attributes(bit_generator=value("seed")), "seed_seq": attributes()}
    return {
        "os.system": call("os.system", shell),
        "posix.system": call("posix.system", shell),
        "eval": call("builtins.eval", code),
        "exec": call("builtins.exec", code),
        "eval as a type": node("builtins.eval", "TypeNode"),
        "eval as a list": node("builtins.eval", "ListNode", content=[value(code)]),
        "exec as an array": node("builtins.exec", "NdArrayNode", type="numpy", file="schema.json"),
        "subprocess": call("subprocess.Popen", shell),
        "function": system,
        "partial": node("functools.partial", "PartialNode", content=partial),
        "operator": node("operator.methodcaller", "OperatorFuncNode", attrs=several("fit")),
        "operator of os": node("os.system", "OperatorFuncNode", attrs=several(shell)),
        "method": node(
            "kernelweave.kernels.RBF", "MethodNode", content={"func": "__init__", "obj": own}
        ),
        "method of another": node(
            "sklearn.preprocessing._data.StandardScaler",
            "MethodNode",
            content={"func": "fit", "obj": scaler},
        ),
        "our function": node("kernelweave.reading.read_sequences", "FunctionNode"),
        "our function called": call("kernelweave.kernels.precomputed.sample_ids", 3),
        "our function made": node("kernelweave.kernels.as_samples", "ObjectNode"),
        "our class called": call("kernelweave.kernels.RBF", 1.0),
        "our class as a type": node("kernelweave.kernels.RBF", "TypeNode"),
        "our class as a list": node("kernelweave.kernels.RBF", "ListNode", content=[]),
        "our class as a tuple": node("kernelweave.kernels.RBF", "TupleNode", content=[]),
        "what we import": node("kernelweave.model_files.archive.os.system", "FunctionNode"),
        "a module we import": node("kernelweave.kernels.samples.np", "ObjectNode"),
        "a class we import": node("kernelweave.kernels.vectors.Kernel", "ObjectNode"),
        "a checkpoint": node(
            "kernelweave.Checkpoint", "ObjectNode", content=attributes(path=value(str(flag)))
        ),
        "a worker": node("kernelweave.cluster.team.Team", "ObjectNode"),
        "the command line": node("kernelweave.cli.app.app", "ObjectNode"),
        "our main": node("kernelweave.__main__.main", "ObjectNode"),
        "unknown of ours": node("kernelweave.kernels.NoSuch", "ObjectNode"),
        "a scorer called": call("sklearn.metrics._classification.accuracy_score", [1], [1]),
        "a sparse type called": call("scipy.sparse._csr.csr_matrix", 3),
        "a dtype called": call("numpy.dtype", "i8"),
        "any of numpy.random": node(
            "numpy.random._generator.Generator", "RandomGeneratorNode", content=random
        ),
    }


@pytest.mark.parametrize("name", forged_nodes("x"))
@pytest.mark.parametrize("where", ["verbose", "kernels", "the model"])
def test_forged_files_are_refused_and_not_run(name, where, saved, there, tmp_path):
    flag = tmp_path / "flag"
    bad = forged_nodes(flag)[name]

    def change(schema):
        if where == "the model":
            return {**bad, "protocol": schema["protocol"], "_skops_version": "0.16"}
        schema["content"]["content"][where] = bad

    forge(saved[0], there, change)
    with pytest.raises(ModelFileError, match=r"not known to be safe|cannot be loaded"):
        load(there)
    assert not flag.exists()


def test_the_graft_itself_is_not_what_is_refused(saved, there):
    def change(schema):
        schema["content"]["content"]["verbose"] = value(7)

    assert load(forge(saved[0], there, change)).verbose == 7


def in_older_protocol(schema):
    schema["protocol"] = 0
    function = {"module_path": "os", "function": "system"}
    bad = node("numpy.add", "FunctionNode", content=function)
    schema["content"]["content"]["verbose"] = bad


def without_protocol(schema):
    del schema["protocol"]


def with_unknown_reference(schema):
    schema["content"]["content"]["verbose"] = {
        "__class__": None,
        "__module__": None,
        "__loader__": "CachedNode",
        "__id__": 999_999,
    }


def with_itself_inside(schema):
    schema["content"]["content"]["verbose"] = {
        "__class__": None,
        "__module__": None,
        "__loader__": "CachedNode",
        "__id__": schema["__id__"],
    }


def with_unknown_loader(schema):
    schema["content"]["content"]["verbose"] = node("builtins.int", "NewNode")


def with_nameless_part(schema):
    schema["content"]["content"]["verbose"] = {"__loader__": "ObjectNode", "__class__": 3}


def with_file_outside(schema):
    bad = node("numpy.ndarray", "NdArrayNode", type="numpy", file="../../etc/passwd")
    schema["content"]["content"]["verbose"] = bad


def with_nothing(schema):
    return {"protocol": 2}


BROKEN = [
    in_older_protocol,
    without_protocol,
    with_unknown_reference,
    with_itself_inside,
    with_unknown_loader,
    with_nameless_part,
    with_file_outside,
    with_nothing,
]


@pytest.mark.parametrize("change", BROKEN, ids=lambda change: change.__name__)
def test_broken_schemas_are_refused(change, saved, there):
    with pytest.raises(ModelFileError, match=r"is damaged|cannot be loaded"):
        load(forge(saved[0], there, change))


def test_a_schema_that_is_too_deep_is_refused(saved, there):
    parts = parts_of(saved[0])
    parts[SCHEMA] = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    with pytest.raises(ModelFileError, match="is damaged"):
        load(put_together(there, parts))


def test_our_types_are_classes_that_we_define():
    assert own_class("kernelweave.kernels", "RBF") is RBF
    assert own_class("kernelweave.kernels.vectors", "RBF") is RBF
    assert own_class("kernelweave", "MKLClassifier") is MKLClassifier
    # Where it is only imported it is not meant, and what is no part of a model is no type of it.
    assert families.RBF is RBF
    for name in ("kernelweave.kernels.families.RBF", "kernelweave.Checkpoint", "os.system"):
        assert own_class(*name.rsplit(".", 1)) is None
    assert own_class("kernelweave.kernels", "rbf.RBF") is None
    assert own_class("kernelweave.kernels.", "RBF") is None


def test_calls_are_refused_whatever_skops_thinks_of_them():
    calls = ("method", "method of another", "operator", "partial", "any of numpy.random")
    for call_ in (forged_nodes("x")[name] for name in calls):
        full = f"{call_['__module__']}.{call_['__class__']}"
        assert names.trusted_names([call_], frozenset())[1] == {full}


def test_nothing_is_imported_to_find_out(monkeypatch):
    asked = []
    monkeypatch.setattr(names, "import_module", asked.append)
    for module in ("os", "kernelweave.cli.app", "kernelweave.__main__", "kernelweave.report"):
        assert own_class.__wrapped__(module, "main") is None
    assert asked == []


# Types of a user's own


@pytest.fixture(scope="module")
def own_types(tmp_path_factory):
    X, y = kinds.iris()
    own = [
        kinds.Wavelet(2.0).on([0, 1], kinds.Halved()),
        Linear().on(2, FunctionTransformer(kinds.twice)),
    ]
    model = MKLClassifier(own).fit(X, y)
    return save(model, tmp_path_factory.mktemp("own") / "own.skops"), model


def test_types_of_ones_own_must_be_named(own_types):
    path, model = own_types
    names = [f"model_file_kinds.{name}" for name in ("Halved", "Wavelet", "twice")]
    with pytest.raises(ModelFileError) as told:
        load(path)
    assert f"load(path, trusted={names!r})" in str(told.value)
    with pytest.raises(ModelFileError, match=r"trusted=\['model_file_kinds.twice'\]"):
        load(path, trusted=names[:2])
    X, _ = kinds.iris()
    for trusted in (names, [kinds.Halved, kinds.Wavelet, kinds.twice]):
        again = load(path, trusted=trusted)
        assert_same_numbers(again.decision_function(X), model.decision_function(X))


def test_a_type_that_is_gone_is_told(own_types, monkeypatch):
    monkeypatch.delattr(kinds, "Wavelet")
    names = [f"model_file_kinds.{name}" for name in ("Halved", "Wavelet", "twice")]
    with pytest.raises(ModelFileError, match=r"cannot be loaded: AttributeError.*Wavelet"):
        load(own_types[0], trusted=names)


# Damage


@pytest.mark.parametrize("part", [0.02, 0.3, 0.7, 0.999])
def test_a_file_that_was_cut_short_is_told(part, saved, there):
    data = saved[0].read_bytes()
    there.write_bytes(data[: int(part * len(data))])
    for read in (load, read_header):
        with pytest.raises(ModelFileError, match="cut short or is damaged"):
            read(there)


def test_a_byte_that_changed_is_found_or_does_not_matter(saved, there):
    data = bytearray(saved[0].read_bytes())
    rng = np.random.default_rng(0)
    X, _ = kinds.iris()
    found = 0
    for place in rng.integers(0, len(data), 60):
        wrong = bytearray(data)
        wrong[place] ^= 1 << int(rng.integers(8))
        there.write_bytes(wrong)
        try:
            again = load(there)
        except ModelFileError:
            found += 1
        else:
            assert_same_numbers(again.decision_function(X), saved[1])
    assert found > 40


def member_changed(parts):
    name = next(name for name in parts if name.endswith(".npy"))
    parts[name] = parts[name][:-1] + bytes([parts[name][-1] ^ 1])


def member_missing(parts):
    del parts[next(name for name in parts if name.endswith(".npy"))]


def member_added(parts):
    parts["more.npy"] = b"1"


def schema_changed(parts):
    parts[SCHEMA] = parts[SCHEMA].replace(b"StandardScaler", b"MinMaxScaler")


def schema_missing(parts):
    del parts[SCHEMA]


@pytest.mark.parametrize(
    "change",
    [member_changed, member_missing, member_added, schema_changed, schema_missing],
    ids=lambda change: change.__name__,
)
def test_changed_members_are_found(change, saved, there):
    parts = parts_of(saved[0])
    change(parts)
    put_together(there, parts, honest=False)
    with pytest.raises(ModelFileError, match="is damaged, or has been changed"):
        load(there)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name_are_refused(saved, there):
    there.write_bytes(saved[0].read_bytes())
    with zipfile.ZipFile(there, "a") as archive:
        archive.writestr(SCHEMA, parts_of(saved[0])[SCHEMA])
    with pytest.raises(ModelFileError, match="has been changed"):
        load(there)


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{", b'{"format": "1"}', b'{"format": 1}', b"\xff", b'{"format": 1, "model": 3}'],
)
def test_a_header_that_cannot_be_read_is_told(text, saved, there):
    put_together(there, {**parts_of(saved[0]), HEADER: text}, honest=False)
    for read in (load, read_header):
        with pytest.raises(ModelFileError, match="its header cannot be read"):
            read(there)


@pytest.mark.parametrize("version", [3, None, [], {}])
def test_versions_that_are_no_text_are_told(version, saved, there):
    parts = parts_of(saved[0])
    header = json.loads(parts[HEADER])
    header["versions"]["kernelweave"] = version
    put_together(there, {**parts, HEADER: json.dumps(header).encode()})
    with pytest.raises(ModelFileError, match="its versions are no text"):
        load(there)


def test_a_version_of_thousands_of_digits_is_newer(saved, there):
    parts = parts_of(saved[0])
    header = json.loads(parts[HEADER])
    header["versions"]["kernelweave"] = "9" * 5000
    put_together(there, {**parts, HEADER: json.dumps(header).encode()})
    with pytest.warns(ModelFileWarning, match="It was written by kernelweave 999"):
        load(there)


@pytest.mark.parametrize("name", ["more.npy", HEADER, SCHEMA])
def test_parts_that_no_memory_holds_are_not_unpacked(name, saved, there, monkeypatch):
    """Ten megabytes of blanks take ten kilobytes, and the size in the archive may be wrong."""
    parts = parts_of(saved[0])
    parts[name] = parts.get(name, b"") + b" " * 10**7
    put_together(there, parts, packed=True, honest=name != HEADER)
    monkeypatch.setattr("kernelweave.reading.bounded.available_bytes", lambda: 2e7)
    with pytest.raises(MemoryBudgetError, match=rf"forged.skops': .*{name}.* is 10 MB, 50% of"):
        load(there)
    if name == HEADER:
        with pytest.raises(MemoryBudgetError, match=r"the limit is 10 MB"):
            read_header(there)


def test_an_array_that_many_parts_refer_to_is_counted_for_each(saved, there, monkeypatch):
    parts = parts_of(saved[0])
    large = max((n for n in parts if n.endswith(".npy")), key=lambda n: len(parts[n]))
    same = node("numpy.ndarray", "NdArrayNode", type="numpy", file=large)

    def change(schema):
        many = node("builtins.list", "ListNode", content=[same] * 20_000)
        schema["content"]["content"]["verbose"] = many

    forge(saved[0], there, change)
    schema = len(parts_of(there)[SCHEMA])
    # Enough for the schema as Python's objects, and for half of the arrays.
    free = 2 * (30 * schema + 10_000 * len(parts[large]))
    monkeypatch.setattr("kernelweave.reading.bounded.available_bytes", lambda: free)
    with pytest.raises(MemoryBudgetError, match=r"forged.skops': the arrays of the model needs"):
        load(there)


@pytest.mark.parametrize("name", [HEADER, SCHEMA])
def test_members_in_the_packing_of_others_are_told(name, saved, there):
    """Errors of the unpacker of xz are of no kind that others have."""
    with zipfile.ZipFile(there, "w") as archive:
        for member, data in parts_of(saved[0]).items():
            packing = zipfile.ZIP_LZMA if member == name else zipfile.ZIP_STORED
            archive.writestr(member, data, packing)
    wrong = bytearray(there.read_bytes())
    begin = wrong.index(name.encode()) + len(name)
    wrong[begin + 4 : begin + 9] = b"\xff" * 5
    there.write_bytes(wrong)
    with pytest.raises(ModelFileError, match=r"header cannot be read|is damaged"):
        load(there)


def test_a_file_of_a_newer_format_asks_for_an_update(saved, there):
    parts = parts_of(saved[0])
    header = json.loads(parts[HEADER])
    newer = {"format": 2, "versions": {"kernelweave": "9.1.0"}, "other": header["kernels"]}
    put_together(there, {**parts, HEADER: json.dumps(newer).encode()}, honest=False)
    for read in (load, read_header):
        with pytest.raises(ModelFileError, match=r"by a newer kernelweave \(9.1.0\).*Update"):
            read(there)


# Other files


def write_pickle(path):
    path.write_bytes(pickle.dumps({"a": 1}))


def write_zip(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("hello.txt", "hello")


def write_skops(path):
    skops.io.dump(StandardScaler(), path)


def write_checkpoint(path):
    other = path.with_suffix(".npz")
    MKLClassifier([Linear()], callbacks=[Checkpoint(other)]).fit(*kinds.iris())
    other.rename(path)


OTHERS = {
    "a pickle": (write_pickle, "looks like a pickle"),
    "text": (lambda path: path.write_text("hello"), "no zip archive"),
    "nothing": (lambda path: path.write_bytes(b""), "it is empty"),
    "a folder": (Path.mkdir, "is a folder"),
    "no file": (lambda path: None, "does not exist"),
    "a zip": (write_zip, "another kind of zip"),
    "skops": (write_skops, "use skops.io.load"),
    "a checkpoint": (write_checkpoint, "warm_start_from"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_files_are_named(name, there):
    make, said = OTHERS[name]
    make(there)
    for read in (load, read_header):
        with pytest.raises(ModelFileError, match=said):
            read(there)


def test_a_path_may_be_text(saved):
    assert read_header(str(saved[0])).versions["kernelweave"] == kernelweave.__version__
    assert_same_numbers(load(str(saved[0])).decision_function(kinds.iris()[0]), saved[1])
