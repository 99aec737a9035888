"""Plain parameter objects that users may ask for by name: losses and regularizers."""

from __future__ import annotations

from abc import ABC
from typing import Any, ClassVar, Self

from sklearn.base import BaseEstimator

from kernelweave.errors import InvalidInputError
from kernelweave.validation import unknown_name

__all__ = ["Named"]


class Named(BaseEstimator, ABC):
    """Base of a kind of objects; a direct subclass sets `kind` and gets a register of its own.

    A subclass of that which sets `name` registers itself: it can be asked for by that name and
    joins the contract tests. Objects are equal if their parameters are.

    Examples
    --------
    >>> class Colour(Named):
    ...     kind = "colour"
    >>> class Red(Colour):
    ...     name = "red"
    >>> Colour.registry, Colour.find("red")
    ({'red': <class '...Red'>}, <class '...Red'>)
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

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.get_params() == other.get_params()

    def __hash__(self) -> int:
        return hash((type(self), tuple(sorted(self.get_params().items()))))

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
