"""Sends that wait for their turn: the async shell and the blocking one over `turns`.

A send without a message group takes no turn. A send with message groups begins when all earlier
sends to them by the same client are settled. An async send that has begun continues when its caller
is cancelled, since it may be stored; later sends still wait for its end.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tern_client.asynchronous.client import AsyncClient
from tern_client.blocking.client import BlockingClient
from tern_client.calls.models import BatchOutcome, OutgoingMessage
from tern_client.calls.turns import Key, Turn, TurnNotReached, Turns, is_given_up, keys_of
from tern_client.transport.calling import Outcome, Step
from tern_client.transport.clock import now_ms
from tern_wire.errors import TernError

T = TypeVar("T")
# Makes the steps of a send when its turn comes.
MakeSteps = Callable[[], Generator[Step, Outcome, T]]


class _CallTurn(Turn):
    """The turn of one call. Owner: its event loop."""

    __slots__ = ("entered_ms", "has_begun", "may_begin")

    def __init__(self, keys: tuple[Key, ...]) -> None:
        super().__init__(keys)
        self.entered_ms = now_ms()
        self.may_begin: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.has_begun = False


class OrderedCalls(AsyncClient):
    """The turns of an async Producer, and the tasks of its sends in flight. Owner of both."""

    __slots__ = ("_sending", "_turns")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._turns = Turns()
        self._sending: set[asyncio.Task[Any]] = set()

    async def _drive_in_turn(self, topic: str, messages: Iterable[OutgoingMessage], steps: MakeSteps[T]) -> T:
        """Drive the steps that *steps* makes once every earlier send to the message groups of
        *messages* is settled; TurnNotReached.
        """
        self._check_open()
        keys = keys_of(topic, messages)
        if not keys:
            return await self._caller.drive(steps())
        turn = _CallTurn(keys)
        self._hurry(keys)
        if self._turns.enter(turn):
            turn.may_begin.set_result(None)
        task = self._keep(self._take_turn(turn, steps))
        # A callback, not the end of the task: a task that is cancelled before its first step has no
        # end.
        task.add_done_callback(lambda _: self._leave(turn))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not turn.has_begun:
                task.cancel()
            # Retrieve the error of a task without a caller, so that asyncio does not report it.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise

    async def _take_turn(self, turn: _CallTurn, steps: MakeSteps[T]) -> T:
        await turn.may_begin
        with _outcome_of(turn, turn.entered_ms, self._course.policy.deadline_ms) as told:
            turn.has_begun = True
            return told(await self._caller.drive(steps()))

    def _keep(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start *work* as a task that `flush` and `close` wait for."""
        task = asyncio.get_running_loop().create_task(work)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)
        return task

    def _leave(self, turn: Turn) -> None:
        for first in self._turns.leave(turn):
            if not isinstance(first, _CallTurn):
                self._begin_run(first)
            elif not first.may_begin.done():
                first.may_begin.set_result(None)

    def _begin_run(self, turn: Turn) -> None:
        """Begin *turn*, a run of `send_soon`."""
        raise NotImplementedError

    def _hurry(self, keys: Iterable[Key]) -> None:
        """Send what is before a call in the queues of *keys*, since the call waits for it."""


class BlockingOrderedCalls(BlockingClient):
    """The turns of a blocking Producer, for all threads that share it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._turns = Turns()
        self._turns_lock = threading.Lock()

    def _drive_in_turn(self, topic: str, messages: Iterable[OutgoingMessage], steps: MakeSteps[T]) -> T:
        """Drive the steps that *steps* makes in turn. The order of threads is the order of their
        calls; TurnNotReached.
        """
        keys = keys_of(topic, messages)
        if not keys:
            return self._drive(steps())
        self._check_open()
        turn = _ThreadTurn(keys)
        with self._turns_lock:
            if self._turns.enter(turn):
                turn.may_begin.set()
        entered_ms = now_ms()
        try:
            turn.may_begin.wait()
            with _outcome_of(turn, entered_ms, self._course.policy.deadline_ms) as told:
                return told(self._drive(steps()))
        finally:
            with self._turns_lock:
                first = self._turns.leave(turn)
            for each in first:
                assert isinstance(each, _ThreadTurn)
                each.may_begin.set()


@contextmanager
def _outcome_of(turn: Turn, entered_ms: float, deadline_ms: float) -> Iterator[Callable[[T], T]]:
    """Run the block in *turn*, which has waited since *entered_ms*; keep whether its send was given
    up, for the turns behind it. TurnNotReached.
    """

    def told(result: T) -> T:
        turn.has_failed = isinstance(result, BatchOutcome) and any(map(is_given_up, result.errors.values()))
        return result

    try:
        waited_ms = now_ms() - entered_ms
        if turn.is_overdue(waited_ms, deadline_ms):
            raise TurnNotReached(waited_ms=round(waited_ms))
        yield told
    except TernError as error:
        turn.has_failed = is_given_up(error)
        raise


class _ThreadTurn(Turn):
    """The turn of one call of a thread."""

    __slots__ = ("may_begin",)

    def __init__(self, keys: tuple[Key, ...]) -> None:
        super().__init__(keys)
        self.may_begin = threading.Event()
