"""From a model to a skops schema: a tree of nodes in JSON, with arrays beside it.

skops reads what is written here, and could write it too. But it writes every object again wherever
it is met, and kernels share much: a schema of 400 kernels takes it 40 MB and 4 s. Here an object is
written once, lists of plain values are one node, and numbers stand for memory addresses, so that
the same model always gives the same files.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from functools import singledispatchmethod
from importlib import import_module, metadata
from types import FunctionType
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import Bunch

from kernelweave.cached import cached_property
from kernelweave.errors import ModelFileError
from kernelweave.model_files.names import stored_name

Node = dict[str, Any]

SCHEMA = "schema.json"  # The file of it.
# The version of the skops format that is written here; later versions of skops read it too.
PROTOCOL = 2

_PLAIN = (type(None), bool, int, float, str)
_KEYS = (str, int, float)
_JSON = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode", "is_json": True}


class SchemaWriter:
    """Writes down one model.

    An object is stored by its class and its state: what its method ``_file_state`` returns if it
    has one, else ``__getstate__``. On load the state goes to ``__setstate__``, or becomes the
    ``__dict__``; ``__init__`` is not called. `members` are the files beside the schema.
    """

    def __init__(self) -> None:
        self.members: dict[str, bytes] = {}
        self._numbers: dict[int, int] = {}
        self._count = 0
        # What has a number stays alive, so that no other object gets its address.
        self._alive: list[Any] = []
        self._begun: set[int] = set()
        self._path = ["model"]

    def schema(self, model: Any) -> Node:
        """Return the whole schema of a model."""
        try:
            tree = self._node(model)
        except RecursionError as error:
            raise self._cannot("nested too deeply") from error
        return {**tree, "protocol": PROTOCOL, "_skops_version": metadata.version("skops")}

    # One value

    def _node(self, value: Any) -> Node:
        """Write a value, or where it was written."""
        if type(value) in _PLAIN:
            return {**_JSON, "content": json.dumps(value)}
        key = id(value)
        if key in self._begun:
            raise self._cannot(f"a {type(value).__name__} that holds itself")
        if key in self._numbers:
            stub = {"__class__": None, "__module__": None, "__loader__": "CachedNode"}
            return {**stub, "__id__": self._numbers[key]}
        number = self._numbers[key] = self._next()
        self._alive.append(value)
        self._begun.add(key)
        node = self._write(value)
        self._begun.remove(key)
        return {**node, "__id__": number}

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _at(self, where: str, value: Any) -> Node:
        self._path.append(where)
        node = self._node(value)
        self._path.pop()
        return node

    def _cannot(self, what: str) -> ModelFileError:
        return ModelFileError(
            f"the model cannot be saved: {''.join(self._path)} is {what}, and a model file cannot "
            "hold that."
        )

    @singledispatchmethod
    def _write(self, value: Any) -> Node:
        """Write a value of no type that has a method of its own below."""
        cls = type(value)
        library = cls.__module__.partition(".")[0]
        if library in ("pandas", "polars"):
            raise self._cannot(f"a {cls.__name__} of {library}")
        if not hasattr(value, "_file_state") and (
            cls.__reduce__ is not object.__reduce__ or cls.__reduce_ex__ is not object.__reduce_ex__
        ):
            return self._by_skops(value)
        node = self._named(cls, "ObjectNode")
        try:
            state = value._file_state() if hasattr(value, "_file_state") else value.__getstate__()
        except TypeError as error:
            raise self._cannot(f"a {cls.__name__} ({error})") from error
        if not (state is None or isinstance(state, dict) or hasattr(value, "__setstate__")):
            raise self._cannot(f"a {cls.__name__}, whose state is not a dict")
        if not isinstance(state, dict):
            return {**node, "content": self._node(state)}
        kept = {
            name: item
            for name, item in state.items()
            if not isinstance(getattr(cls, name, None), cached_property)
        }
        names = kept.get("feature_names_in_")
        if isinstance(names, np.ndarray) and names.dtype == object:
            # An array of text has a node for each element, and may name very many columns.
            kept["feature_names_in_"] = names.tolist()
        return {**node, "content": self._dict(kept, ".{}")}

    # Containers

    @_write.register(tuple)
    def _tuple(self, value: tuple[Any, ...]) -> Node:
        items = [self._at(f"[{i}]", item) for i, item in enumerate(value)]
        return _typed(type(value), "TupleNode", content=items)

    @_write.register(list)
    def _list(self, value: list[Any]) -> Node:
        if type(value) is not list:
            return self._by_skops(value)
        if all(type(item) in _PLAIN for item in value):
            return {**_JSON, "content": json.dumps(value)}
        items = [self._at(f"[{i}]", item) for i, item in enumerate(value)]
        return _typed(list, "ListNode", content=items)

    @_write.register(set)
    def _set(self, value: set[Any]) -> Node:
        if type(value) is not set:
            return self._by_skops(value)
        items = sorted(value, key=repr)
        return _typed(set, "SetNode", content=[self._at("{...}", item) for item in items])

    @_write.register(dict)
    def _dict(self, value: dict[Any, Any], where: str = "[{!r}]") -> Node:
        if type(value) not in (dict, OrderedDict, Bunch):
            return self._by_skops(value)
        plain = all(type(item) in _PLAIN for item in value.values())
        if plain and type(value) is dict and all(type(key) is str for key in value):
            return {**_JSON, "content": json.dumps(value)}
        content, types = {}, []
        for key, item in value.items():
            # True and False would both be read as True; 1 and 0 are equal to them.
            name = int(key) if isinstance(key, bool | np.bool_) else key
            name = name.item() if isinstance(name, np.generic) else name
            if not isinstance(name, _KEYS):
                raise self._cannot(f"a dict with the key {key!r}")
            types.append(type(name))
            content[str(name)] = self._at(where.format(key), item)
        if len(content) < len(value):
            raise self._cannot("a dict with keys that read the same")
        keys = [_typed(kind, "TypeNode") for kind in types]
        key_types = _typed(list, "ListNode", content=keys)
        return _typed(type(value), "DictNode", content=content, key_types=key_types)

    @_write.register(slice)
    def _slice(self, value: slice) -> Node:
        ends = {name: getattr(value, name) for name in ("start", "stop", "step")}
        ends = {k: end.item() if isinstance(end, np.generic) else end for k, end in ends.items()}
        if not all(type(end) in _PLAIN for end in ends.values()):
            raise self._cannot(f"the slice {value!r}")
        return _typed(slice, "SliceNode", content=ends)

    # Data

    def _member(self, data: bytes, suffix: str) -> str:
        name = f"{hashlib.sha256(data).hexdigest()[:16]}.{suffix}"
        self.members[name] = data
        return name

    @_write.register(np.ndarray)
    @_write.register(np.generic)
    def _array(self, value: Any) -> Node:
        if isinstance(value, np.ma.MaskedArray):
            parts = {"data": self._at(".data", value.data), "mask": self._at(".mask", value.mask)}
            return _typed(type(value), "MaskedArrayNode", content=parts)
        kind: type[Any] = np.ndarray
        if isinstance(value, np.generic):
            kind = type(value)
        else:
            value = np.asarray(value)  # a matrix, or one that lives in a file
        if value.dtype.hasobject:
            if value.dtype != object:
                raise self._cannot(f"an array of type {value.dtype}")
            items = [self._at(f"[{i}]", item) for i, item in enumerate(value.tolist())]
            shape = self._node(value.shape)
            return _typed(kind, "NdArrayNode", type="json", content=items, shape=shape)
        buffer = io.BytesIO()
        np.save(buffer, value, allow_pickle=False)
        file = self._member(buffer.getvalue(), "npy")
        return _typed(kind, "NdArrayNode", type="numpy", file=file)

    @_write.register(sparse.spmatrix)
    @_write.register(sparse.sparray)
    def _sparse(self, value: Any) -> Node:
        buffer = io.BytesIO()
        sparse.save_npz(buffer, value, compressed=False)
        file = self._member(buffer.getvalue(), "npz")
        return _typed(type(value), "SparseMatrixNode", type="scipy", file=file)

    @_write.register(np.dtype)
    def _dtype(self, value: np.dtype[Any]) -> Node:
        node = {"__class__": "dtype", "__module__": "numpy", "__loader__": "DTypeNode"}
        return {**node, "content": self._node(np.empty(0, value))}

    @_write.register(bytes)
    def _bytes(self, value: bytes) -> Node:
        return _typed(bytes, "BytesNode", file=self._member(value, "bin"))

    # Types and functions

    @_write.register(type)
    def _type(self, value: type[Any]) -> Node:
        return self._named(value, "TypeNode")

    @_write.register(FunctionType)
    def _function(self, value: FunctionType) -> Node:
        return self._named(value, "FunctionNode")

    def _named(self, value: Any, loader: str) -> Node:
        """What is imported by its name on load."""
        try:
            found = getattr(import_module(value.__module__), value.__name__, None)
        except ImportError:
            found = None
        if value.__qualname__ != value.__name__ or found is not value:
            raise ModelFileError(
                f"the model cannot be saved: {''.join(self._path)} needs "
                f"{value.__module__}.{value.__qualname__}, which could not be found again on load. "
                "Define it at the top level of a module that can be imported."
            )
        return _typed(value, loader)

    def _by_skops(self, value: Any) -> Node:
        """Leave what is rare to skops: random states, trees, partial functions, ..."""
        import skops.io  # type: ignore[import-untyped]

        try:
            data = skops.io.dumps(value)
        except Exception as error:
            raise self._cannot(f"a {type(value).__name__} ({error})") from error
        numbers: dict[Any, int] = {}
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            tree: Node = json.loads(archive.read(SCHEMA))
            if tree["protocol"] != PROTOCOL:
                raise self._cannot(
                    f"a {type(value).__name__}, which skops {metadata.version('skops')} writes in "
                    f"format {tree['protocol']} (known is {PROTOCOL}; install skops 0.16)"
                )
            for node in walk(tree):
                if "__id__" in node:
                    number = numbers.get(node["__id__"])
                    if number is None:
                        number = numbers[node["__id__"]] = self._next()
                    node["__id__"] = number
                if "file" in node:
                    name = node["file"]
                    node["file"] = self._member(archive.read(name), name.rpartition(".")[2])
        return {
            key: item for key, item in tree.items() if key not in ("protocol", "_skops_version")
        }


def _typed(cls: Any, loader: str, **entries: Any) -> Node:
    module, name = stored_name(cls)
    return {"__class__": name, "__module__": module, "__loader__": loader, **entries}


def walk(tree: Any) -> Iterator[Node]:
    """Return every node of a schema, and anything else in it that looks like one."""
    waiting = [tree]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            if "__loader__" in item:
                yield item
            more: Iterable[Any] = item.values()
        else:
            more = item
        waiting.extend(part for part in more if isinstance(part, dict | list))
