"""Plain parameter objects that users may ask for by name: losses and regularizers."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator

from kernelweave.errors import InvalidInputError
from kernelweave.validation import unknown_name


class Named(BaseEstimator, ABC):
    """Base of a kind of objects; a direct subclass sets `kind` and gets a register of its own.

    A subclass of that which sets `name` registers itself: it can be asked for by that name and
    joins the contract tests. Objects are equal if their parameters are.
    """

    kind: ClassVar[str]
    name: ClassVar[str]
    registry: ClassVar[dict[str, type[Any]]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "kind" in vars(cls):
            cls.registry = {}
        name = vars(cls).get("name")
        if name is None:
            return
        taken = cls.registry.get(name)
        # The same class again is a notebook cell run twice; another one would hide the first.
        if taken is not None and taken.__qualname__ != cls.__qualname__:
            raise InvalidInputError(
                f"the {cls.kind} name {name!r} of class {cls.__qualname__} is taken by "
                f"{taken.__qualname__}; choose a name that is not in use."
            )
        cls.registry[name] = cls

    def _key(self) -> tuple[Any, ...]:
        return type(self), *((name, _frozen(value)) for name, value in self.get_params().items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    @classmethod
    def examples(cls) -> list[Self]:
        """Instances that the contract tests check."""
        return [cls()]

    @classmethod
    def names(cls) -> list[str]:
        """Names in the register."""
        return sorted(cls.registry)

    @classmethod
    def find(cls, name: object) -> type[Any]:
        """Return the class of that name, or raise with the names there are."""
        if not isinstance(name, str):
            raise InvalidInputError(
                f"{cls.kind} must be a name or a {cls.__name__} object; got {name!r}. "
                f"Allowed names: {', '.join(map(repr, cls.names()))}."
            )
        if name not in cls.registry:
            raise unknown_name(cls.kind, name, cls.registry)
        return cls.registry[name]


def _frozen(value: Any) -> Any:
    """The value of a parameter with tuples in place of lists, arrays and mappings."""
    if isinstance(value, Mapping):
        return tuple((key, _frozen(entry)) for key, entry in value.items())
    if isinstance(value, list | tuple | np.ndarray):
        return tuple(_frozen(entry) for entry in value)
    return value
