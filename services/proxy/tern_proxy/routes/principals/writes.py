"""Principals changed: a change told to every broker group, and what is promised when some of them
do not answer.

Every broker group that answers has the change for good, and from then on every proxy that reaches
it: who joins what two groups say takes the newer settings, and never a key that one of them knows
as revoked (`tern_wire/principals/documents.py`). So a change does not wait for a broker group that
is without a leader. It is reported as partly done (503 principal-partly-written, which names both
kinds of groups), since a proxy that reaches only the others has not heard of it; a repeat completes
it, and the proxies do that by themselves too, as soon as the group answers. If no group has it,
nothing was done.

Changes of settings go from group to group in the order of their names, each only if the settings
there are those that the change was made from: of two writers one is told that it was too late. What
only takes away goes to all at once, whatever is there.
"""

import asyncio
from dataclasses import dataclass

from msgspec import Raw

from tern_proxy.access.principals_cache import PrincipalsCache
from tern_proxy.proxy import Proxy
from tern_proxy.routes.fan_out import broker_group_names
from tern_wire.errors import PrincipalNotFound, PrincipalPartlyWritten, TernError
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.principals import PutPrincipal
from tern_wire.principals.documents import PrincipalDocument
from tern_wire.principals.principals import check_principal

ANY_VERSION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Broker groups that have the change, and those that did not answer."""

    done: tuple[str, ...]
    missing: tuple[str, ...]


async def write(
    proxy: Proxy, change: PrincipalDocument, *, base: int = ANY_VERSION, is_repair: bool = False
) -> Written:
    """Send *change* to all broker groups. A returned change is in effect at this proxy.

    *base*: the version of the settings that it changes, PrincipalChanged if they are others by now;
    ANY_VERSION: whatever there is. Raises the first refusal (PrincipalChanged, LimitReached, ...),
    and the first trouble if no group has taken it.
    """
    names = await broker_group_names(proxy)
    asked = PutPrincipal(document=Raw(encode_msgpack(change.packed())), base=base, is_repair=is_repair)
    answers: list[TernError | None] = []
    if base == ANY_VERSION:
        answers += await asyncio.gather(*(_tell(proxy, name, asked) for name in names))
    else:
        for name in names:
            answers.append(await _tell(proxy, name, asked))
            if _is_refusal(answers[-1]):
                break
    done = tuple(name for name, answer in zip(names, answers, strict=False) if answer is None)
    if done:
        proxy.principals.learn(change)
    for answer in answers:
        if answer is not None and (_is_refusal(answer) or not done):
            raise answer
    return Written(done=done, missing=tuple(name for name in names if name not in done))


async def write_everywhere(
    proxy: Proxy, change: PrincipalDocument, *, base: int = ANY_VERSION, is_repair: bool = False
) -> Written:
    """Send *change* as `write` does.

    Raise PrincipalPartlyWritten unless every broker group has accepted it.
    """
    written = await write(proxy, change, base=base, is_repair=is_repair)
    if written.missing:
        done, missing = ", ".join(written.done), ", ".join(written.missing)
        raise PrincipalPartlyWritten(principal=change.name, done=done, missing=missing)
    return written


async def known(principals: PrincipalsCache, name: str) -> PrincipalDocument:
    """Return the current document of *name* from all leaders; an empty document if there never was
    one.
    """
    await principals.refresh()
    return principals.document(name) or PrincipalDocument(name=name)


async def found(principals: PrincipalsCache, name: str) -> PrincipalDocument:
    """Return the document of an existing principal. Raise PrincipalNotFound, InvalidField."""
    check_principal(name)
    document = await known(principals, name)
    if not document.is_there:
        raise PrincipalNotFound(principal=name)
    return document


async def _tell(proxy: Proxy, name: str, asked: PutPrincipal) -> TernError | None:
    """Return the error of the broker group *name*; None when it has the change, now or before."""
    try:
        await proxy.group(name).link.ask(asked, is_repeatable=True)
    except TernError as error:
        return error
    return None


def _is_refusal(answer: TernError | None) -> bool:
    """Return whether the answer is a refusal, and not a missing answer."""
    return answer is not None and answer.status < 500
