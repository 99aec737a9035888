"""Decision values taken apart: what each kernel, view, family or column adds to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.inspect.kernel_info import ALL_COLUMNS, KernelInfo
from kernelweave.inspect.tables import table_of
from kernelweave.kernels.names import describe_request, numbered
from kernelweave.validation import unknown_name

_GROUPINGS = ("view", "family", "column")
# How much of an explanation is printed.
_SAMPLES_SHOWN = 3
_KERNELS_SHOWN = 5


class Contribution(NamedTuple):
    """What one kernel, or one group of kernels, adds to a decision value."""

    name: str
    value: float


@dataclass(frozen=True, eq=False)
class Explanation:
    """Contributions to decision values, which they sum to: ``values.sum(-1) + baseline``.

    `explain` of an estimator makes one. Of several decision values for each sample (classes,
    outputs) all arrays have an axis for them, the second.

    Attributes
    ----------
    values : ndarray of shape (n, m_used) or (n, T, m_used)
        What each kernel adds to each decision value.
    baseline : float or ndarray of shape (T,)
        What every sample starts from: the intercept.
    decision : ndarray of shape (n,) or (n, T)
        The decision values: `decision_function`, or `predict` of a regressor.
    kernel_names : tuple of str
        Names of the kernels, or of the groups that `by` makes.
    kernels : ndarray of int, shape (m_used,)
        Which kernels of the model they are, those of weight zero left out; groups are numbered.
    infos : tuple of KernelInfo
        What the kernels are; empty for groups.
    outputs : tuple of str
        Names of the T decision values: classes, outputs.
    meaning : str
        What a decision value means.
    samples : sequence
        Names of the samples: the index of a pandas frame, otherwise numbers.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from kernelweave import MKLClassifier
    >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    >>> model = MKLClassifier("simplemkl").fit(X[::4], y[::4])
    >>> explanation = model.explain(X[1:3])
    >>> sums = explanation.values.sum(axis=-1) + explanation.baseline
    >>> bool(np.allclose(sums, model.decision_function(X[1:3])))
    True
    >>> views = explanation.by("view")
    >>> views.values.shape[1] < explanation.values.shape[1]
    True
    """

    values: Array
    baseline: Any
    decision: Array
    kernel_names: tuple[str, ...]
    kernels: Array
    infos: tuple[KernelInfo, ...]
    outputs: tuple[str, ...]
    meaning: str
    samples: Sequence[Any]

    def __len__(self) -> int:
        return len(self.values)

    # Taken together

    def by(self, groups: str | Mapping[str, Sequence[str | int]]) -> Explanation:
        """Add up the contributions of kernels that belong together.

        Parameters
        ----------
        groups : {"view", "family", "column"} or dict
            "view" is what the kernels look at, "family" their kind, "column" their columns, where
            a kernel on several columns counts for these together. A dict has lists of kernels,
            by name or by their number in the model; kernels in none of them become "others".

        Returns
        -------
        Explanation
            With a group where a kernel was. It sums to the same decision values.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from kernelweave import MKLClassifier
        >>> from kernelweave.kernels import RBF
        >>> X, y = load_iris(return_X_y=True)
        >>> kernels = [RBF(width=1.0).on([0, 1], label="sepal"), RBF(width=1.0).on([2, 3])]
        >>> explanation = MKLClassifier(kernels, solver="uniform").fit(X, y).explain(X[:5])
        >>> explanation.by("view").kernel_names
        ('sepal', 'columns 2-3')
        >>> explanation.by({"petal": [1]}).kernel_names
        ('petal', 'others')
        """
        keys = self._keys(groups)
        names = list(dict.fromkeys(keys))
        if isinstance(groups, Mapping) and "others" not in groups:
            names = [key for key in (*groups, "others") if key in names]
        belongs = np.zeros((len(keys), len(names)))
        belongs[np.arange(len(keys)), [names.index(key) for key in keys]] = 1.0
        labels = [describe_request(n) if isinstance(n, tuple) else str(n) for n in names]
        return replace(
            self,
            values=self.values @ belongs,
            kernel_names=tuple(numbered(labels)),
            kernels=np.arange(len(names)),
            infos=(),
        )

    def _keys(self, groups: Any) -> list[Any]:
        """Return the group of every kernel."""
        if isinstance(groups, Mapping):
            return self._given_keys(groups)
        if not isinstance(groups, str):
            raise InvalidInputError(
                "by takes 'view', 'family', 'column' or a dict from names of groups to lists of "
                f"kernels; got {groups!r}."
            )
        if groups not in _GROUPINGS:
            raise unknown_name("grouping", groups, _GROUPINGS)
        if len(self.infos) != len(self.kernel_names):
            raise InvalidInputError(
                f"these are groups already ({', '.join(self.kernel_names[:3])}, ...), of which "
                f"only a dict can make larger ones; ask for by({groups!r}) of the explanation "
                "itself."
            )
        if groups != "column":
            return [getattr(info, groups) for info in self.infos]
        everything = {info.columns for info in self.infos if info.view == ALL_COLUMNS}
        # A given matrix has no columns and is by itself.
        return [
            ALL_COLUMNS if info.columns in everything else info.columns or info.view
            for info in self.infos
        ]

    def _given_keys(self, groups: Mapping[str, Sequence[str | int]]) -> list[str]:
        keys: list[Any] = [None] * len(self.kernel_names)
        for group, members in groups.items():
            for member in [members] if isinstance(members, str | int) else members:
                named = np.array([name == member for name in self.kernel_names], dtype=bool)
                if isinstance(member, str) and not named.any():
                    raise unknown_name("kernel", member, self.kernel_names)
                # A number may be that of a kernel without weight, which adds nothing.
                for place in np.flatnonzero(named | (self.kernels == member)):
                    if keys[place] not in (None, group):
                        raise InvalidInputError(
                            f"kernel {self.kernel_names[place]!r} is in two groups, "
                            f"{keys[place]!r} and {group!r}; each kernel belongs to one."
                        )
                    keys[place] = group
        return ["others" if key is None else str(key) for key in keys]

    # Looked at

    def top(self, i: int, k: int = 5, output: str | int | None = None) -> list[Contribution]:
        """Return the k largest contributions to a decision value, whatever their sign.

        Parameters
        ----------
        i : int
            The sample, by position.
        k : int, default=5
            How many.
        output : str or int, optional
            Which decision value, by name or position, where a sample has several; the largest
            (the predicted class) by default.
        """
        values = self.parts_of(i, output)[0]
        order = np.argsort(-np.abs(values), kind="stable")[:k]
        return [Contribution(self.kernel_names[j], float(values[j])) for j in order]

    def parts_of(self, i: int, output: str | int | None = None) -> tuple[Array, float, float, int]:
        """Return contributions, baseline and decision value of a sample, and which of its values.

        That is the largest one, unless `output` says which.
        """
        i = range(len(self))[i]
        values = self.values[i] if self.values.ndim == 3 else self.values[i][None]
        decision = np.atleast_1d(self.decision[i])
        t = int(decision.argmax()) if output is None else self.place_of(output)
        return values[t], float(np.atleast_1d(self.baseline)[t]), float(decision[t]), t

    def place_of(self, output: str | int) -> int:
        """Return the place of a decision value, given by its name or its place."""
        if isinstance(output, str):
            if output not in self.outputs:
                raise unknown_name("output", output, self.outputs)
            return self.outputs.index(output)
        return range(len(self.outputs))[output]

    def to_frame(self) -> Any:
        """Return a table: a row for each sample, a column for each kernel, baseline and decision.

        A pandas DataFrame where pandas is installed, otherwise a polars one. Of several decision
        values for each sample every one has its row.
        """
        several = self.values.ndim == 3
        count = len(self.outputs) if several else 1
        samples = [name for name in self.samples for _ in range(count)]
        labels: dict[str, list[Any]] = {"sample": samples}
        if several:
            labels["output"] = list(self.outputs) * len(self)
        names = numbered([*labels, *self.kernel_names, "baseline", "decision"])[len(labels) :]
        table = np.column_stack(
            [
                self.values.reshape(len(samples), len(self.kernel_names)),
                np.tile(np.atleast_1d(self.baseline), len(self)),
                self.decision.ravel(),
            ]
        )
        return table_of({**labels, **dict(zip(names, table.T, strict=True))}, list(labels))

    def __repr__(self) -> str:
        what = "kernels" if self.infos or not self.kernel_names else "groups of kernels"
        each = "" if self.values.ndim == 2 else f", {len(self.outputs)} values each"
        return f"<Explanation of {len(self)} samples by {len(self.kernel_names)} {what}{each}>"

    def __str__(self) -> str:
        lines = [repr(self)[1:-1], f"  {self.meaning}"]
        for i, sample in enumerate(self.samples[:_SAMPLES_SHOWN]):
            values, baseline, decision, t = self.parts_of(i)
            which = f" [{self.outputs[t]}]" if self.values.ndim == 3 else ""
            lines.append(f"  sample {sample}{which}: {decision:.4f}")
            parts = self.top(i, _KERNELS_SHOWN)
            if left := len(values) - len(parts):
                rest = float(values.sum()) - sum(value for _, value in parts)
                parts.append(Contribution(f"{left} more", rest))
            parts.append(Contribution("baseline", baseline))
            lines += [f"    {value:+9.4f}  {name}" for name, value in parts]
        if len(self) > _SAMPLES_SHOWN:
            lines.append(f"  {len(self) - _SAMPLES_SHOWN} more samples")
        return "\n".join(lines)


def sample_names(X: Any, n: int) -> Sequence[Any]:
    """Return how samples are called: by the index of a pandas object, else by their numbers."""
    index = getattr(X, "index", None)
    return range(n) if index is None or callable(index) else list(index)
