"""Handlers for producer groups: declared, described, listed, deleted.

Every broker group has every producer group.
"""

import asyncio
import secrets

import msgspec

from tern_proxy.core.documents.producer_groups import ProducerGroupPage, ProducerGroupSettings, ProducerGroupState
from tern_proxy.core.listing import Page, read_page
from tern_proxy.core.transactions.producer_groups import (
    SECRET_SIZE_BYTES,
    Answers,
    newest,
    producer_change,
    producer_group_declared,
    producer_group_state,
    to_copy,
    to_decide,
    write_secret,
)
from tern_proxy.proxy import Proxy
from tern_proxy.routes.call import Answer, Call
from tern_proxy.routes.fan_out import ask_all, broker_group_names
from tern_proxy.routes.lists import take_visible
from tern_proxy.routes.topics.topics import names_settings
from tern_wire.errors import ProducerGroupBusy, ProducerGroupNotFound
from tern_wire.link.producer_groups import (
    ChangeProducerGroup,
    DeleteProducerGroup,
    DescribeProducerGroups,
    KnownProducerGroup,
    ProducerGroupChanged,
)
from tern_wire.names import check_group
from tern_wire.principals.principals import ALTER, PRODUCER_GROUP
from tern_wire.settings.producer_settings import ProducerChange


async def put_producer_group(call: Call, producer_group: str) -> Answer:
    """Declare a producer group: afterwards it exists, with the given settings. 201 when it is new.

    With a `check_url`, checks of its open transactions are sent there, signed by Standard Webhooks;
    without one its producers receive the checks. An answer counts only when it is signed, too, with
    the same secret, for the check's `MQ-Check-Nonce`: `MQ-Check-Signature` is `v1,` and the base64
    of HMAC-SHA256 over `ternmq-check-answer-v1`, nonce, transaction id and body, with a line feed
    between each. `check_secret` is generated unless it is given, and is only in the answer of the
    PUT that has set it.
    """
    check_group(producer_group)
    settings = await call.read(ProducerGroupSettings)
    if names_settings(settings):
        call.admission.require(ALTER, PRODUCER_GROUP, producer_group)
    change = producer_change(producer_group, settings)
    if url := change.settings.get("check_url"):
        call.proxy.check_hosts.require_allowed(url)
    fresh = write_secret(secrets.token_bytes(SECRET_SIZE_BYTES))
    known = await _describe(call.proxy, producer_group)
    with call.proxy.creations.one(call.owner, is_free=bool(known)) as creation:
        answers = await _alter(call.proxy, to_decide(change, known, fresh), newest(known))
        created = creation.is_new = any(found.created for _, found in answers)
    # Shown once: an earlier secret is not shown.
    own = (fresh, settings.check_secret)
    declared = producer_group_declared(producer_group, answers, created=created, fresh=own)
    return Answer(declared, 201 if created else 200)


async def _alter(
    proxy: Proxy, change: ProducerChange, before: KnownProducerGroup | None
) -> list[tuple[str, ProducerGroupChanged]]:
    """Send the change to the first broker group, which decides, and its decision to the others.

    If one of the others fails, a repeat of the PUT completes it. *before*: the newest decision,
    which is sent to the first one if it lacks it, as a new one may.
    """
    name = change.producer_group
    first, *others = await broker_group_names(proxy)
    created = False
    if before is not None and before.revision:
        created = (await _tell(proxy, first, to_copy(name, before))).created
    # A repeat gets the same decision, one revision later.
    decided = await _tell(proxy, first, change)
    copied = await asyncio.gather(*(_tell(proxy, other, to_copy(name, decided)) for other in others))
    decided = msgspec.structs.replace(decided, created=decided.created or created)
    return [(first, decided), *zip(others, copied, strict=True)]


async def _tell(proxy: Proxy, broker_group: str, change: ProducerChange) -> ProducerGroupChanged:
    link = proxy.group(broker_group).link
    found, _ = await link.ask(ChangeProducerGroup(**change.packed()), is_repeatable=True)
    return found


async def get_producer_group(call: Call, producer_group: str) -> ProducerGroupState:
    """Return settings, numbers of its open, expired, committed and rolled back transactions, and
    the number of checks.
    """
    return producer_group_state(producer_group, await _found(call.proxy, producer_group))


async def list_producer_groups(call: Call) -> ProducerGroupPage:
    """List producer groups in order of their names, page by page: `next_cursor` is empty on the
    last one.
    """
    page = read_page(call.query, {"name": str})

    async def ask(part: Page) -> tuple[dict[str, list[tuple[str, KnownProducerGroup]]], bool]:
        after = part.after[1] if part.after is not None else ""
        asked = DescribeProducerGroups(producer_group="", after=after, limit=part.limit, namespace=call.namespace)
        answers = await ask_all(call.proxy, asked)
        rows: dict[str, list[tuple[str, KnownProducerGroup]]] = {}
        for broker_group, told in answers:
            for group in told.groups:
                rows.setdefault(group.producer_group, []).append((broker_group, group))
        return rows, any(told.more for _, told in answers)

    found, cursor = await take_visible(page, ask, call.admission, PRODUCER_GROUP)
    return ProducerGroupPage(
        producer_groups=[producer_group_state(name, groups) for name, groups in found], next_cursor=cursor
    )


async def delete_producer_group(call: Call, producer_group: str) -> None:
    """Delete a producer group without open or expired transactions (409 producer-group-busy
    otherwise). The name becomes free.
    """
    found = await _found(call.proxy, producer_group)
    told = [group.stats for _, group in found if group.stats is not None]
    count, expired = sum(stats.open for stats in told), sum(stats.expired for stats in told)
    if count or expired:
        # Before any broker group has deleted its part.
        raise ProducerGroupBusy(producer_group=producer_group, open=count, expired=expired)
    for name, _ in found:
        # A repeat finds it deleted, which is the requested result.
        link = call.proxy.group(name).link
        await link.ask(DeleteProducerGroup(producer_group=producer_group), is_repeatable=True)


async def _found(proxy: Proxy, producer_group: str) -> Answers:
    """Return the descriptions of all broker groups that have it.

    Raise ProducerGroupNotFound when none has.
    """
    check_group(producer_group)
    found = await _describe(proxy, producer_group)
    if not found:
        raise ProducerGroupNotFound(producer_group=producer_group)
    return found


async def _describe(proxy: Proxy, producer_group: str) -> list[tuple[str, KnownProducerGroup]]:
    """Return the descriptions of all broker groups that have it; empty when none has."""
    names = await broker_group_names(proxy)
    asked = DescribeProducerGroups(producer_group=producer_group, after="", limit=1)
    links = [proxy.group(name).link for name in names]
    answers = await asyncio.gather(*(link.ask(asked, is_repeatable=True) for link in links), return_exceptions=True)
    found: list[tuple[str, KnownProducerGroup]] = []
    for name, answer in zip(names, answers, strict=True):
        if isinstance(answer, BaseException):
            if not isinstance(answer, ProducerGroupNotFound):
                raise answer
        else:
            found += [(name, group) for group in answer[0].groups]
    return found
