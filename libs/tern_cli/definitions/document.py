"""The document of definitions, in YAML or JSON. Pure.

    version: 1
    topics:
      orders: {queues: 8, type: FIFO, attributes: {owner: shop}}
    groups:
      billing: {invisible: 60s, max_attempts: 16, fifo: true, retry: {policy: table}}
    producer_groups:
      shop: {check_after: 6s}
    principals:
      billing-service:
        grants: [{actions: [CONSUME], kind: topic, pattern: orders}]

Every field may be left out: it stays as it is, or gets its default in what is new. An attribute
that is null is removed. Durations are texts such as `30s`, or milliseconds. Keys of principals and
secrets of callbacks are no part of it.
"""

from datetime import UTC, datetime
from typing import Any, ClassVar

import msgspec
import yaml
from msgspec import UNSET, Struct, UnsetType

from tern_wire.errors import TernError
from tern_wire.times import parse_duration_ms, parse_time_ms

VERSION = 1
# Some ten thousand topics. Anything larger is another file.
SIZE_MAX_BYTES = 16 * 1024 * 1024
Span = str | int
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


class DefinitionsMalformed(TernError):
    """The file is no document of definitions."""

    code, status, title = "definitions-malformed", 400, "The file does not hold definitions"
    fix = "{file}: {reason}."

    def __init__(self, *, file: str, reason: str) -> None:
        super().__init__(file=file, reason=reason)


class TopicDefinition(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A topic. *queues*: in each broker group."""

    queues: int | UnsetType = UNSET
    type: str | UnsetType = UNSET
    permission: str | UnsetType = UNSET
    when_full: str | UnsetType = UNSET
    attributes: dict[str, str | None] | UnsetType = UNSET


class RetryDefinition(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A retry policy: `table`, `custom` with *delays*, or `exponential` with the other three."""

    policy: str
    delays: list[Span] | UnsetType = UNSET
    initial: Span | UnsetType = UNSET
    multiplier: float | UnsetType = UNSET
    max: Span | UnsetType = UNSET


class GroupDefinition(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A consumer group. *start*: `earliest`, `latest` or a time."""

    invisible: Span | UnsetType = UNSET
    start: str | int | UnsetType = UNSET
    max_attempts: int | UnsetType = UNSET
    retry: RetryDefinition | UnsetType = UNSET
    fifo: bool | UnsetType = UNSET
    consume: bool | UnsetType = UNSET
    broadcast: bool | UnsetType = UNSET
    attributes: dict[str, str | None] | UnsetType = UNSET


class ProducerGroupDefinition(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A producer group. *check_url* "": its producers pull their checks."""

    check_url: str | UnsetType = UNSET
    timeout: Span | UnsetType = UNSET
    max_checks: int | UnsetType = UNSET
    check_after: Span | UnsetType = UNSET
    check_interval: Span | UnsetType = UNSET
    include_body: bool | UnsetType = UNSET


class GrantDefinition(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One grant of a principal."""

    actions: list[str]
    kind: str
    pattern: str
    effect: str = "allow"


class PrincipalDefinition(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A principal. *grants*: all of its grants."""

    description: str | UnsetType = UNSET
    grants: list[GrantDefinition] | UnsetType = UNSET
    requests_per_s: int | UnsetType = UNSET
    bytes_per_s: int | UnsetType = UNSET


Definition = TopicDefinition | GroupDefinition | ProducerGroupDefinition | PrincipalDefinition


class Definitions(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, omit_defaults=True):
    """All that a file defines, by name."""

    version: int
    topics: dict[str, TopicDefinition] = {}
    groups: dict[str, GroupDefinition] = {}
    producer_groups: dict[str, ProducerGroupDefinition] = {}
    principals: dict[str, PrincipalDefinition] = {}


KINDS = ("topics", "groups", "producer_groups", "principals")


class _Loader(yaml.CSafeLoader):  # type: ignore[misc]  # PyYAML ships no types
    """YAML's plain values without its times, which are texts here, and no key twice."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
        first: [(tag, pattern) for tag, pattern in rows if tag != "tag:yaml.org,2002:timestamp"]
        for first, rows in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Refuse what would lose a value in silence."""
        seen = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} is there twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_definitions(text: bytes, file: str) -> Definitions:
    """Return the definitions in *text*, whose *file* is named in errors, with durations and times
    in milliseconds. DefinitionsMalformed.
    """
    if len(text) > SIZE_MAX_BYTES:
        raise DefinitionsMalformed(file=file, reason=f"it has more than {SIZE_MAX_BYTES:,} bytes")
    try:
        found = msgspec.convert(_Loader(text).get_single_data(), Definitions)
    except (msgspec.ValidationError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise DefinitionsMalformed(file=file, reason=" ".join(str(error).split())) from error
    if found.version != VERSION:
        raise DefinitionsMalformed(file=file, reason=f"its version is {found.version}; this release reads {VERSION}")
    return Definitions(
        version=VERSION,
        **{
            kind: {
                name: _in_ms(definition, f"{file}: {kind}.{name}") for name, definition in getattr(found, kind).items()
            }
            for kind in KINDS
        },
    )


def written(definitions: Definitions) -> bytes:
    """Return *definitions* as YAML, with durations as texts."""
    document: dict[str, Any] = msgspec.to_builtins(definitions)
    document["version"] = VERSION
    for kind in KINDS:
        for row in document.get(kind, {}).values():
            _spell(row)
            if "retry" in row:
                _spell(row["retry"])
    head = {"version": document.pop("version")}
    return msgspec.yaml.encode({**head, **document})


def span_text(span_ms: int) -> str:
    """Return the shortest text of a duration that is exact: `60s` is `1m`, 1500 is `1500ms`."""
    unit, unit_ms = next(row for row in _UNITS if span_ms % row[1] == 0 and (span_ms or row[1] == 1_000))
    return f"{span_ms // unit_ms}{unit}"


_SPANS = ("invisible", "timeout", "check_after", "check_interval", "initial", "max")


def _in_ms(definition: Struct, where: str) -> Any:
    """Return *definition* with durations and times in milliseconds."""
    changed: dict[str, Any] = {}
    for name in definition.__struct_fields__:
        value = getattr(definition, name)
        if value is UNSET:
            continue
        try:
            if name in _SPANS:
                changed[name] = parse_duration_ms(value)
            elif name == "delays":
                changed[name] = [parse_duration_ms(each) for each in value]
            elif name == "start" and value not in {"earliest", "latest"}:
                changed[name] = parse_time_ms(value)
        except ValueError as error:
            raise DefinitionsMalformed(file=where, reason=f"{name}: {error}") from error
        if name == "retry":
            changed[name] = _in_ms(value, where)
    return msgspec.structs.replace(definition, **changed)


def _spell(row: dict[str, Any]) -> None:
    for name in _SPANS:
        if name in row:
            row[name] = span_text(row[name])
    if "delays" in row:
        row["delays"] = [span_text(delay_ms) for delay_ms in row["delays"]]
    if isinstance(row.get("start"), int):
        moment = datetime.fromtimestamp(row["start"] / 1_000, UTC).isoformat(timespec="milliseconds")
        row["start"] = moment.replace("+00:00", "Z")
