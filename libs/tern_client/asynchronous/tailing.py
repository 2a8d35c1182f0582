"""Tail: the messages of a topic as they come, over a stream that outlives proxies."""

from collections.abc import AsyncIterator, Generator, Sequence
from dataclasses import replace

from tern_client.asynchronous.client import AsyncClient
from tern_client.calls.pulling import PulledMessage
from tern_client.calls.tailing import SILENCE_MAX_MS, TailSettings, TailState
from tern_client.transport.calling import Outcome, Pause, Step
from tern_client.transport.clock import now_ms
from tern_client.transport.credentials import FileName
from tern_client.transport.exchange import lost_connection
from tern_client.transport.line_streams import LineStream
from tern_client.transport.retrying import RetryPolicy, decide
from tern_wire.errors import TernError


class Tail(AsyncClient):
    """Follows a topic live, without a consumer group: `async for message in tail`. It changes
    nothing, and every tail gets all messages.

    - *start*: `latest` (default), `earliest` or `@time`. *since*: instead, a time, or how long ago
      (`"10m"`). *after*: instead, the `last_id` of an earlier tail.
    - *tags* (`A || B`) or *sql* filters messages.
    - *max_messages*: the loop ends after so many; 0 for never. *idle*: it ends when no message has
      come for so long (`"2s"`, or milliseconds); None for never.
    - *endpoints*, *namespace*, *policy*, *key_file*, *ca_file*: as for the Producer.
      A forward proxy of the environment is not used.

    A lost proxy is no event: the loop continues at the next one behind its last message. It raises
    the last error when no proxy has answered until the policy's deadline, or an error that a repeat
    cannot mend, such as Unauthenticated after the key was revoked.

    Example:

        import asyncio

        from tern_client import Producer, Tail


        async def main() -> None:
            async with Producer("http://127.0.0.1:8080") as producer:
                await producer.send("orders", b"order 1")
            endpoint = "http://127.0.0.1:8080"
            async with Tail(endpoint, "orders", start="earliest", max_messages=1) as tail:
                async for message in tail:
                    print(message.queue, message.offset, message.body)  # -> broker-a:0 0 b'order 1'


        asyncio.run(main())
    """

    __slots__ = ("_state", "_stream")

    def __init__(
        self,
        endpoints: str | Sequence[str],
        topic: str,
        *,
        start: str = "latest",
        since: str | int = "",
        after: str = "",
        tags: str = "",
        sql: str = "",
        max_messages: int = 0,
        idle: str | int | None = None,
        namespace: str = "",
        policy: RetryPolicy | None = None,
        key_file: FileName | None = None,
        ca_file: FileName | None = None,
    ) -> None:
        super().__init__(endpoints, namespace=namespace, policy=policy, key_file=key_file, ca_file=ca_file)
        settings = TailSettings(
            topic=topic, start=start, since=since, tags=tags, sql=sql, max_messages=max_messages, idle=idle
        )
        self._state = TailState(settings, after)
        self._stream: LineStream | None = None

    @property
    def last_id(self) -> str:
        """The place behind the last message that was handed out; `after` of a later tail."""
        return self._state.last_id

    @property
    def skipped(self) -> int:
        """The number of messages that retention dropped before this tail read them."""
        return self._state.skipped

    async def __aiter__(self) -> AsyncIterator[PulledMessage]:
        """Yield messages as they come. Raise ClientClosed after `close`."""
        state, attempt, lost_ms = self._state, 0, now_ms()
        while not state.is_over:
            endpoint = self._course.endpoints.current
            try:
                stream = await self._open(endpoint)
                try:
                    while line := await stream.line():
                        message, attempt = state.take(line), 0
                        if message is not None:
                            yield message
                        if state.is_over:
                            return
                finally:
                    self._stream = None
                    await stream.close()
                raise lost_connection(endpoint, "the stream was cut off")
            except TernError as error:
                self._check_open()
                lost_ms = lost_ms if attempt else now_ms()
                await self._rest(error, endpoint, attempt, now_ms() - lost_ms)
                attempt += 1

    async def _open(self, endpoint: str) -> LineStream:
        self._check_open()
        request = self._state.request()
        request = replace(request, headers=(*request.headers, *self._course.headers))
        stream = await self._caller.stream(endpoint, request, SILENCE_MAX_MS)
        self._stream = stream
        return stream

    async def _rest(self, error: TernError, endpoint: str, attempt: int, elapsed_ms: float) -> None:
        """Wait before the next attempt, and choose its proxy. Raise *error* when there is none."""
        course = self._course
        verdict = decide(
            error,
            attempt=attempt,
            endpoints=len(course.endpoints.urls),
            elapsed_ms=elapsed_ms,
            repeatable=True,
            chance=course.chance(),
            policy=course.policy,
        )
        if not verdict.repeat:
            raise error
        if verdict.next_endpoint:
            course.endpoints.leave(endpoint)
        await self._drive(_pause(verdict.delay_ms))

    async def _finish(self) -> None:
        if self._stream is not None:
            await self._stream.close()


def _pause(delay_ms: int) -> Generator[Step, Outcome, None]:
    yield Pause(delay_ms)
