"""Claims the due checks of one broker group, with one long poll at a time.

    Dispatcher.room -> CLAIM_CHECKS (parked at the leader until a check is due)
        -> settings of each producer group -> request bodies -> Dispatcher.take

Owner of the claiming task: this object. Law: a claim never exceeds the room. A claim whose reply is
lost, or whose producer group cannot be looked up, ends by itself: the broker group hands the same
attempts out again.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tern_routing import GroupLink
from tern_service.clock import Clock
from tern_tasks import keep_running
from tern_txn_checker.core.answers import UNREADABLE
from tern_txn_checker.core.backoff import pause_ms
from tern_txn_checker.core.schedule import Check, Claim
from tern_txn_checker.dispatcher import CLAIM_MARGIN_MS, Dispatcher
from tern_txn_checker.producer_groups import Approach, ProducerGroups
from tern_wire.errors import LinkBodyMalformed, LinkReplyMalformed, TernError
from tern_wire.limits import APPEND_DEADLINE_MS, CHECKS_CLAIMED_MAX
from tern_wire.link.checks import ClaimChecks

if TYPE_CHECKING:
    from tern_txn_checker.core.callback_bodies import CallbackBodies, Claimed

logger = logging.getLogger(__name__)

PAUSE_FIRST_MS, PAUSE_LONGEST_MS = 100, 5_000
# Maximum bytes of records in one claim: half of a frame, and 256 ordinary messages many times over.
CLAIM_SIZE_MAX_BYTES = 4 * 1024 * 1024
# Checks that are decoded before the event loop turns.
READ_AT_ONCE_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Claiming:
    """The parameters of claims.

    *claim_ms*: duration of a claim beside the time of the call. *wait_ms*: duration of a poll.
    *share*: returns the maximum number of checks in one claim.
    """

    name: str
    claim_ms: int
    wait_ms: int
    share: Callable[[], int]


class Claimer:
    """The claimer of one broker group, from `start` to `stop`.

    *groups*: the settings of its producer groups.
    """

    def __init__(
        self,
        link: GroupLink,
        dispatcher: Dispatcher,
        groups: ProducerGroups,
        *,
        claiming: Claiming,
        cluster_key: bytes,
        clock: Clock,
        rng: random.Random,
        on_claimed: Callable[[int], None],
    ) -> None:
        self._link, self._dispatcher, self._groups, self._claiming = link, dispatcher, groups, claiming
        self._cluster_key, self._clock, self._rng, self._on_claimed = cluster_key, clock, rng, on_claimed
        self._questions: CallbackBodies | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start claiming."""
        self._task = keep_running("claims", self._run)

    async def stop(self) -> None:
        """Stop claiming; a parked poll is cancelled."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        failures, said = 0, ""
        while True:
            await self._dispatcher.room()
            try:
                await self._claim()
                failures, said = 0, ""
            except TernError as error:
                failures += 1
                if error.code != said:
                    # Log each cause once, not each attempt: a broker group may be away for an hour.
                    said = error.code
                    about = {"broker_group": self._link.broker_group, "code": said, "detail": error.detail}
                    logger.warning("cannot claim checks", extra=about)
                chance = self._rng.random()
                wait_ms = pause_ms(failures, first_ms=PAUSE_FIRST_MS, longest_ms=PAUSE_LONGEST_MS, chance=chance)
                await asyncio.sleep(wait_ms / 1_000)

    async def _claim(self) -> None:
        claiming = self._claiming
        found, raw = await self._link.ask(
            ClaimChecks(
                checker=claiming.name,
                producer_group="",
                max=max(1, min(CHECKS_CLAIMED_MAX, claiming.share())),
                claim_ms=claiming.claim_ms,
                wait_ms=claiming.wait_ms,
                max_bytes=CLAIM_SIZE_MAX_BYTES,
            ),
            is_repeatable=False,
            deadline_ms=claiming.wait_ms + APPEND_DEADLINE_MS,
            is_prompt=False,
        )
        claimed_ms = self._clock.mono_ms()
        if not found.checks:
            return
        # Imported at the first check: numpy comes with it, 12 MB that a mesh without open
        # transactions saves.
        from tern_txn_checker.core.callback_bodies import CallbackBodies, read_claimed  # noqa: PLC0415

        self._questions = self._questions or CallbackBodies(self._cluster_key, self._link.broker_group)
        claimed = read_claimed(found, raw)
        self._on_claimed(len(claimed))
        approaches = await self._approaches({check.producer_group for check in claimed})
        for at, check in enumerate(claimed):
            approach = approaches.get(check.producer_group)
            if approach is not None:
                self._lay(check, approach, self._questions, claimed_ms)
            if at % READ_AT_ONCE_MAX == READ_AT_ONCE_MAX - 1:
                await asyncio.sleep(0)

    async def _approaches(self, names: set[str]) -> dict[str, Approach]:
        """Return the approach for each of *names*, without those whose look-up failed."""
        found = await asyncio.gather(*(self._approach(name) for name in names))
        return {name: approach for name, approach in zip(names, found, strict=True) if approach is not None}

    async def _approach(self, name: str) -> Approach | None:
        try:
            return await self._groups.approach(name)
        except TernError as error:
            about = {"broker_group": self._link.broker_group, "producer_group": name, "code": error.code}
            logger.warning("the check settings of a producer group are unknown", extra=about)
            return None

    def _lay(self, claimed: "Claimed", approach: Approach, questions: "CallbackBodies", claimed_ms: int) -> None:
        """Pass one check to the Dispatcher.

        Unreadable messages are a bug or damage: no call is made, and the check is reported.
        """
        claim = Claim(
            broker_group=self._link.broker_group,
            number=claimed.number,
            claim=claimed.claim,
            producer_group_id=claimed.producer_group_id,
            until_ms=claimed_ms + claimed.claim_ms,
        )
        settings = approach.settings
        if approach.url is None:
            self._dispatcher.give_back(claim, approach.why_not)
            return
        transaction_id = questions.transaction_id(claimed)
        time = datetime.fromtimestamp(self._clock.now_ms() / 1_000, UTC).isoformat(timespec="milliseconds")
        try:
            body = questions.body(claimed, transaction_id, time=time, include_body=settings.include_body)
        except (LinkBodyMalformed, LinkReplyMalformed) as error:
            about = {"transaction_id": transaction_id, "detail": error.detail}
            logger.error("the messages of a check cannot be read", extra=about)
            self._dispatcher.give_back(claim, UNREADABLE)
            return
        self._dispatcher.take(
            Check(
                claim=claim,
                transaction_id=transaction_id,
                url=approach.url,
                secret=settings.check_secret,
                body=body,
                timeout_ms=settings.timeout_ms,
                start_by_ms=start_by_ms(claimed_ms, claimed.claim_ms, settings.timeout_ms),
            )
        )


def start_by_ms(claimed_ms: int, claim_ms: int, timeout_ms: int) -> int:
    """Return the latest start of a call that may take *timeout_ms*.

    A claim may be too short for that, if the timeout has just been raised. Then the check may wait
    for a quarter of the claim, and the call gets the rest.
    """
    in_time_ms = claim_ms - CLAIM_MARGIN_MS - timeout_ms
    return claimed_ms + max(in_time_ms, claim_ms // 4)
