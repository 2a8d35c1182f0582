"""The blocking Consumer, for threads and scripts: the same decisions as the async one, one thread at a time, and `stop` from any."""

import logging
import os
import time
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace

from tern_client.blocking.settling import BlockingSettleCalls
from tern_client.calls.documents import Settle
from tern_client.calls.models import ReceivedMessage
from tern_client.calls.subscription import Subscription
from tern_client.consumer import EMPTY_PAUSE_MS, WAIT_DEFAULT_MS
from tern_client.prefetch import Prefetch
from tern_client.running import ITERATING
from tern_client.transport.blocking_transport import BlockingCaller, BlockingTransport, CallAbandoned
from tern_client.transport.clock import epoch_ms, now_ms
from tern_client.transport.credentials import FileName
from tern_client.transport.retrying import RetryPolicy
from tern_wire.errors import TernError
from tern_wire.limits import RECEIVE_SIZE_DEFAULT_BYTES, WAIT_MAX_MS

logger = logging.getLogger("tern_client.consumer")
# Of a consumer that nobody closed: so long its program may take to end for what is still to be settled.
_LAST_WORDS_MS = 3_000


class BlockingConsumer(BlockingSettleCalls):
    """Messages of one topic for one group. Not to be shared between threads, but for `stop`: give each thread its own.

    A loop over it waits for the next message without end. What ends it: `stop`, from another thread or a signal handler; `break`; or
    `until_idle` instead. It receives ahead and gives back as the async Consumer's does. A message whose lease was over, by *clock* (ms since
    the epoch), before the loop came to it is not handed out: the broker delivers it again. `close` acks what was confirmed; after that every
    use is refused (ClientClosed), iterating as well.
    """

    def __init__(
        self,
        endpoints: str | Sequence[str],
        topic: str,
        group: str,
        *,
        max_messages: int = 32,
        max_bytes: int = RECEIVE_SIZE_DEFAULT_BYTES,
        wait_ms: int = WAIT_DEFAULT_MS,
        invisible_ms: int | None = None,
        tags: str = "",
        sql: str = "",
        namespace: str = "",
        policy: RetryPolicy | None = None,
        key_file: FileName | None = None,
        ca_file: FileName | None = None,
        transport: BlockingTransport | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(
            endpoints, namespace=namespace, policy=policy, key_file=key_file, ca_file=ca_file, transport=transport
        )
        self._clock = clock or epoch_ms
        self._subscription = Subscription(
            topic=topic,
            group=group,
            max_messages=max_messages,
            max_bytes=max_bytes,
            wait_ms=wait_ms,
            invisible_ms=invisible_ms,
            tags=tags,
            sql=sql,
        )
        self._prefetch = Prefetch(max_messages)
        self._can_release = True
        self._is_stopped = False
        # A forked child has a copy of all this, and no say in it.
        self._process = os.getpid()
        # Of one that is dropped, or still open when its program ends: nothing of it may refer to this consumer.
        last = (self._process, self._caller, self._subscription, self._prefetch)
        self._last_words = weakref.finalize(self, _end_unclosed, *last)

    def stop(self) -> None:
        """End the loop, for good: where it waits at once, where it handles a message after that one. From any thread or signal handler.

        Every receive is [] from now on; what was handed out can be settled until `close`. Behind a forward proxy a wait goes on to its end.
        """
        self._is_stopped = True
        self._caller.abandon()

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Messages, without end, until `stop`."""
        return self._iterate(None)

    def until_idle(self, idle_ms: int = 0) -> Iterator[ReceivedMessage]:
        """As a loop over this, but it ends once there has been no message for *idle_ms*."""
        return self._iterate(idle_ms)

    def _iterate(self, idle_ms: int | None) -> Generator[ReceivedMessage, None, None]:
        loop = object()
        ITERATING[loop] = self
        idle_from_ms = self._clock()
        try:
            while not self._is_stopped:
                self._check_open()
                if (message := self._prefetch.take(self._clock())) is not None:
                    yield message
                    idle_from_ms = self._clock()
                    continue
                left_ms = None if idle_ms is None else idle_from_ms + idle_ms - self._clock()
                if not self._fill(left_ms) and idle_ms is not None and idle_from_ms + idle_ms <= self._clock():
                    return
        finally:
            # However it ends; one that is simply dropped is closed by Python.
            del ITERATING[loop]
            if not self._is_closed and os.getpid() == self._process:
                self._give_back(self._prefetch.clear())

    def _fill(self, left_ms: int | None) -> bool:
        """Receive ahead, and wait for it as long as the consumer does, at most *left_ms*: whether something came."""
        began_ms = self._clock()
        wait_ms = self._subscription.wait_ms if left_ms is None else min(max(left_ms, 0), WAIT_MAX_MS)
        messages = self.receive(self._prefetch.ask(began_ms), wait_ms)
        now_ms = self._clock()
        suspects = self._prefetch.add(messages, began_ms, now_ms, may_return=self._can_release)
        if not self._release_unseen(suspects):
            self._prefetch.keep(suspects, now_ms)
        pause_ms = EMPTY_PAUSE_MS if left_ms is None else min(left_ms, EMPTY_PAUSE_MS)
        if not messages and not self._is_stopped and now_ms - began_ms < pause_ms:
            time.sleep(pause_ms / 1000)
        return bool(messages)

    def receive(self, max_messages: int = 0, wait_ms: int | None = None, attempt_id: str = "") -> list[ReceivedMessage]:
        """One receive: up to *max_messages* (0: the consumer's), [] when the wait passed without any, or after `stop`. Confirmations go along.

        The same *attempt_id* (at most 64 characters) again gets the same messages, as long as their leases last.
        """
        self._check_open()
        if self._is_stopped:
            return []
        count = max_messages or self._subscription.max_messages
        steps = self._subscription.receive(self._course, count, wait_ms, now_ms(), attempt_id)
        try:
            messages = self._caller.drive(steps, is_over=lambda: self._is_stopped or self._is_closed)
        except CallAbandoned:
            messages = []
        if self._is_closed:
            # Meanwhile, by another thread, which could not know of these.
            try:
                self._settle_rest()
                self._give_back(messages)
            finally:
                self._check_open()
        return messages

    def confirm(self, *messages: ReceivedMessage) -> None:
        """These are done: they are acked with the next receive or at `close`."""
        self._check_open()
        self._subscription.pending.add(Settle(message.receipt_handle) for message in messages)

    def _finish(self) -> None:
        self._last_words.detach()
        if os.getpid() != self._process:
            return
        self._caller.abandon()  # another thread may be waiting
        self._settle_rest()
        self._give_back(self._prefetch.clear())

    def _settle_rest(self) -> None:
        _settle_pending(self._caller, self._subscription)

    def _give_back(self, unseen: list[ReceivedMessage]) -> None:
        """Nobody will see these here. Where that fails they come again when their leases end, and this attempt counts."""
        try:
            if not self._release_unseen(unseen):
                self._caller.drive(self._subscription.shorten(self._course, unseen, now_ms()))
        except TernError as error:
            logger.warning("%d messages that nobody has seen could not be given back: %s", len(unseen), error)

    def _release_unseen(self, unseen: list[ReceivedMessage]) -> bool:
        """Give them back uncounted; False when the proxy is of a release that cannot, and nothing has happened."""
        if unseen and self._can_release:
            self._can_release = self._caller.drive(self._subscription.release(self._course, unseen, now_ms()))
        return self._can_release or not unseen


def _settle_pending(caller: BlockingCaller, subscription: Subscription) -> None:
    # Past the check that the consumer is open: it closes only after this.
    while pending := subscription.pending.take():
        try:
            caller.drive(subscription.settle(caller.course, pending, now_ms()))
        except BaseException:
            subscription.pending.give_back(pending)
            raise


def _end_unclosed(process: int, caller: BlockingCaller, subscription: Subscription, prefetch: Prefetch) -> None:
    """What `close` would have done, in a short time: the program ends, perhaps because there is no proxy."""
    if os.getpid() != process:
        return
    course = replace(caller.course, policy=replace(caller.course.policy, deadline_ms=_LAST_WORDS_MS))
    unseen = prefetch.clear()
    try:
        while pending := subscription.pending.take():
            caller.drive(subscription.settle(course, pending, now_ms()))
        if unseen and not caller.drive(subscription.release(course, unseen, now_ms())):
            caller.drive(subscription.shorten(course, unseen, now_ms()))
    except TernError as error:
        logger.warning("%d messages that nobody has seen could not be given back: %s", len(unseen), error)
    finally:
        caller.close()
