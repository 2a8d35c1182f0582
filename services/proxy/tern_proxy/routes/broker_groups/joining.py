"""Joining of a broker group: consumer and producer groups of every namespace that others have are
declared there.

Law: nothing that exists is changed, however often this is repeated, and whatever is declared
concurrently. At most one page of names and JOINS_AT_ONCE declarations are in flight. Declared
groups survive an interruption; a repeat continues from them.

Topics are not declared: a broker group gets them when they are placed there. Every proxy sends
principals (principals_cache.py). Internal topics (replies, the audit) are topics like others and
need not exist there: only broker groups that host them are asked.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from tern_proxy.core.documents.broker_groups import BrokerGroupJoined
from tern_proxy.core.joining import Answers, group_to_create, missing_of, producer_group_to_create
from tern_proxy.proxy import Proxy
from tern_proxy.routes.broker_groups.late_groups import begin_group
from tern_proxy.routes.fan_out import ask_all
from tern_wire.errors import AlreadyExists
from tern_wire.limits import JOINS_AT_ONCE, LISTED_MAX
from tern_wire.link.groups import ChangeGroup, KnownGroup, ListGroups
from tern_wire.link.producer_groups import ChangeProducerGroup, DescribeProducerGroups, KnownProducerGroup
from tern_wire.settings.group_settings import LATEST, read_group_change

# A broker group's description of a consumer group or a producer group.
Row = TypeVar("Row")
Told = Sequence[tuple[str, Row]]
# Creates one group with the settings of the others; returns whether it is new.
Make = Callable[[str, Told[Row]], Awaitable[bool]]


async def join_groups(proxy: Proxy, broker_group: str) -> BrokerGroupJoined:
    """Declare at *broker_group* the groups that it lacks; return the numbers of new groups.

    The first error ends it.
    """
    link = proxy.group(broker_group).link
    # Names of all groups with `start` latest.
    late: set[str] = set()

    async def list_groups(after: str) -> Answers[KnownGroup]:
        asked = ListGroups(q="", after=after, limit=LISTED_MAX, descending=False, everywhere=True)
        answers = await ask_all(proxy, asked)
        late.update(found.group for _, told in answers for found in told.groups if found.start == LATEST)
        return {name: (told.groups, told.more) for name, told in answers}

    async def list_producer_groups(after: str) -> Answers[KnownProducerGroup]:
        asked = DescribeProducerGroups(producer_group="", after=after, limit=LISTED_MAX, everywhere=True)
        return {name: (told.groups, told.more) for name, told in await ask_all(proxy, asked)}

    async def make(_: str, told: Told[KnownGroup]) -> bool:
        return await make_group(proxy, broker_group, told)

    async def make_producer_group(name: str, told: Told[KnownProducerGroup]) -> bool:
        change = ChangeProducerGroup(**producer_group_to_create(name, told).packed())
        found, _ = await link.ask(change, is_repeatable=True)
        return found.created

    groups = await _join(broker_group, list_groups, lambda found: found.group, make)
    # For topics that the broker group has already; topics placed there later do this themselves.
    for name in sorted(late):
        await begin_group(proxy, name, broker_group)
    producers = await _join(broker_group, list_producer_groups, lambda found: found.producer_group, make_producer_group)
    return BrokerGroupJoined(broker_group=broker_group, groups=groups, producer_groups=producers)


async def make_group(proxy: Proxy, broker_group: str, told: Told[KnownGroup]) -> bool:
    """Create a consumer group at *broker_group* as the others have it (*told*); return whether it
    is new.
    """
    change = msgspec.convert(read_group_change(group_to_create(told)).packed(), ChangeGroup)
    try:
        await proxy.group(broker_group).link.ask(change, is_repeatable=True)
    except AlreadyExists:
        # Declared meanwhile by another request, or by an attempt with an unknown outcome.
        return False
    return True


async def _join(
    broker_group: str,
    page_after: Callable[[str], Awaitable[Answers[Row]]],
    name_of: Callable[[Row], str],
    make: Make[Row],
) -> int:
    """Declare the missing groups page by page; return the number of new ones."""
    created, after = 0, ""
    while True:
        missing = missing_of(broker_group, await page_after(after), name_of, LISTED_MAX)
        created += await _make_all(missing.groups, make)
        after = missing.after
        if not after:
            return created


async def _make_all(groups: Mapping[str, Told[Row]], make: Make[Row]) -> int:
    """Create each of *groups*, JOINS_AT_ONCE at a time; return the number of new ones.

    The first error is raised when all in flight have ended.
    """
    left = iter(groups.items())

    async def work() -> int:
        # The iterator is shared: each free worker takes the next one.
        return sum([await make(name, told) for name, told in left])

    done = await asyncio.gather(*(work() for _ in range(JOINS_AT_ONCE)), return_exceptions=True)
    for each in done:
        if isinstance(each, BaseException):
            raise each
    return sum(each for each in done if isinstance(each, int))
