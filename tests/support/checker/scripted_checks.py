"""A broker peer for tests of the checker: a real LinkServer with open transactions in memory, which hands out their checks and notes what comes back.

It keeps the contract's schedule: a claim that ends without a report passes the same attempt on once more, then the attempt is lost; a transaction
that was asked max_checks times is parked. Time is the loop's. `script` bends the next replies: errors, or silence.
"""

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tern_remoting import Frame, Link, LinkServer
from tern_wire.errors import NotLeader, TernError
from tern_wire.limits import FRAME_SIZE_MAX_BYTES
from tern_wire.link.heads import head_parts
from tern_wire.link.requests import ERROR, RequestCode, body_parts, error_parts, read_body
from tern_wire.link.status import Leadership
from tern_wire.records.properties import encode_properties, system_properties
from tern_wire.records.write import encode_record
from tern_wire.settings.producer_settings import ProducerSettings
from tern_wire.transactions import (
    BY_CHECK,
    CHECK_NOT_YOURS,
    CHECK_NOTED,
    END_ROWS,
    END_VERDICTS,
    ENDED,
    ENDED_BEFORE,
    EXPIRED_BEFORE,
    LOST,
    OTHER_OUTCOME,
    OUTCOME_STATES,
    TRANSACTION_UNKNOWN,
)

SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
BEGUN_MS = 1_700_000_000_000


@dataclass(slots=True, kw_only=True)
class ScriptedTransaction:
    """One transaction, and what was said of it: (attempt, checker, answer) of each check, and of each end (outcome, by, claim)."""

    number: int
    producer_group: str
    records: list[bytes]
    due_ms: float
    state: str = "open"
    attempt: int = 0
    claim: int = 0
    claimed_until_ms: float = 0
    checker: str = ""
    is_second: bool = False
    checks: list[tuple[int, str, str]] = field(default_factory=list)
    ends: list[tuple[int, int, int]] = field(default_factory=list)


class ScriptedChecks:
    """One node of one broker group."""

    def __init__(self, key: bytes, *, broker_group: str = "broker-a", node: str = "broker-a-0") -> None:
        self.broker_group, self.node = broker_group, node
        self.leads, self.leader_hint, self.term = True, "", 1
        self.groups: dict[str, tuple[int, ProducerSettings]] = {}
        self.transactions: dict[int, ScriptedTransaction] = {}
        self.asked: Counter[RequestCode] = Counter()
        self.claims: list[dict[str, Any]] = []
        self._bends: dict[RequestCode, deque[TernError | None]] = {}
        self._claims = 0
        self._parked: list[tuple[Link, int, dict[str, Any], asyncio.TimerHandle]] = []
        self._wake: asyncio.TimerHandle | None = None
        self.server = LinkServer(
            "127.0.0.1",
            0,
            key=key,
            name=node,
            group_id="",
            on_frame=self._on_frame,
            on_ready=self._tell,
            on_lost=self._lost,
            frame_size_max_bytes=FRAME_SIZE_MAX_BYTES,
        )

    # What tests call --------------------------------------------------------------------------------------------
    def add_group(self, name: str, url: str, **settings: Any) -> None:
        """A producer group that is asked at *url* (from now on), with short times unless *settings* say otherwise."""
        known: dict[str, Any] = {"check_secret": SECRET, "check_interval_ms": 100, "timeout_ms": 2_000} | settings
        group_id = self.groups[name][0] if name in self.groups else len(self.groups) + 7
        self.groups[name] = (group_id, ProducerSettings(check_url=url, **known))

    def begin(self, producer_group: str, *bodies: bytes, due_in_ms: int = 0) -> ScriptedTransaction:
        """An open transaction of messages *bodies* (by default one), due for its first check."""
        number = (1_000 + len(self.transactions)) << 20
        records = []
        for at, body in enumerate(bodies or (b"hello",)):
            properties = system_properties(f"ID{number}-{at}", "TagA", ["k1", "k2"], "text/plain")
            packed = encode_properties(
                [*properties, ("PGROUP", producer_group), ("TRAN_MSG", "true"), ("colour", "blue")]
            )
            records.append(encode_record(b"orders", 0, body, packed, born_ms=BEGUN_MS))
        made = ScriptedTransaction(
            number=number, producer_group=producer_group, records=records, due_ms=_now_ms() + due_in_ms
        )
        self.transactions[number] = made
        self._look()
        return made

    def script(self, code: RequestCode, *bends: TernError | None) -> None:
        """Bend the next replies to *code*, one each: an error, or None for silence."""
        self._bends.setdefault(code, deque()).extend(bends)

    @property
    def parked(self) -> int:
        """CLAIM_CHECKS requests that wait."""
        return len(self._parked)

    def lead(self, term: int) -> None:
        """Win the election of *term*, and say so."""
        self.leads, self.term = True, term
        for link in self.server.links:
            self._tell(link)

    def resign(self, hint: str = "") -> None:
        """Lead no longer: what is parked is refused."""
        self.leads, self.leader_hint = False, hint
        for link, opaque, _, timer in self._parked:
            timer.cancel()
            link.reply(opaque, ERROR, error_parts(NotLeader(node=self.node, leader=hint)))
        self._parked.clear()

    def states(self) -> Counter[str]:
        """How many transactions are in which state."""
        return Counter(transaction.state for transaction in self.transactions.values())

    async def stop(self) -> None:
        """No timers, no links."""
        if self._wake is not None:
            self._wake.cancel()
        for *_, timer in self._parked:
            timer.cancel()
        await self.server.stop()

    # Requests ---------------------------------------------------------------------------------------------------
    def _tell(self, link: Link) -> None:
        link.post(Leadership.code, head_parts(Leadership(self.node, self.term, self.leads)))

    def _lost(self, link: Link, _: Exception | None) -> None:
        for parked in [parked for parked in self._parked if parked[0] is link]:
            parked[3].cancel()
            self._parked.remove(parked)

    def _on_frame(self, link: Link, frame: Frame) -> None:
        assert link.peer.role == "checker"
        code = RequestCode(frame.code)
        self.asked[code] += 1
        bends = self._bends.get(code)
        if bends:
            bend = bends.popleft()
            if bend is not None:
                link.reply(frame.opaque, ERROR, error_parts(bend))
            return
        head, raw = read_body(frame.body)
        if code == RequestCode.STATUS:
            role = "leader" if self.leads else "follower"
            link.reply(frame.opaque, 0, body_parts({"node": self.node, "role": role, "term": self.term}))
            return
        if not self.leads:
            error = NotLeader(node=self.node, leader=self.leader_hint)
            link.reply(frame.opaque, ERROR, error_parts(error))
            return
        if code == RequestCode.CLAIM_CHECKS:
            self.claims.append(head)
            timer = asyncio.get_running_loop().call_later(head["wait_ms"] / 1_000, self._late, frame.opaque)
            self._parked.append((link, frame.opaque, head, timer))
            self._look()
            return
        answer = {
            RequestCode.END_TRANSACTIONS: self._end,
            RequestCode.REPORT_CHECKS: self._report,
            RequestCode.DESCRIBE_PRODUCER_GROUP: self._describe,
        }[code]
        reply, data = answer(head, raw)
        link.reply(frame.opaque, 0, body_parts(reply, [data]))

    def _late(self, opaque: int) -> None:
        for parked in [parked for parked in self._parked if parked[1] == opaque]:
            self._parked.remove(parked)
            parked[0].reply(opaque, 0, body_parts({"checks": []}))

    # The schedule -----------------------------------------------------------------------------------------------
    def _look(self) -> None:
        """End claims that are over, and hand out what is due to who waits."""
        now_ms = _now_ms()
        for transaction in self.transactions.values():
            if transaction.claim and transaction.claimed_until_ms <= now_ms:
                self._claim_over(transaction, now_ms)
        while self._parked:
            due = [one for one in self.transactions.values() if self._is_due(one, now_ms)]
            if not due:
                break
            link, opaque, head, timer = self._parked.pop(0)
            timer.cancel()
            checks, data = [], b""
            for transaction in due[: head["max"]]:
                self._claims += 1
                transaction.claim, transaction.checker = self._claims, head["checker"]
                settings = self.groups[transaction.producer_group][1]
                transaction.claimed_until_ms = now_ms + head["claim_ms"] + settings.timeout_ms
                if not transaction.is_second:
                    transaction.attempt += 1
                group_id = self.groups[transaction.producer_group][0]
                messages = [["orders", 0, len(record)] for record in transaction.records]
                row = [
                    transaction.number,
                    self._claims,
                    transaction.attempt,
                    transaction.producer_group,
                    group_id,
                    BEGUN_MS,
                ]
                checks.append([*row, int(transaction.claimed_until_ms), messages])
                data += b"".join(transaction.records)
            link.reply(opaque, 0, body_parts({"checks": checks, "now_ms": int(now_ms)}, [data]))
        self._sleep(now_ms)

    def _sleep(self, now_ms: float) -> None:
        moments = [
            one.claimed_until_ms if one.claim else one.due_ms
            for one in self.transactions.values()
            if one.state == "open"
        ]
        later = [moment for moment in moments if moment > now_ms]
        if self._wake is not None:
            self._wake.cancel()
        self._wake = None
        if later:
            self._wake = asyncio.get_running_loop().call_later((min(later) - now_ms) / 1_000 + 0.001, self._look)

    def _is_due(self, transaction: ScriptedTransaction, now_ms: float) -> bool:
        settings = self.groups[transaction.producer_group][1]
        is_free = transaction.state == "open" and not transaction.claim and transaction.due_ms <= now_ms
        if is_free and transaction.attempt >= settings.max_checks and not transaction.is_second:
            transaction.state = "expired"
            return False
        return is_free and bool(settings.check_url)

    def _claim_over(self, transaction: ScriptedTransaction, now_ms: float) -> None:
        transaction.claim = 0
        if transaction.is_second:
            self._noted(transaction, LOST, now_ms)
        transaction.is_second = not transaction.is_second
        if transaction.is_second:
            transaction.due_ms = now_ms

    def _noted(self, transaction: ScriptedTransaction, answer: str, now_ms: float) -> None:
        transaction.checks.append((transaction.attempt, transaction.checker, answer))
        transaction.due_ms = now_ms + self.groups[transaction.producer_group][1].check_interval_ms

    def _end(self, head: dict[str, Any], raw: memoryview) -> tuple[dict[str, Any], bytes]:
        verdicts = np.zeros(head["rows"], END_VERDICTS)
        for at, (number, claim, group_id, outcome, by, _) in enumerate(
            np.frombuffer(raw, END_ROWS, head["rows"]).tolist()
        ):
            transaction = self.transactions.get(number)
            state = OUTCOME_STATES[outcome]
            if transaction is None or self.groups[transaction.producer_group][0] != group_id:
                verdicts[at]["status"] = TRANSACTION_UNKNOWN
            elif transaction.state == "open":
                transaction.state, transaction.claim = state, 0
                transaction.ends.append((outcome, by, claim))
                assert by == BY_CHECK
                verdicts[at]["status"] = ENDED
            elif transaction.state == "expired":
                verdicts[at]["status"] = EXPIRED_BEFORE
            else:
                verdicts[at]["status"] = ENDED_BEFORE if transaction.state == state else OTHER_OUTCOME
        return {}, verdicts.tobytes()

    def _report(self, head: dict[str, Any], _: memoryview) -> tuple[dict[str, Any], bytes]:
        statuses = bytearray()
        for number, claim, answer, latency_ms in head["reports"]:
            assert len(answer) <= 32
            assert isinstance(latency_ms, int)
            transaction = self.transactions.get(number)
            if transaction is None or transaction.claim != claim or transaction.state != "open":
                statuses.append(CHECK_NOT_YOURS)
                continue
            statuses.append(CHECK_NOTED)
            transaction.claim, transaction.is_second = 0, False
            self._noted(transaction, answer, _now_ms())
        self._look()
        return {}, bytes(statuses)

    def _describe(self, head: dict[str, Any], _: memoryview) -> tuple[dict[str, Any], bytes]:
        found = self.groups.get(head["producer_group"])
        if found is None:
            return {"groups": [], "more": False}, b""
        group = {"producer_group": head["producer_group"], "producer_group_id": found[0], **found[1].packed()}
        stats = {"open": 0, "expired": 0, "committed": 0, "rolled_back": 0, "checks": 0}
        return {"groups": [{**group, "revision": 0, "stats": stats}], "more": False}, b""


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1_000
