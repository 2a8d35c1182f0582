"""A broker group joins a mesh: what others have and it lacks is declared there, consumer groups and producer groups of every namespace.

Law: nothing that is there is changed, however often this is repeated, and whatever is declared at the same time. A page of names and so many
declarations are under way at once, never more. What it is told of survives if this ends halfway: a repeat goes on from what is there.

Topics are not declared: they grow onto a broker group when they are placed there. Principals are told by every proxy (principals_cache.py). Internal topics
(replies, the audit) are topics like others and need not be there: only broker groups that host them are asked.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tern_proxy.core.joining import group_to_create, missing_of, producer_group_to_create
from tern_proxy.proxy import Proxy
from tern_proxy.routes.documents import ask_all
from tern_proxy.routes.late_groups import begin_group
from tern_wire.errors import AlreadyExists
from tern_wire.limits import JOINS_AT_ONCE, LISTED_MAX
from tern_wire.link.requests import RequestCode, body_parts
from tern_wire.settings.group_settings import LATEST, read_group_change

Heads = list[tuple[str, dict[str, Any]]]
# Makes one group of that name as others have it; whether it is new.
Make = Callable[[str, Heads], Awaitable[bool]]


async def join_groups(proxy: Proxy, broker_group: str) -> dict[str, int]:
    """Declare at *broker_group* what it lacks; how many consumer and producer groups are new there. The first trouble ends it."""
    link = proxy.group(broker_group).link

    async def make(_: str, heads: Heads) -> bool:
        return await make_group(proxy, broker_group, heads)

    async def make_producer_group(name: str, heads: Heads) -> bool:
        change = producer_group_to_create(name, heads).packed()
        head, _ = await link.request(RequestCode.ALTER_PRODUCER_GROUP, body_parts(change), is_repeatable=True)
        return bool(head["created"])

    everything = {"namespace": "", "everywhere": True, "limit": LISTED_MAX}
    listing = {**everything, "q": "", "descending": False}
    describing = {**everything, "producer_group": ""}
    late: set[str] = set()
    groups = await _join(proxy, broker_group, RequestCode.LIST_GROUPS, listing, "group", make, late)
    # Of topics that have grown onto it already; those that are placed there later see to it themselves.
    for name in sorted(late):
        await begin_group(proxy, name, broker_group)
    producers = await _join(
        proxy, broker_group, RequestCode.DESCRIBE_PRODUCER_GROUP, describing, "producer_group", make_producer_group
    )
    return {"groups": groups, "producer_groups": producers}


async def make_group(proxy: Proxy, broker_group: str, heads: Heads) -> bool:
    """Create a consumer group at *broker_group* as the others have it (*heads*: what they say of it); whether it is new."""
    change = read_group_change(group_to_create(heads)).packed()
    try:
        await proxy.group(broker_group).link.request(RequestCode.CREATE_GROUP, body_parts(change), is_repeatable=True)
    except AlreadyExists:
        # Declared meanwhile by somebody else, or by an attempt whose outcome nobody knew.
        return False
    return True


async def _join(
    proxy: Proxy,
    broker_group: str,
    code: RequestCode,
    asked: dict[str, Any],
    field: str,
    make: Make,
    late: set[str] | None = None,
) -> int:
    """How many are new. *late* gets the names of all groups that start with what comes."""
    created, after = 0, ""
    while True:
        answers = await ask_all(proxy, code, {**asked, "after": after})
        told = {name: (head["groups"], bool(head["more"])) for name, head in answers}
        if late is not None:
            late.update(head[field] for rows, _ in told.values() for head in rows if head["start"] == LATEST)
        missing = missing_of(broker_group, told, field, LISTED_MAX)
        created += await _make_all(missing.groups, make)
        after = missing.after
        if not after:
            return created


async def _make_all(groups: dict[str, Heads], make: Make) -> int:
    """Make each of *groups*, JOINS_AT_ONCE at a time; how many are new. The first trouble is raised, when all under way have ended."""
    left = iter(groups.items())

    async def work() -> int:
        # What is left is shared: the next one is whoever's that is free.
        return sum([await make(name, heads) for name, heads in left])

    done = await asyncio.gather(*(work() for _ in range(JOINS_AT_ONCE)), return_exceptions=True)
    for each in done:
        if isinstance(each, BaseException):
            raise each
    return sum(each for each in done if isinstance(each, int))
