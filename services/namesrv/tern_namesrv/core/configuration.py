"""Configuration by namespace and key, as in RocketMQ's name server (its KV config). Pure.

A Configuration is immutable: a change makes a new one. A namespace appears with its first key and
disappears with its last. The namespace ORDER_TOPIC_CONFIG holds the ordered configuration of
topics, such as `broker-a:8;broker-b:8`: the number of queues in each broker group over which the
topic's ordered messages are spread, whether or not the group is alive.

Limits: the number of entries, and the bytes of names and values (limits.py).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tern_wire.errors import ConfigurationNotFound, InvalidField, LimitReached
from tern_wire.limits import (
    KV_ENTRIES_MAX,
    KV_NAME_SIZE_MAX_BYTES,
    KV_SIZE_MAX_BYTES,
    KV_VALUE_SIZE_MAX_BYTES,
    QUEUES_PER_TOPIC_MAX,
)
from tern_wire.names import check_topic

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
Namespaces = Mapping[str, Mapping[str, str]]

# Covers topics, broker groups, addresses and RocketMQ's own namespaces. None of these characters
# needs quoting in a path or a table.
_NAME = re.compile(rf"[A-Za-z0-9_%@][A-Za-z0-9_%@.:|-]{{0,{KV_NAME_SIZE_MAX_BYTES - 1}}}")
_NO_ORDERS: Mapping[str, str] = {}
_ORDER_PART = re.compile(r"[a-z0-9][a-z0-9-]{0,30}:([1-9][0-9]{0,3})")


@dataclass(frozen=True, slots=True)
class Configuration:
    """All namespaces with their keys and values.

    `entries` is the number of keys; `size_bytes` counts names and values in UTF-8.
    """

    namespaces: Namespaces = field(default_factory=dict)
    entries: int = 0
    size_bytes: int = 0

    def get(self, namespace: str, key: str) -> str:
        """Return the value of a key. Raises ConfigurationNotFound, InvalidField."""
        check_place(namespace, key)
        value = self.namespaces.get(namespace, {}).get(key)
        if value is None:
            raise ConfigurationNotFound(namespace=namespace, key=key)
        return value

    def listed(self, namespace: str) -> Mapping[str, str]:
        """Return the entries of a namespace, sorted by key; empty if there is none.

        Raises InvalidField.
        """
        _check_name(namespace, "namespace")
        return dict(sorted(self.namespaces.get(namespace, {}).items()))

    @property
    def orders(self) -> Mapping[str, str]:
        """The ordered configurations by topic; the same object until one of them changes."""
        return self.namespaces.get(ORDER_NAMESPACE, _NO_ORDERS)

    def put(self, namespace: str, key: str, value: str) -> "Configuration":
        """Return a configuration with this value.

        Raises InvalidField, LimitReached, and IllegalTopic for the ordered configuration of an
        invalid topic name.
        """
        check_place(namespace, key)
        _check_value(namespace, key, value)
        known = self.namespaces.get(namespace, {})
        entries = self.entries + (key not in known)
        size_bytes = self.size_bytes + _size_bytes(namespace, key, value)
        if key in known:
            size_bytes -= _size_bytes(namespace, key, known[key])
        if entries > KV_ENTRIES_MAX:
            raise LimitReached(what="Configurations", actual=self.entries, limit=KV_ENTRIES_MAX)
        if size_bytes > KV_SIZE_MAX_BYTES:
            raise LimitReached(what="Bytes of configuration", actual=size_bytes, limit=KV_SIZE_MAX_BYTES)
        return Configuration({**self.namespaces, namespace: {**known, key: value}}, entries, size_bytes)

    def without(self, namespace: str, key: str) -> "Configuration":
        """Return a configuration without this key; itself if the key is absent.

        Raises InvalidField.
        """
        check_place(namespace, key)
        known = self.namespaces.get(namespace, {})
        if key not in known:
            return self
        rest = {name: value for name, value in known.items() if name != key}
        namespaces = {name: entries for name, entries in self.namespaces.items() if name != namespace}
        if rest:
            namespaces[namespace] = rest
        size_bytes = self.size_bytes - _size_bytes(namespace, key, known[key])
        return Configuration(namespaces, self.entries - 1, size_bytes)


def configuration_of(namespaces: Namespaces) -> Configuration:
    """Return the configuration of a file, checked as in `put` except for the form of values.

    Only users are held to the form of values: RocketMQ's own files are accepted too.
    """
    entries = size_bytes = 0
    for namespace, held in namespaces.items():
        for key, value in held.items():
            check_place(namespace, key)
            if len(value.encode()) > KV_VALUE_SIZE_MAX_BYTES:
                raise InvalidField(reason=f"The value of {namespace}/{key} is too long", pointer="/value")
            entries, size_bytes = entries + 1, size_bytes + _size_bytes(namespace, key, value)
    if entries > KV_ENTRIES_MAX or size_bytes > KV_SIZE_MAX_BYTES:
        raise LimitReached(what="Configurations", actual=entries, limit=KV_ENTRIES_MAX)
    return Configuration({name: dict(held) for name, held in namespaces.items() if held}, entries, size_bytes)


def check_place(namespace: str, key: str) -> None:
    """Raise InvalidField unless both names are valid.

    A name has 1 to 128 characters: letters, digits, and `_%@.:|-`, but does not begin with `.:|-`.
    """
    _check_name(namespace, "namespace")
    _check_name(key, "key")


def _check_name(name: str, what: str) -> None:
    if _NAME.fullmatch(name) is None:
        allowed = f"1 to {KV_NAME_SIZE_MAX_BYTES} letters, digits, or one of '_%@.:|-', the first none of the last four"
        raise InvalidField(reason=f"A {what} is {allowed}", pointer=f"/{what}")


def _check_value(namespace: str, key: str, value: str) -> None:
    try:
        size_bytes = len(value.encode())
    except UnicodeEncodeError as error:
        raise InvalidField(reason="The value is no text", pointer="/value") from error
    if not value or size_bytes > KV_VALUE_SIZE_MAX_BYTES:
        raise InvalidField(reason=f"A value has 1 to {KV_VALUE_SIZE_MAX_BYTES} bytes", pointer="/value")
    if namespace == ORDER_NAMESPACE:
        check_topic(key)
        parts = value.split(";")
        matches = [_ORDER_PART.fullmatch(part) for part in parts]
        counts = [int(match[1]) for match in matches if match is not None]
        groups = {part.partition(":")[0] for part in parts}
        if len(counts) < len(parts) or max(counts) > QUEUES_PER_TOPIC_MAX or len(groups) < len(parts):
            reason = (
                "An ordered configuration names broker groups and their queues once each, like 'broker-a:8;broker-b:8'"
            )
            raise InvalidField(reason=reason, pointer="/value")


def _size_bytes(namespace: str, key: str, value: str) -> int:
    return len(namespace) + len(key) + len(value.encode())
