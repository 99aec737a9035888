"""Model files and checkpoints with one thing changed, digests right again: run as a process.

``python mutated_files.py folder seed first count`` makes mutations number `first` to `count` of the
files in `folder`, one file after the other, opens each and uses it, and prints a line of JSON
before ("what is done") and after each ("what came of it"), so that a process that dies tells why.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import resource
import subprocess
import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from forged_model_files import HEADER, SCHEMA, parts_of, put_together

# What forgers write in the place of a number, a text or a flag.
ODD = [0, -1, 1, 2, 7, 10**6, -(10**6), 2**31, -(2**31) - 1, 2**63 - 1, -(2**63), 10**30, 0.5, -0.5]
ODD += [1e-320, 1e30, 1e300, -1e300, np.nan, np.inf, -np.inf, "", "x", "nan", None, True, False]
ODD += [[], [0], [-5, 5], [-100_000, 100_000], {}, {"a": 1}]
ADDRESS_SPACE = 8 * 2**30
# What scikit-learn says where a step of a pipeline gives other columns than the next one reads.
CLEAR = ("The feature names should match", "features, but")


# Arrays


def odd_array(array, rng):
    """The array with some of its values, its shape or its type changed; and how."""
    array = np.array(array)
    kind = rng.choice(["value", "value", "value", "shape", "shape", "dtype"])
    if kind == "value" and array.size and array.dtype.kind in "fiub":
        if array.dtype.kind == "f":
            values = [np.nan, np.inf, -np.inf, -1.0, 0.0, 1e300, -1e300, 1e-310, 0.5]
        else:
            values = [-1, 0, 1, array.size, 127, 100, -100]
            if array.dtype.itemsize >= 4:
                values += [10**6, -(10**6), 2**31 - 1]
        value = values[rng.integers(len(values))]
        where = rng.integers(array.size) if rng.random() < 0.7 else slice(None)
        if array.dtype.kind == "u" and value < 0:
            value = 255
        with np.errstate(all="ignore"):
            if rng.random() < 0.2:
                array = (array + (5 if array.dtype.kind in "iu" else value)).astype(array.dtype)
            else:
                array.reshape(-1)[where] = np.asarray(value).astype(array.dtype)
        return array, f"value {value}"
    if kind in ("value", "shape"):
        changes = {
            "empty": lambda: np.atleast_1d(array)[:0],
            "shorter": lambda: array[:-1] if array.ndim else array.reshape(1),
            "longer": lambda: np.concatenate([array, array]) if array.ndim else np.tile(array, 3),
            "thinner": lambda: array[..., :-1] if array.ndim else array.reshape(1, 1),
            "wider": lambda: np.concatenate([array, array], -1) if array.ndim else array[None],
            "flat": lambda: array.reshape(-1),
            "axis": lambda: array[None],
            "last axis": lambda: array[..., None],
            "transposed": lambda: np.ascontiguousarray(array.T),
            "one": lambda: array.reshape(-1)[:1].reshape(()) if array.size else array,
        }
        name = list(changes)[rng.integers(len(changes))]
        return changes[name](), f"shape {name}"
    types = ["f4", "f8", "i8", "i4", "u1", "?", "c16", "U3", ">f8", ">i8", "S2", "M8[s]", "f2"]
    name = types[rng.integers(len(types))]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return array.astype(name), f"dtype {name}"
        except (TypeError, ValueError):
            return np.asfortranarray(array), "fortran"


def bytes_of(array):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


# Models


def odd_json(value, rng):
    """A plain value, list or dict with one thing changed; and how."""
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = int(rng.integers(len(value)))
        what = rng.choice(["change", "drop", "repeat"])
        if what == "change":
            inner, how = odd_json(value[place], rng)
            return [*value[:place], inner, *value[place + 1 :]], f"[{place}] {how}"
        rest = value[:place] + value[place + 1 :] if what == "drop" else [*value, value[place]]
        return rest, f"[{place}] {what}"
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = sorted(value)[rng.integers(len(value))]
        if rng.random() < 0.25:
            return {k: v for k, v in value.items() if k != name}, f".{name} missing"
        inner, how = odd_json(value[name], rng)
        return {**value, name: inner}, f".{name} {how}"
    new = ODD[rng.integers(len(ODD))]
    if isinstance(value, int | float) and not isinstance(value, bool) and rng.random() < 0.4:
        new = [value + 1, value - 1, -value, 2 * value, 10 * value, 0][rng.integers(6)]
    return new, f"-> {new!r}"


def sites(schema):
    """(owner, path, node) of every node, the owner being the class of the object it is in."""
    out, waiting = [], [(schema, "model", "")]
    while waiting:
        item, path, owner = waiting.pop()
        if isinstance(item, list):
            waiting.extend((part, f"{path}[{i}]", owner) for i, part in enumerate(item))
        elif isinstance(item, dict):
            if "__loader__" in item:
                if item["__loader__"] == "ObjectNode":
                    owner = f"{item['__module__']}.{item['__class__']}"
                out.append((owner, path, item))
            for name, part in item.items():
                if name != "key_types" and isinstance(part, dict | list):
                    waiting.append((part, path if name == "content" else f"{path}.{name}", owner))
    return out


def mutate_model(parts, rng):
    """Change one thing in the members of a model file; returns whose it was and what was done."""
    schema = json.loads(parts[SCHEMA])
    found = sites(schema)
    while True:
        owner, path, node = found[rng.integers(len(found))]
        loader = node["__loader__"]
        if loader == "JsonNode":
            value, how = odd_json(json.loads(node["content"]), rng)
            node["content"] = json.dumps(value)
        elif loader in ("NdArrayNode", "SparseMatrixNode") and "file" in node:
            how = f"{loader} {mutate_member(parts, node, rng)}"
        elif loader == "DictNode" and node["content"]:
            name = sorted(node["content"])[rng.integers(len(node["content"]))]
            place = list(node["content"]).index(name)
            what = rng.choice(["missing", "swapped", "odd", "extra"])
            if what == "missing":
                del node["content"][name]
                del node["key_types"]["content"][place]
            elif what == "extra":
                other = found[rng.integers(len(found))][2]
                node["content"][f"{name}_"] = json.loads(json.dumps(other))
                node["key_types"]["content"].append(node["key_types"]["content"][place])
            elif what == "swapped":
                other = found[rng.integers(len(found))][2]
                node["content"][name] = json.loads(json.dumps(other))
            else:
                value = ODD[rng.integers(len(ODD))]
                node["content"][name] = plain(value)
            how = f".{name} {what}"
        elif loader in ("ListNode", "TupleNode") and node["content"]:
            place = int(rng.integers(len(node["content"])))
            what = rng.choice(["drop", "repeat", "odd"])
            if what == "drop":
                del node["content"][place]
            elif what == "repeat":
                node["content"].append(json.loads(json.dumps(node["content"][place])))
            else:
                node["content"][place] = plain(ODD[rng.integers(len(ODD))])
            how = f"[{place}] {what}"
        else:
            continue
        parts[SCHEMA] = json.dumps(schema).encode()
        return owner, f"{path} {how}"


def plain(value):
    text = json.dumps(value)
    names = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode"}
    return {**names, "is_json": True, "content": text}


def mutate_member(parts, node, rng):
    """Change an array beside the schema, for the node alone that refers to it."""
    data = parts[node["file"]]
    suffix = node["file"].rpartition(".")[2]
    if suffix == "npz":
        with np.load(io.BytesIO(data)) as file:
            arrays = dict(file)
        name = sorted(arrays)[rng.integers(len(arrays))]
        arrays[name], how = odd_array(arrays[name], rng)
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        data, how = buffer.getvalue(), f"{name} {how}"
    else:
        array, how = odd_array(np.load(io.BytesIO(data)), rng)
        data = bytes_of(array)
    node["file"] = f"changed.{suffix}"
    parts[node["file"]] = data
    return how


def use(model, X):
    """Ask a model all that it can be asked."""
    some = X[:6]
    for name in ("predict", "decision_function", "predict_proba", "transform", "score_samples"):
        if hasattr(model, name):
            getattr(model, name)(some)
    last = model[-1] if hasattr(model, "steps") else model
    if last is model and hasattr(model, "explain"):
        model.explain(some)
        model.summary()
        repr(model)


def try_model(file, there, rng):
    from kernelweave import load

    path = there / "changed.skops"
    parts = parts_of(file)
    owner, how = mutate_model(parts, rng)
    put_together(path, parts)
    yield f"{owner}: {how}"
    X = pickle.loads(file.with_suffix(".pickle").read_bytes())
    yield outcome(lambda: load(path), lambda model: use(model, X), owner, path)


# Checkpoints


def solvers():
    """Estimators whose fits write checkpoints, and the samples that they are fitted on."""
    from cut_fits import KERNELS
    from sklearn.datasets import load_iris

    from kernelweave import BayesianMKLClassifier, BayesianMKLRegressor, MKLClassifier, MKLRegressor
    from kernelweave.kernels import Linear

    X, y = load_iris(return_X_y=True)
    X, y = X[::6], y[::6]
    few = {"max_iter": 30, "tol": 1e-6}
    names = ("active-set", "silp", "silp-chunking", "spg", "spicy", "mwu", "uniform", "align")
    out = {
        name: (MKLClassifier(KERNELS, solver=name, **few), X, (y > 0).astype(int)) for name in names
    }
    out["classes"] = MKLClassifier(KERNELS, solver="spg", multi_class="ovr", **few), X, y
    out["logistic"] = MKLClassifier(KERNELS, solver="spicy", loss="logistic", **few), X, y
    out["squared"] = MKLRegressor(KERNELS, solver="silp", loss="squared", **few), X, X[:, 0]
    out["bayes"] = BayesianMKLClassifier(KERNELS, max_iter=8), X, y
    out["bayes outputs"] = BayesianMKLRegressor([*KERNELS, Linear().on(0)], max_iter=8), X, X[:, 1]
    return out


def mutate_checkpoint(path, there, rng):
    arrays = arrays_of(path)
    names = sorted(arrays)
    if rng.random() < 0.7:
        # Those of the point and of the solver matter most.
        names = [name for name in names if name[0].isdigit() and "." in name]
    name = names[rng.integers(len(names))]
    what = rng.choice(["odd", "odd", "odd", "odd", "missing", "swapped"])
    if what == "missing":
        del arrays[name]
    elif what == "swapped":
        arrays[name] = arrays[sorted(arrays)[rng.integers(len(arrays))]]
    else:
        arrays[name], what = odd_array(arrays[name], rng)
    write_arrays(there, arrays)
    return f"{name} {what}"


def arrays_of(path):
    with np.load(path) as file:
        return {name: file[name] for name in file.files if name != HEADER}


def write_arrays(path, arrays, **how):
    """Write a checkpoint, with the right digests unless told otherwise."""
    members = {f"{name}.npy": bytes_of(np.asarray(value)) for name, value in arrays.items()}
    header = parts_of(path)[HEADER] if Path(path).exists() else b"{}"
    put_together(path, {HEADER: header, **members}, **how)


def try_checkpoint(file, there, rng):
    from cut_fits import resumed

    estimator, X, y = solvers()[file.stem]
    path = there / "changed.npz"
    yield mutate_checkpoint(file, path, rng)

    def finite(model):
        ask = getattr(model, "decision_function", model.predict)
        if not np.isfinite(ask(X)).all():
            raise ArithmeticError("the model is not finite")

    yield outcome(lambda: resumed(estimator, path, X, y), finite, "kernelweave", path)


# What came of it


def outcome(make, ask, owner, path):
    """Say what came of a file: refused, works, an error later on, or one that nobody wrote."""
    from kernelweave.errors import InvalidInputError, MemoryBudgetError, UnknownNameError

    ours = (InvalidInputError, MemoryBudgetError, UnknownNameError)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = make()
        except ours as error:
            return "refused" if str(path) in str(error) else f"BARE (no file named): {error}"
        except Exception as error:
            return f"BARE when opened: {type(error).__name__}: {error}"
        try:
            sys.stdout = io.StringIO()
            ask(made)
        except ours:
            return "a clear error later"
        except Exception as error:
            if any(words in str(error) for words in CLEAR):
                return "a clear error later"
            if not owner.startswith("kernelweave"):
                return "an error of scikit-learn"
            return f"BARE when used: {type(error).__name__}: {error}"
        finally:
            sys.stdout = sys.__stdout__
    return "works"


# Processes


def main():
    folder, (seed, first, count) = Path(sys.argv[1]), map(int, sys.argv[2:5])
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, resource.RLIM_INFINITY))
    files = sorted(path for path in folder.iterdir() if path.suffix in (".skops", ".npz"))
    with TemporaryDirectory() as there:
        for number in range(first, count):
            file = files[number % len(files)]
            attempt = try_model if file.suffix == ".skops" else try_checkpoint
            steps = attempt(file, Path(there), np.random.default_rng([seed, number]))
            print(json.dumps([number, f"{file.name}: {next(steps)}"]), flush=True)
            print(json.dumps([number, next(steps)]), flush=True)


def run(folder, count, seed=0):
    """Outcomes of `count` mutations: [(what was done, what came of it)]; signals are outcomes."""
    found = []
    first = 0
    while first < count:
        command = [sys.executable, __file__, str(folder), str(seed), str(first), str(count)]
        env = {**os.environ, "PYTHONWARNINGS": "ignore"}
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=3600)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
        pairs = list(zip(lines[::2], lines[1::2], strict=False))
        found += [(what, came) for (_, what), (_, came) in pairs]
        if len(lines) % 2:
            found.append((lines[-1][1], f"DIED with {done.returncode}: {done.stderr[-300:]}"))
        elif done.returncode:
            raise RuntimeError(done.stderr)
        first = len(found)
    return found


if __name__ == "__main__":
    main()
