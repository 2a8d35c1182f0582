"""Schemas of the API document: msgspec's schemas of the documents of routes, completed by
annotations of their types.
"""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from tern_proxy.core.documents.values import INSTEAD, Invisible, Problem, Wait
from tern_proxy.routes.route import REF, Schema
from tern_wire.errors import ERRORS

# Schemas that parameters refer to.
_NAMED = {"Wait": Wait, "InvisibleTime": Invisible}
# A message in JSON has its body in one of these.
_BODIES = ("body", "json", "body_base64")
_WITH_BODY = ("JsonMessage", "JsonTopicMessage")


def build_schemas(kinds: Iterable[type[Struct]]) -> dict[str, Schema]:
    """Return the schemas of *kinds* and of their parts by name, in order of names."""
    _, found = msgspec.json.schema_components(dict.fromkeys((Problem, *kinds)), ref_template=REF)
    found["Problem"]["properties"]["code"]["enum"] = sorted(ERRORS)
    for schema in found.values():
        schema["properties"] = {field: _told(known) for field, known in schema.get("properties", {}).items()}
    for name in _WITH_BODY:
        found[name]["oneOf"] = [{"required": [field]} for field in _BODIES]
    named, _ = msgspec.json.schema_components(_NAMED.values(), ref_template=REF)
    found |= zip(_NAMED, named, strict=True)
    return {name: found[name] for name in sorted(found)}


def _told(known: Schema) -> Schema:
    """Return the schema of a field with the overrides of its type.

    A null default is omitted, because the field is omitted, too.
    """
    said = known.pop(INSTEAD, {})
    told = {keyword: value for keyword, value in {**known, **said}.items() if said.get(keyword, "") is not None}
    if told.get("default", "") is not None:
        return told
    del told["default"]
    kinds = [kind for kind in told.pop("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) > 1:
        return {**told, "anyOf": kinds}
    return {**kinds[0], **told} if kinds else told
