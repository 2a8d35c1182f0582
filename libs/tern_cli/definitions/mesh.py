"""Definitions of a mesh: read from it, and changed in it, over an Admin."""

from typing import Any, Protocol

from tern_cli.definitions.difference import Change
from tern_cli.definitions.document import (
    VERSION,
    Definitions,
    GrantDefinition,
    GroupDefinition,
    PrincipalDefinition,
    ProducerGroupDefinition,
    RetryDefinition,
    TopicDefinition,
)
from tern_client import BlockingAdmin
from tern_client.transactions.models import ProducerGroupOptions

_CUSTOM, _EXPONENTIAL = "custom", "exponential"


class _Document(Protocol):
    def __getitem__(self, name: str) -> Any: ...


def definitions_of(admin: BlockingAdmin, kinds: frozenset[str]) -> Definitions:
    """Return all definitions of *kinds* in the mesh, each field set."""
    return Definitions(
        version=VERSION,
        topics={row["topic"]: _topic(admin.topic(row["topic"])) for row in admin.topics()} if "topics" in kinds else {},
        groups={row["group"]: _group(row) for row in admin.groups()} if "groups" in kinds else {},
        producer_groups={row["producer_group"]: _producer_group(row) for row in admin.producer_groups()}
        if "producer_groups" in kinds
        else {},
        principals={row["principal"]: _principal(row) for row in admin.principals()} if "principals" in kinds else {},
    )


def make(admin: BlockingAdmin, change: Change) -> None:
    """Make *change* in the mesh. It may be repeated."""
    settings: dict[str, Any] = dict(change.settings)
    match change.kind:
        case "topics":
            admin.create_topic(change.name, **settings)
        case "groups":
            if "invisible" in settings:
                settings["invisible_ms"] = settings.pop("invisible")
            admin.create_group(change.name, **settings)
        case "producer_groups":
            options: ProducerGroupOptions = settings  # type: ignore[assignment]  # the same fields, checked by the document
            admin.create_producer_group(change.name, **options)
        case _:
            admin.put_principal(change.name, **settings)


def _topic(row: _Document) -> TopicDefinition:
    return TopicDefinition(
        queues=max(row["broker_groups"].values()),
        type=row["type"],
        permission=row["permission"],
        when_full=row["when_full"],
        attributes=dict(row["attributes"]),
    )


def _group(row: _Document) -> GroupDefinition:
    return GroupDefinition(
        invisible=row["invisible_ms"],
        start=row["start_at"] if row["start"] == "time" else row["start"],
        max_attempts=row["max_attempts"],
        retry=_retry(row["retry"]),
        fifo=row["fifo"],
        consume=row["consume"],
        broadcast=row["broadcast"],
        attributes=dict(row["attributes"]),
    )


def _retry(row: _Document) -> RetryDefinition:
    policy = row["policy"]
    if policy == _CUSTOM:
        return RetryDefinition(policy=policy, delays=row["delays_ms"])
    if policy == _EXPONENTIAL:
        multiplier = float(row["multiplier"])
        return RetryDefinition(policy=policy, initial=row["initial_ms"], multiplier=multiplier, max=row["max_ms"])
    return RetryDefinition(policy=policy)


def _producer_group(row: _Document) -> ProducerGroupDefinition:
    return ProducerGroupDefinition(
        check_url=row["check_url"],
        timeout=row["timeout_ms"],
        max_checks=row["max_checks"],
        check_after=row["check_after_ms"],
        check_interval=row["check_interval_ms"],
        include_body=row["include_body"],
    )


def _principal(row: _Document) -> PrincipalDefinition:
    return PrincipalDefinition(
        description=row["description"],
        grants=[
            GrantDefinition(
                actions=list(each["actions"]), kind=each["kind"], pattern=each["pattern"], effect=each["effect"]
            )
            for each in row["grants"]
        ],
        requests_per_s=row["requests_per_s"],
        bytes_per_s=row["bytes_per_s"],
    )
