"""Concurrent requests to broker groups: to all that are known, or to those of a topic."""

import asyncio
from collections.abc import Mapping

from tern_proxy.core.sending.topic import Topic
from tern_proxy.proxy import Proxy
from tern_wire.errors import NoLeader, NoNameServer, TernError, WarmingUp
from tern_wire.link.heads import LinkRequest, R


async def broker_group_names(proxy: Proxy) -> list[str]:
    """Return the known broker groups that are not being removed, ascending, at least one.

    Raise NoNameServer, WarmingUp or NoLeader when there is none.
    """
    if proxy.cache.routes is None or not proxy.groups:
        await proxy.cache.refresh()
    if proxy.cache.routes is None:
        raise NoNameServer(endpoints=proxy.cache.endpoints)
    if not proxy.groups:
        raise NoLeader(broker_group="(none is registered)") if proxy.cache.routes.warm else WarmingUp()
    names = sorted(proxy.groups)
    return [name for name in names if not proxy.is_taken_out(name)] or names


async def ask_all(
    proxy: Proxy, request: LinkRequest[R], *, is_repeatable: bool = True, absent: type[TernError] | None = None
) -> list[tuple[str, R]]:
    """Return name and answer of every broker group, in the order of their names.

    After all have answered, raise the first error, if any. *absent*: the error of a broker group
    that lacks the object; it is left out unless all broker groups raise it. Raise NoNameServer,
    WarmingUp or NoLeader when no broker group is known.
    """
    names = await broker_group_names(proxy)
    links = [proxy.groups[name].link for name in names]
    answers = await asyncio.gather(
        *(link.ask(request, is_repeatable=is_repeatable) for link in links), return_exceptions=True
    )
    troubles = [answer for answer in answers if isinstance(answer, BaseException)]
    if absent is not None and not all(isinstance(trouble, absent) for trouble in answers):
        troubles = [trouble for trouble in troubles if not isinstance(trouble, absent)]
    if troubles:
        raise troubles[0]
    return [(name, answer[0]) for name, answer in zip(names, answers, strict=True) if isinstance(answer, tuple)]


async def ask_each(proxy: Proxy, topic: Topic, request: LinkRequest[R]) -> list[tuple[str, R, memoryview]]:
    """Return name, answer and raw bytes of every broker group that hosts *topic*, in the order of
    their names.

    The request must be repeatable. Raise the first error.
    """
    names = list(topic.broker_groups)
    links = [proxy.group(name).link for name in names]  # all of them, before one is asked
    answers = await asyncio.gather(*(link.ask(request, is_repeatable=True) for link in links))
    return [(name, answer, raw) for name, (answer, raw) in zip(names, answers, strict=True)]


async def ask_named(proxy: Proxy, requests: Mapping[str, LinkRequest[R]]) -> list[tuple[str, R]]:
    """Return name and answer of each broker group in *requests*, which has its own request.

    The requests must be repeatable. After all have answered, raise the first error, if any.
    """
    links = [proxy.group(name).link for name in requests]
    answers = await asyncio.gather(
        *(link.ask(request, is_repeatable=True) for link, request in zip(links, requests.values(), strict=True)),
        return_exceptions=True,
    )
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [(name, answer[0]) for name, answer in zip(requests, answers, strict=True) if isinstance(answer, tuple)]
