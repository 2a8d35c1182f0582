"""Storing of messages: encoded, sent in the lanes of their broker groups, and forwarded where a
topic is moving.

     encode -> parcels -> verdicts ┬-> results
        ^                          └ MOVED by one broker group: the same messages to the next one
        └──────────────────────────┘

Law: a message is forwarded only after a broker group has answered that it does not store it, so it
is stored once. Forwarded messages of one request keep their order. A proxy whose routes are older
than a broker group's answer waits a moment for newer ones. Reference:
tern_wire/routing/placement.py.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from tern_proxy.core.documents.sends import JsonMessage, PackedMessage
from tern_proxy.core.sending.encoding import Encoded, encode_messages
from tern_proxy.core.sending.results import (
    Outcome,
    SendResults,
    failed,
    find_missing_topic,
    merged,
    moved_from,
    send_results,
)
from tern_proxy.core.sending.topic import Topic
from tern_proxy.proxy import Proxy
from tern_wire.errors import OwnerUnknown, PlacementChanged, TernError
from tern_wire.limits import PLACEMENT_NEWS_MS

Messages = Sequence[PackedMessage | JsonMessage]
# Interval of the checks for newer routes during that wait.
NEWS_INTERVAL_S = 0.05


async def store_messages(
    proxy: Proxy, topic: Topic, messages: Messages, *, born_ms: int, born_host: bytes, at: str, system: str = ""
) -> SendResults:
    """Store messages; return one result a message, in their order.

    *at*, *system*: as in `encode_messages`.
    """
    sender = _Sender(proxy, born_ms, born_host, system)
    results, moved = await sender.send(topic, messages, at=at)
    if not moved:
        return results
    until = asyncio.get_running_loop().time() + PLACEMENT_NEWS_MS / 1_000
    # By index: the broker groups that have forwarded a message since the routes were last
    # refreshed.
    seen = {index: {name} for index, name in moved.items()}
    while moved and asyncio.get_running_loop().time() < until:
        asked, topic = topic, proxy.cache.topics.get(topic.name, topic)
        if topic.placement != asked.placement:
            # The MOVED answers refer to another placement.
            moved, seen = dict.fromkeys(moved, ""), {index: set() for index in moved}
        rest, moved = moved, {}
        for group in dict.fromkeys(rest.values()):
            indexes = [index for index, name in rest.items() if name == group]
            chosen = [messages[index] for index in indexes]
            # Errors of a message itself were found before, so errors of these rounds need no
            # position.
            further, still = await sender.send(topic, chosen, at="", moved_from_group=group)
            results = merged(results, indexes, further)
            moved |= {indexes[number]: name for number, name in still.items()}
        if any(name in seen[index] for index, name in moved.items()):
            # The message went in a circle: one of the broker groups, or this proxy, is not yet up
            # to date.
            await proxy.cache.refresh()
            await asyncio.sleep(NEWS_INTERVAL_S)
            seen = {index: set() for index in moved}
        for index, name in moved.items():
            seen[index].add(name)
    return results


class _Sender:
    """Parameters that all rounds of one request share."""

    def __init__(self, proxy: Proxy, born_ms: int, born_host: bytes, system: str) -> None:
        self._proxy, self._born_ms, self._born_host, self._system = proxy, born_ms, born_host, system

    async def send(
        self, topic: Topic, messages: Messages, *, at: str, moved_from_group: str = ""
    ) -> tuple[SendResults, dict[int, str]]:
        """Return results, and by index the broker group that refused a message because it belongs
        elsewhere.
        """
        proxy = self._proxy
        encoded = encode_messages(
            topic,
            messages,
            ids=proxy.ids,
            born_ms=self._born_ms,
            born_host=self._born_host,
            usable=usable_groups(proxy, tuple(topic.broker_groups)),
            wiped=proxy.cache.wiped,
            at=at,
            system=self._system,
            moved_from=moved_from_group,
        )
        outcomes = await _store(proxy, encoded)
        results = send_results(topic.name, encoded, outcomes, self._born_ms, proxy.recall_maker)
        if not encoded.errors and all(outcome.is_sent for outcome in outcomes):
            return results, {}
        if find_missing_topic(encoded.parcels, outcomes):
            proxy.cache.refresh_soon()
        moved = moved_from(encoded.parcels, outcomes)
        for index, error in encoded.errors.items():
            if isinstance(error, (OwnerUnknown, PlacementChanged)):
                moved[index] = moved_from_group
        return results, dict(sorted(moved.items()))


async def _store(proxy: Proxy, encoded: Encoded) -> list[Outcome]:
    """Submit all parcels in one turn of the loop, so that they keep their order, then wait for
    them.
    """
    parcels = encoded.parcels
    if len(parcels) == 1:
        group = proxy.groups.get(parcels[0].broker_group)
        if group is not None:
            return [await group.sends.submit(parcels[0])]
    waiting: list[Any] = []
    for parcel in parcels:
        try:
            waiting.append(proxy.group(parcel.broker_group).sends.submit(parcel))
        except TernError as error:
            waiting.append(failed(error))
    return [each if isinstance(each, Outcome) else await each for each in waiting]


def usable_groups(proxy: Proxy, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return those broker groups of *names* that are writable and have a leader.

    If none has a leader, return all of them: one may be elected in time.
    """
    if len(names) == 1:
        return names
    if wiped := proxy.cache.wiped:
        names = tuple(name for name in names if name not in wiped) or names
    groups = proxy.groups
    return tuple(name for name in names if name in groups and groups[name].link.has_leader) or names
