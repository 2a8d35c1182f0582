"""Placement of many topics on broker groups.

For each topic, the current placement is read, the wanted one is requested and the outcome is kept.

Law: a finished placement is never requested again. A topic that is in its place and not moving is
left alone; a topic whose move was interrupted, or may end now, gets the same request again, which
completes it. A failure of one topic does not stop the others: it becomes a Move with a `failure`,
and the whole command may be repeated.
"""

import fnmatch
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from tern_client import BlockingAdmin, RetryPolicy
from tern_wire.errors import TernError, TopicNotFound

# Placements are entries of the log. This many share one entry, and other requests of the brokers
# wait no longer for them.
AT_ONCE = 8
# Longer than an election. A placement may create a topic in several broker groups, a join thousands
# of groups.
PATIENT = RetryPolicy(deadline_ms=60_000, attempt_timeout_ms=30_000)
# Maps a placement to the broker groups where the topic should be.
Wanted = Callable[[dict[str, Any]], Sequence[str]]


@dataclass(frozen=True, slots=True, order=True)
class TopicName:
    """A topic of any namespace ("": of none)."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.name} (namespace {self.namespace})" if self.namespace else self.name

    def matches(self, patterns: Sequence[str]) -> bool:
        """Return whether one of *patterns* fits; an empty list fits everything.
        `orders*` fits in any namespace, `shop/orders*` in that one.
        """
        if not patterns:
            return True
        whole = f"{self.namespace}/{self.name}"
        return any(fnmatch.fnmatchcase(whole if "/" in pattern else self.name, pattern) for pattern in patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Outcome of one topic.
    *until_ms*: the earliest end of the move. *left*: what delays it, where known. *failure*: why
    the topic is not placed, "" when it is.
    """

    topic: TopicName
    broker_groups: tuple[str, ...] = ()
    changed: bool = False
    is_moving: bool = False
    until_ms: int = 0
    left: str = ""
    failure: str = ""

    @property
    def is_over(self) -> bool:
        """Return whether the topic is placed and not moving."""
        return not self.failure and not self.is_moving

    def document(self) -> dict[str, Any]:
        """Return the outcome for programs."""
        return {
            "namespace": self.topic.namespace,
            "topic": self.topic.name,
            "broker_groups": list(self.broker_groups),
            "changed": self.changed,
            "is_moving": self.is_moving,
            "moving_until": self.until_ms,
            **({"left": self.left} if self.left else {}),
            **({"failure": self.failure} if self.failure else {}),
        }


class ClusterAdmin:
    """Admins of one cluster: one without a namespace, and one for each namespace. Owns them."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self._endpoints = list(endpoints)
        self._by_namespace: dict[str, BlockingAdmin] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for admin in self._by_namespace.values():
            admin.close()

    @property
    def whole(self) -> BlockingAdmin:
        """Return the admin without a namespace, for requests about the cluster."""
        return self.of("")

    def of(self, namespace: str) -> BlockingAdmin:
        """Return the admin for topics of *namespace*."""
        if namespace not in self._by_namespace:
            self._by_namespace[namespace] = BlockingAdmin(self._endpoints, namespace=namespace, policy=PATIENT)
        return self._by_namespace[namespace]


def place_all(
    admins: ClusterAdmin, topics: Iterable[TopicName], wanted: Wanted, step: Callable[[], None] = lambda: None
) -> list[Move]:
    """Place *topics* where *wanted* says, AT_ONCE at a time, and return the moves in their order.
    *step* is called after each topic. Topics that no longer exist are left out.
    """
    asked = [(admins.of(topic.namespace), topic) for topic in topics]
    moves: list[Move] = []
    threads = ThreadPoolExecutor(max_workers=AT_ONCE)
    try:
        for move in threads.map(lambda each: _place(each[0], each[1], wanted), asked):
            step()
            if move is not None:
                moves.append(move)
    finally:
        # On Ctrl-C, running placements end and no other begins.
        threads.shutdown(cancel_futures=True)
    return moves


def _place(admin: BlockingAdmin, topic: TopicName, wanted: Wanted) -> Move | None:
    try:
        found = admin.placement(topic.name)
        groups = list(wanted(found))
        is_there = set(groups) == set(found["broker_groups"]) and set(groups) <= set(found["hosts"])
        if not is_there or found["is_moving"]:
            found = admin.place(topic.name, groups)
    except TopicNotFound:
        return None
    except TernError as error:
        return Move(topic=topic, failure=f"{error.title}. {error.detail}")
    return Move(
        topic=topic,
        broker_groups=tuple(found["broker_groups"]),
        changed=bool(found.get("changed", False)),
        is_moving=bool(found["is_moving"]),
        until_ms=int(found["moving_until"]),
        left=str(found.get("left", "")),
    )
