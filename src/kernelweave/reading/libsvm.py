"""Files of sparse rows in the format of libsvm and svmlight."""

from __future__ import annotations

import math
import re
from io import BytesIO
from pathlib import Path

import numpy as np

from kernelweave.errors import InvalidInputError
from kernelweave.reading.bounded import numbered_names, plain_errors, unpacked
from kernelweave.reading.table import Table

_NUMBER = rb"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?"
_LABEL = re.compile(_NUMBER)
_ENTRY = re.compile(rb"(\d+):(" + _NUMBER + rb")")
_LONGEST = 60
# Numbers in 32 bits count columns.
_MOST_COLUMNS = 2**31 - 2


def read_libsvm(path: Path, kind: str) -> Table:
    """Read a libsvm file: ``label index:value index:value ...`` in each line.

    Columns are called by their index, x1, x2, ... (from x0 on if there is an index 0).
    """
    from sklearn.datasets import load_svmlight_file

    data = unpacked(path)
    with plain_errors(path, "libsvm"):
        try:
            # Index j is column j: what is absent from one file must not move the columns of it.
            X, y = load_svmlight_file(BytesIO(data), zero_based=True)
        except Exception as error:
            _explain(path, data)
            raise error
    if X.shape[0] == 0:
        raise InvalidInputError(f"{str(path)!r} holds no rows.")
    if not np.isfinite(y).all() or not np.isfinite(X.data).all():
        _explain(path, data)
    first = 0
    if X.shape[1] > 1 and not (X.indices == 0).any():
        X, first = X[:, 1:], 1
    columns = numbered_names(path, first, first + X.shape[1])
    if (y == np.rint(y)).all() and (np.abs(y) < 2**53).all():
        y = y.astype(np.int64)
    return Table(X.tocsr(), columns, "libsvm", (), y)


def _explain(path: Path, data: bytes) -> None:
    """Raise an error that names the first line that is wrong, if there is one."""
    for number, line in enumerate(data.splitlines(), start=1):
        words = line.split(b"#", 1)[0].split()
        if not words:
            continue
        problem = _problem(words)
        if problem is not None:
            raise InvalidInputError(
                f"{str(path)!r}, line {number}: {problem}. Lines of libsvm files are "
                f"'label index:value index:value ...', with indices that go up."
            )


def _problem(words: list[bytes]) -> str | None:
    if not _LABEL.fullmatch(words[0]) or not math.isfinite(float(words[0])):
        return f"the label must be a finite number; got {_show(words[0])}"
    last = -1
    for word in words[1:]:
        if word.startswith(b"qid:"):
            continue
        match = _ENTRY.fullmatch(word)
        if match is None or not math.isfinite(float(match[2])):
            return f"expected index:value with a finite number; got {_show(word)}"
        digits = match[1].lstrip(b"0") or b"0"
        # Python does not make numbers of thousands of digits.
        if len(digits) > len(str(_MOST_COLUMNS)) or int(digits) > _MOST_COLUMNS:
            return f"index {_show(match[1])} is too large"
        index = int(digits)
        if index <= last:
            return f"index {index} comes after {last}"
        last = index
    return None


def _show(word: bytes) -> str:
    text = word.decode("utf-8", errors="replace")
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")
