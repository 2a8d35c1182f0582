"""Requests about members to broker groups: to all of them, or to the first that answers, in a fixed
order for each group.
"""

import asyncio
from collections.abc import Mapping
from zlib import crc32

from tern_proxy.proxy import Proxy
from tern_wire.errors import GroupNotFound, NoLeader, NoNameServer, TernError, WarmingUp
from tern_wire.link.heads import LinkReply, LinkRequest, R


async def ask_first(proxy: Proxy, group: str, asked: LinkRequest[R]) -> R:
    """Return the first answer. Raise the first refusal when none answers.

    A broker group that lacks the group, as a new one may, is skipped.
    """
    refused: list[TernError] = []
    for name in await _names(proxy, group):
        try:
            answer, _ = await proxy.group(name).link.ask(asked, is_repeatable=True)
        except TernError as error:
            if not error.retryable and not isinstance(error, GroupNotFound):
                raise
            refused.append(error)
        else:
            return answer
    raise refused[0]


async def tell_all(proxy: Proxy, group: str, told: LinkRequest[R]) -> Mapping[str, R | TernError]:
    """Send a MEMBERS request to all broker groups. Raise the first error when none accepts it."""
    return await tell(proxy, dict.fromkeys(await _names(proxy, group), told))


async def tell(proxy: Proxy, told: Mapping[str, LinkRequest[R]]) -> Mapping[str, R | TernError]:
    """Return broker group -> reply or error. Raise the first error when all fail."""

    async def ask(name: str, request: LinkRequest[R]) -> R | TernError:
        try:
            answer, _ = await proxy.group(name).link.ask(request, is_repeatable=True)
        except TernError as error:
            return error
        return answer

    answers = await asyncio.gather(*(ask(name, request) for name, request in told.items()))
    errors = [answer for answer in answers if isinstance(answer, TernError)]
    if len(errors) == len(answers):
        raise errors[0]
    return dict(zip(told, answers, strict=True))


def missed(answers: Mapping[str, LinkReply | TernError]) -> dict[str, str]:
    """Return the broker groups that failed, and the error codes."""
    return {name: answer.code for name, answer in answers.items() if isinstance(answer, TernError)}


async def _names(proxy: Proxy, group: str) -> list[str]:
    """Return all broker groups in the order of requests about *group*; those that are gone last."""
    if proxy.cache.routes is None or not proxy.groups:
        await proxy.cache.refresh()
    routes = proxy.cache.routes
    if routes is None:
        raise NoNameServer(endpoints=proxy.cache.endpoints)
    names = sorted(proxy.groups)
    if not names:
        raise NoLeader(broker_group="(none is registered)") if routes.warm else WarmingUp()
    first = crc32(group.encode()) % len(names)
    here = {name for name, route in routes.broker_groups.items() if route.nodes}
    return sorted(names[first:] + names[:first], key=lambda name: name not in here)
