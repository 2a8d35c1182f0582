"""What a mesh lacks of the definitions in a file. Pure.

Law: what the file does not name stays as it is: other topics, other fields, other attributes.
Nothing is deleted.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from tern_cli.definitions.document import KINDS, Definition, Definitions, span_text

_SPANS = ("invisible", "timeout", "check_after", "check_interval")
_NAMES = {"topics": "topic", "groups": "group", "producer_groups": "producer group", "principals": "principal"}


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field of one definition. *before*: None in something new, or for an attribute that is not
    there.
    """

    field: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is to be done for one topic, group, producer group or principal. *settings*: the fields
    to send, durations in milliseconds.
    """

    kind: str
    name: str
    is_new: bool
    fields: tuple[FieldChange, ...]
    settings: Mapping[str, Any]

    def lines(self) -> Iterator[str]:
        """Yield lines for people, as a diff has them."""
        yield f"{'+' if self.is_new else '~'} {_NAMES[self.kind]} {self.name}"
        for row in self.fields:
            shown = _shown(row.field, row.after)
            yield f"    {row.field}: {shown if self.is_new else f'{_shown(row.field, row.before)} -> {shown}'}"


def changes(wanted: Definitions, found: Definitions) -> list[Change]:
    """Return what makes a mesh with the definitions *found* agree with *wanted*, in the order of
    the file.
    """
    return [
        change
        for kind in KINDS
        for name, definition in getattr(wanted, kind).items()
        if (change := _change(kind, name, definition, getattr(found, kind).get(name))) is not None
    ]


def _change(kind: str, name: str, wanted: Definition, found: Definition | None) -> Change | None:
    fields: list[FieldChange] = []
    settings: dict[str, Any] = {}
    for field in wanted.__struct_fields__:
        after = getattr(wanted, field)
        if after is UNSET:
            continue
        before = None if found is None else getattr(found, field)
        if field == "attributes":
            rows = _attributes(before or {}, after)
            if rows:
                settings[field] = {row.field.partition(".")[2]: row.after for row in rows}
            fields += rows
        elif found is None or not _are_equal(field, before, after):
            fields.append(FieldChange(field, _plain(before), _plain(after)))
            settings[field] = _plain(after)
    if found is not None and not fields:
        return None
    return Change(kind=kind, name=name, is_new=found is None, fields=tuple(fields), settings=settings)


def _attributes(before: Mapping[str, str | None], after: Mapping[str, str | None]) -> list[FieldChange]:
    return [
        FieldChange(f"attributes.{name}", before.get(name), value)
        for name, value in after.items()
        if before.get(name) != value
    ]


def _are_equal(field: str, before: Any, after: Any) -> bool:
    if field == "grants":
        return _grants(before) == _grants(after)
    return bool(before == after)


def _grants(grants: Any) -> set[tuple[str, tuple[str, ...], str, str]]:
    """Return grants without their order, which has no meaning."""
    return {(each.effect, tuple(sorted(each.actions)), each.kind, each.pattern) for each in grants}


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value) if isinstance(value, Struct | list) else None if value is UNSET else value


def _shown(field: str, value: Any) -> str:
    if value is None:
        return "(none)"
    if field in _SPANS:
        return span_text(value)
    return msgspec.json.encode(value).decode()
