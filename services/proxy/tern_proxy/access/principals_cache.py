"""Cache of the principals: polled from every broker group, merged, and published as one immutable
table.

Every broker group has every principal; what one lacks, another has. So this proxy keeps everything
that it has received, and sends it to broker groups that lack it: one that was without a leader, or
one that was added to a running mesh.

Law: a change, such as a revocation, at the leader of any broker group is in `table` at most
PRINCIPALS_INTERVAL_MS and one answer (at most PRINCIPALS_ANSWER_MS) later, which is less than 5 s,
as long as this proxy reaches that leader. A slow answer of one group does not delay the others. A
proxy that reaches no leader continues with its table; then no message passes through it either.
Owner: this object, in its event loop. The table itself is never changed, only replaced.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from msgspec import Raw

from tern_routing import GroupLink
from tern_service.clock import Clock
from tern_tasks import OURS, KeptTasks
from tern_wire.errors import TernError
from tern_wire.limits import (
    DELETED_PRINCIPAL_KEPT_MS,
    PRINCIPALS_ANSWER_MS,
    PRINCIPALS_INTERVAL_MS,
    PRINCIPALS_PAGE_MAX,
    PRINCIPALS_WHOLE_INTERVAL_MS,
)
from tern_wire.link.codec import decode_msgpack, encode_msgpack
from tern_wire.link.principals import ListPrincipals, PutPrincipal
from tern_wire.principals.documents import PrincipalDocument, joined, read_principal_document
from tern_wire.principals.principals import Principal, PrincipalTable

logger = logging.getLogger(__name__)
# Interval before the first complete answer: until then every request but root's is refused.
NOT_READY_INTERVAL_MS = 100
# Principals sent to one broker group after one poll: some tenths of a second of its work. The rest
# follows with the next polls.
REPAIRS_PER_POLL = 64


@dataclass(slots=True, kw_only=True)
class _Reading:
    """Answers of one broker group up to *revision*.

    *documents* holds the very objects of `_merged` where they are equal.
    """

    documents: dict[str, PrincipalDocument] = field(default_factory=dict)
    revision: int = 0


@dataclass(slots=True, kw_only=True)
class _Heard:
    """One broker group.

    *again*: a full reload, because the last one, at *whole_at_ms* (monotonic), is long ago.
    """

    reading: _Reading = field(default_factory=_Reading)
    again: _Reading | None = None
    whole_at_ms: int = 0
    # Whether it has ever answered completely.
    is_whole: bool = False
    # Principals that it lacked at the last check, and the count of changes then. It gets those that
    # it lacks twice in a row.
    lacking: frozenset[str] = frozenset()
    looked_at: int = -1


class PrincipalsCache:
    """`table` is the basis of the proxy's decisions.

    `is_ready`: all broker groups with a leader have answered once. `is_whole`: all known broker
    groups have answered, so that a key outside `table` is unknown everywhere.
    """

    def __init__(
        self,
        links: Callable[[], Mapping[str, GroupLink]],
        *,
        has_routes: Callable[[], bool],
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        tasks: KeptTasks = OURS,
    ) -> None:
        self._links, self._has_routes, self._clock, self._sleep = links, has_routes, clock, sleep
        self._tasks = tasks
        self.table = PrincipalTable()
        self.is_ready = False
        # Last time at which all broker groups with a leader had answered (ms, monotonic).
        self.answered_at_ms = 0
        self.repairs = 0
        self._merged: dict[str, PrincipalDocument] = {}
        self._principals: dict[str, Principal] = {}
        self._heard: dict[str, _Heard] = {}
        self._is_changed = False
        self._followers: list[Callable[[], None]] = []
        # Count of received changes; a broker group without changes needs no check.
        self._changes = 0
        self._lock = asyncio.Lock()
        self._begun = self._ended = 0
        self._task: asyncio.Task[None] | None = None
        self._repairing: asyncio.Task[None] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all known broker groups have answered (see the class)."""
        names = self._links().keys()
        return self.is_ready and all(name in self._heard and self._heard[name].is_whole for name in names)

    @property
    def age_ms(self) -> int:
        """Age of the last poll that all broker groups with a leader have answered (ms)."""
        return self._clock.mono_ms() - self.answered_at_ms

    def document(self, name: str) -> PrincipalDocument | None:
        """Return the document of *name*, also of a deleted principal; None if there is none."""
        return self._merged.get(name)

    def documents(self) -> list[PrincipalDocument]:
        """Return the documents of all existing principals."""
        return [document for document in self._merged.values() if document.is_there]

    def follow(self, told: Callable[[], None]) -> None:
        """Call *told* at every new `table`, before any other event."""
        self._followers.append(told)

    def start(self) -> None:
        """Start polling."""
        self._task = self._tasks.keep("principals", self._run)

    async def stop(self) -> None:
        """Stop polling and repairing."""
        for task in (self._task, self._repairing):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def refresh(self) -> None:
        """Poll at once and wait for the leaders' answers, which are not older than this call."""
        ticket = self._begun
        async with self._lock:
            if self._ended <= ticket:
                await self._poll()

    def learn(self, document: PrincipalDocument) -> None:
        """Merge *document*, which a broker group has just accepted. It takes effect at once."""
        self._join(document)
        self._publish()

    # Polls ----------------------------------------------------------------------------------------
    async def _run(self) -> None:
        while True:
            began_ms = self._clock.mono_ms()
            await self.refresh()
            interval_ms = PRINCIPALS_INTERVAL_MS if self.is_ready else NOT_READY_INTERVAL_MS
            await self._sleep(max(interval_ms - (self._clock.mono_ms() - began_ms), NOT_READY_INTERVAL_MS) / 1_000)

    async def _poll(self) -> None:
        """Poll every broker group that has a leader; each answer takes effect at once."""
        self._begun += 1
        number = self._begun
        asked = {name: link for name, link in self._links().items() if link.has_leader}
        answers = await asyncio.gather(*(self._ask(name, link) for name, link in asked.items()))
        self._ended = number
        if answers and all(answers):
            self.answered_at_ms = self._clock.mono_ms()
        if not self.is_ready and asked and self._has_routes() and all(self._heard[name].is_whole for name in asked):
            self.is_ready = True
            logger.info("principals are known", extra={"principals": len(self._principals)})
        self._repair_soon([name for name, answered in zip(asked, answers, strict=True) if answered])

    async def _ask(self, name: str, link: GroupLink) -> bool:
        """Poll changes at *name*; return whether it answered completely."""
        now_ms = self._clock.mono_ms()
        heard = self._heard.setdefault(name, _Heard(whole_at_ms=now_ms))
        if not await self._read(heard.reading, link, PRINCIPALS_ANSWER_MS):
            return False
        heard.is_whole = True
        if heard.again is None and now_ms - heard.whole_at_ms >= PRINCIPALS_WHOLE_INTERVAL_MS:
            heard.again = _Reading()
        # In less time, so that changes are not delayed; the rest is requested at the next poll.
        if heard.again is not None and await self._read(heard.again, link, PRINCIPALS_ANSWER_MS // 2):
            heard.reading, heard.again, heard.whole_at_ms = heard.again, None, now_ms
            self._changes += 1
        return True

    async def _read(self, reading: _Reading, link: GroupLink, time_ms: int) -> bool:
        """Read pages for at most *time_ms*; return whether that was all."""
        try:
            async with asyncio.timeout(time_ms / 1_000):
                while True:
                    asked = ListPrincipals(after=reading.revision, limit=PRINCIPALS_PAGE_MAX)
                    told, _ = await link.ask(asked, is_repeatable=True, deadline_ms=PRINCIPALS_ANSWER_MS)
                    if told.revision < reading.revision:
                        logger.warning("a broker group was recreated", extra={"broker_group": link.broker_group})
                        reading.documents, reading.revision = {}, 0
                        self._changes += 1
                        continue
                    for changed in told.principals:
                        document = read_principal_document(decode_msgpack(changed.document))
                        reading.documents[document.name] = self._join(document)
                        reading.revision = changed.revision
                        self._changes += 1
                    self._publish()
                    if not told.more:
                        return True
        except (TernError, TimeoutError) as error:
            detail = {"broker_group": link.broker_group, "error": repr(error)}
            logger.info("a broker group does not send its principals", extra=detail)
            return False
        except (TypeError, ValueError):
            # The principals of the other broker groups take effect all the same.
            logger.exception("principals cannot be read", extra={"broker_group": link.broker_group})
            return False

    def _join(self, document: PrincipalDocument) -> PrincipalDocument:
        """Merge *document*; return the object in `_merged` if both are equal."""
        known = self._merged.get(document.name)
        if known == document:
            return known
        merged = document if known is None else joined(known, document)
        if merged != known:
            self._merged[document.name] = merged
            principal = merged.principal()
            if principal is None:
                self._principals.pop(document.name, None)
            elif self._principals.get(document.name) != principal:
                self._principals[document.name] = principal
            self._is_changed = True
            self._changes += 1
        return merged if merged == document else document

    def _publish(self) -> None:
        if self._is_changed:
            self._is_changed = False
            self.table = PrincipalTable.of(self._principals.values(), self.table.version + 1)
            for told in self._followers:
                told()

    # Repairs --------------------------------------------------------------------------------------
    def _repair_soon(self, answered: list[str]) -> None:
        """Send broker groups the principals that they lack, if they lacked them at the last check,
        too.

        The second condition leaves out writes in progress.
        """
        told: dict[str, list[str]] = {}
        forgotten_ms = self._clock.now_ms() - DELETED_PRINCIPAL_KEPT_MS
        for name in answered:
            heard = self._heard[name]
            if heard.looked_at == self._changes and not heard.lacking:
                continue
            heard.looked_at = self._changes
            lacking = frozenset(
                each.name
                for each in self._merged.values()
                if heard.reading.documents.get(each.name) is not each
                and (each.is_there or each.deleted_ms > forgotten_ms)
            )
            still = sorted(lacking & heard.lacking)
            heard.lacking = lacking
            if still:
                told[name] = still[:REPAIRS_PER_POLL]
        if told and (self._repairing is None or self._repairing.done()):
            self._repairing = asyncio.create_task(self._repair(told))

    async def _repair(self, told: Mapping[str, list[str]]) -> None:
        links = self._links()
        for name, lacking in told.items():
            try:
                for each in lacking:
                    document = Raw(encode_msgpack(self._merged[each].packed()))
                    await links[name].ask(PutPrincipal(document=document, is_repair=True), is_repeatable=True)
                    self.repairs += 1
            except TernError as error:
                # The next poll finds what it still lacks.
                logger.warning(
                    "a broker group does not accept principals", extra={"broker_group": name, "detail": error.detail}
                )
