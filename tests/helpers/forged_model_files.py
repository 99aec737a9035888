"""Model files with parts changed by hand, and the pieces of a skops schema to change them with."""

from __future__ import annotations

import hashlib
import json
import zipfile

HEADER, SCHEMA = "kernelweave.json", "schema.json"


def parts_of(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def put_together(path, parts, *, honest=True, packed=False):
    """Write an archive; an honest one has the right digests."""
    if honest:
        header = json.loads(parts[HEADER])
        rest = {name: data for name, data in parts.items() if name != HEADER}
        header["digests"] = {name: hashlib.sha256(d).hexdigest() for name, d in rest.items()}
        parts = {HEADER: json.dumps(header).encode(), **rest}
    method = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return path


def forge(good, there, change):
    """Change the schema of a good file, and make the digests right again."""
    parts = parts_of(good)
    schema = json.loads(parts[SCHEMA])
    schema = change(schema) or schema
    parts[SCHEMA] = json.dumps(schema).encode()
    return put_together(there, parts)


def node(name, loader, **entries):
    module, _, cls = name.rpartition(".")
    return {"__class__": cls, "__module__": module, "__loader__": loader, **entries}


def value(item):
    return node("builtins.str", "JsonNode", content=json.dumps(item), is_json=True)


def several(*items):
    return node("builtins.tuple", "TupleNode", content=[value(item) for item in items])


def attributes(**items):
    kinds_ = [node("builtins.str", "TypeNode") for _ in items]
    key_types = node("builtins.list", "ListNode", content=kinds_)
    return node("builtins.dict", "DictNode", content=items, key_types=key_types)


def call(name, *items):
    return node(name, "ConstructorFromReduceNode", content=several(*items))
