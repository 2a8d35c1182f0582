"""Validation of cluster.json and mesh.json, before anything in them is used. Pure.

The functions return a sentence about the first problem. Standard library only: the supervisor reads
these files through this module.
"""

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tern_cli.mesh.plan import MeshShape

_GROUP_ID = re.compile(r"[0-9a-f]{32}")
_PORT_MAX = 65_535
_WORDS = {str: "a text", int: "a whole number", bool: "true or false", dict: "an object", list: "a list"}

CLUSTER = {"version": int, "group_id": str, "members": [str], "shape": dict, "born": bool}
_PROCESS = {
    "name": str,
    "role": str,
    "pid": int,
    "start_ticks": int,
    "ports": dict,
    "state": str,
    "restarts": int,
    "reason": str,
}
MESH = {
    "version": int,
    "cluster": str,
    "data_dir": str,
    "boot_id": str,
    "supervisor": {"pid": int, "start_ticks": int},
    "stopping": bool,
    "proxies": [str],
    "namesrvs": [str],
    "processes": [_PROCESS],
}


def cluster_problem(document: Mapping[str, Any]) -> str:
    """Return the problem of *document* as cluster.json, without a full stop; "" for none."""
    if found := _problem(document, CLUSTER) or _version_problem(document):
        return found
    if not _GROUP_ID.fullmatch(document["group_id"]):
        return "'group_id' is not 32 hex digits"
    return _shape_problem(document["shape"])


def mesh_problem(document: Mapping[str, Any]) -> str:
    """Return the problem of *document* as mesh.json, without a full stop; "" for none."""
    return _problem(document, MESH) or _version_problem(document)


def _problem(value: Any, wanted: Any, where: str = "") -> str:
    """Return the first part of *value* that does not match *wanted*, as a sentence; "" for none.
    *wanted* is a type, a list with one of these, or a map of fields. Further fields are allowed.
    """
    kind = type(wanted) if isinstance(wanted, list | dict) else wanted
    # type() is compared, because True is also an int.
    if type(value) is not kind:
        return f"'{where}' is not {_WORDS[kind]}"
    if isinstance(wanted, list):
        inside = ((f"{where}[{at}]", one, wanted[0]) for at, one in enumerate(value))
        return (
            next((found for at, one, each in inside if (found := _problem(one, each, at))), "")
            if value
            else (f"'{where}' is empty")
        )
    if isinstance(wanted, dict):
        for name, each in wanted.items():
            path = f"{where}.{name}" if where else name
            if name not in value:
                return f"'{path}' is missing"
            if found := _problem(value[name], each, path):
                return found
    return ""


def _version_problem(document: Mapping[str, Any]) -> str:
    return "" if document["version"] == 1 else f"version {document['version']} is not known here, only 1"


def _shape_problem(shape: Mapping[str, Any]) -> str:
    """Return the first problem of *shape*; "" for none.
    Missing fields are allowed, since an older build may have written fewer: they have defaults.
    """
    known = {field.name: type(field.default) for field in fields(MeshShape)}
    for name, value in shape.items():
        if name not in known:
            return f"'shape.{name}' is not known here"
        if found := _problem(value, known[name], f"shape.{name}"):
            return found
        if name.endswith("_port") and not 0 < value <= _PORT_MAX:
            return f"'shape.{name}' is no port"
        if name in {"proxies", "namesrvs"} and value < 1:
            return f"'shape.{name}' is less than 1"
        if name == "checkers" and value < 0:
            return "'shape.checkers' is less than 0"
        if name == "brokers" and value not in {1, 3, 5}:
            return "'shape.brokers' is not 1, 3 or 5"
    return ""
