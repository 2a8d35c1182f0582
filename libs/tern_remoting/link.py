"""One connection between two processes, multiplexed and symmetric after the handshake.

Owner of everything here: the loop's thread, the only one that may call. Frames written in one turn
of the loop leave together. Laws: a link that has received a bad byte is closed, never repaired; a
callback that raises ends its own link only; unsent data is bounded.
"""

import asyncio
import logging
import struct
from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias, cast

from tern_remoting.credit import BULK, CREDIT, UNSENT_SIZE_MAX_BYTES, Begin, GiveUp, Grants, Room, Window
from tern_remoting.errors import (
    FrameCorrupt,
    FrameTooLarge,
    HandshakeRefused,
    LinkBusy,
    LinkClosed,
    LinkError,
    LinkTimeout,
)
from tern_remoting.frames import ONE_WAY, RESPONSE, Buffer, Frame, FrameReader, encode_frame, frame_size
from tern_remoting.handshake import GREETING_SIZE_MAX_BYTES, HANDSHAKE_TIMEOUT_S, Handshake, PeerName, check_certificate
from tern_remoting.link_limits import BUFFERED_SIZE_MAX_BYTES, CLOSE_GRACE_S, IN_FLIGHT_MAX, READS_IN_FLIGHT_MAX
from tern_remoting.outbox import Outbox
from tern_remoting.refusals import Refusal, Refusals
from tern_remoting.sockets import SILENCE_MAX_S, address_of, scratch_of, tune
from tern_remoting.waiting import PendingReply, Waiting
from tern_security.peer_identity import PeerIdentity, peer_of

log = logging.getLogger(__name__)

OnFrame: TypeAlias = Callable[["Link", Frame], None]
OnReady: TypeAlias = Callable[["Link"], None]
OnLost: TypeAlias = Callable[["Link", Exception | None], None]


class Link(asyncio.BufferedProtocol):
    """One end of a link, made by `dial` and `LinkServer`, which pass its side of the handshake.
    Callbacks run in the loop's thread: *on_ready* after the handshake, *on_frame* for each request
    or one-way, *on_lost* once if it was ready, with its error, or None for an orderly end. `peer`
    is empty until ready.
    """

    def __init__(
        self,
        handshake: Handshake,
        *,
        on_frame: OnFrame,
        on_ready: OnReady,
        on_lost: OnLost,
        frame_size_max_bytes: int,
        handshake_timeout_s: float = HANDSHAKE_TIMEOUT_S,
        in_flight_max: int = IN_FLIGHT_MAX,
        buffered_size_max_bytes: int = BUFFERED_SIZE_MAX_BYTES,
        silence_max_s: int = SILENCE_MAX_S,
        refusals: Refusals | None = None,
        room: Callable[[], Room] | None = None,
    ) -> None:
        """*silence_max_s*: at least 3. *refusals*: counters of the errors that close the link.
        *room*: for large replies at this end; None grants no credit.
        """
        self.peer = PeerName("", "")
        # Identity in the peer's certificate; None without TLS.
        self.identity: PeerIdentity | None = None
        self.address = ""
        self.ready = False
        self._loop = asyncio.get_running_loop()
        self._handshake = handshake
        self._on_frame, self._on_ready, self._on_lost = on_frame, on_ready, on_lost
        self._reader = FrameReader(min(GREETING_SIZE_MAX_BYTES, frame_size_max_bytes), scratch_of(self._loop))
        self._frame_size_max_bytes = frame_size_max_bytes
        self._handshake_timeout_s = handshake_timeout_s
        self._in_flight_max = in_flight_max
        self._buffered_size_max_bytes = buffered_size_max_bytes
        self._silence_max_s = silence_max_s
        self._refusals = refusals or Refusals()
        self._transport: asyncio.Transport | None = None
        self._waiting = Waiting(self._loop)
        self._grants = None if room is None else Grants(room)
        self._window = Window(unsent=lambda: self._outbox.unsent_bytes, now=self._loop.time)
        self._opaque = 0
        self._outbox = Outbox(self._loop, self._go_on)
        # Sends what was written in this turn of the loop now, not at its end.
        self.flush = self._outbox.flush_early
        self._closed = False
        self._error: Exception | None = None
        # The handshake's deadline, later the closing grace.
        self._timer: asyncio.TimerHandle | None = None
        # Both end in a plain value: asyncio reports an exception that was never retrieved.
        self._greeted: asyncio.Future[LinkError | None] = self._loop.create_future()
        self._gone: asyncio.Future[None] = self._loop.create_future()

    # Calls of the owner ---------------------------------------------------------------------------
    @property
    def error(self) -> Exception | None:
        """The error for which this end closed the link, None if peer or network ended it."""
        return self._error

    @property
    def closed(self) -> bool:
        """True from the first sign of the end on; nothing is sent any more."""
        return self._closed

    @property
    def connected(self) -> bool:
        """Whether there ever was a connection; False until a TLS handshake is over."""
        return self._transport is not None

    @property
    def buffered_bytes(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return self._outbox.unsent_bytes

    @property
    def in_flight(self) -> int:
        """This end's requests without a reply yet."""
        return len(self._waiting)

    async def request(self, code: int, parts: Sequence[Buffer], *, timeout_s: float, is_read: bool = False) -> Frame:
        """Call `begin` and wait.
        LinkTimeout, LinkClosed: the outcome is unknown, unless closed before.
        """
        return await self.begin(code, parts, timeout_s=timeout_s, is_read=is_read).wait()

    def begin(self, code: int, parts: Sequence[Buffer], *, timeout_s: float, is_read: bool = False) -> PendingReply:
        """Send a request; the reply's code is 0 or an error number.
        *is_read*: a bulk request that may wait. *parts* must not change until they are sent.
        LinkBusy, FrameTooLarge, LinkClosed: nothing was sent.
        """
        if self._closed or not self.ready:
            raise self._closed_error()
        if len(self._waiting) >= (min(self._in_flight_max, READS_IN_FLIGHT_MAX) if is_read else self._in_flight_max):
            raise LinkBusy(f"{len(self._waiting)} requests wait for a reply")
        opaque = self._next_opaque()
        buffers = encode_frame(code, opaque, 0, parts)
        size = self._checked_size(buffers)
        if self.buffered_bytes + size > self._buffered_size_max_bytes:
            raise LinkBusy(f"{self.buffered_bytes} bytes wait to be sent")
        pending = PendingReply(self._waiting, opaque, timeout_s)
        self._outbox.write(buffers, size)
        return pending

    def post(self, code: int, parts: Sequence[Buffer]) -> bool:
        """Send a one-way. False if the link is closed or full; nothing is sent.
        Raises FrameTooLarge.
        """
        if self._closed or not self.ready:
            return False
        buffers = encode_frame(code, 0, ONE_WAY, parts)
        size = self._checked_size(buffers)
        if self.buffered_bytes + size > self._buffered_size_max_bytes:
            return False
        self._outbox.write(buffers, size)
        return True

    def reply(self, opaque: int, code: int, parts: Sequence[Buffer]) -> bool:
        """Reply to the request *opaque*. False if the link is closed. Raises FrameTooLarge."""
        if self._closed:
            return False
        buffers = encode_frame(code, opaque, RESPONSE, parts)
        size = self._checked_size(buffers)
        if self._window.replied(opaque, size - len(buffers[0])):
            buffers = encode_frame(code, opaque, RESPONSE | BULK, parts)
        self._outbox.write(buffers, size)
        return True

    def when_room(self, opaque: int, flow: Hashable, size_bytes: int, begin: Begin, give_up: GiveUp) -> bool:
        """Forward to Window.ask: *begin* reads and answers the peer's request *opaque*."""
        if self._closed:
            give_up()
            return False
        return self._window.ask(opaque, flow, size_bytes, begin, give_up)

    def leave_room(self, opaque: int) -> None:
        """Forward to Window.leave; begin reads that now have room."""
        self._window.leave(opaque)
        if self._window.waiting:
            self._loop.call_soon(self._go_on)

    @property
    def window(self) -> Window:
        """The peer's reads under way at this end, and those that wait for room."""
        return self._window

    def grant(self, room: Room | None = None) -> None:
        """Send this end's *room* (None: as of now), if worth a frame; large replies trigger it
        anyway.
        """
        body = None if self._grants is None or not self.ready or self._closed else self._grants.due(room)
        if body is not None:
            buffers = encode_frame(CREDIT, 0, ONE_WAY, [body])
            self._outbox.write(buffers, frame_size(buffers))

    def close(self, reason: str) -> None:
        """Flush, then close. Requests in flight end in LinkClosed at once. Safe to repeat."""
        if self._closed:
            return
        self._outbox.flush()
        self._end(LinkClosed(reason))
        if self._transport is not None:
            self._transport.close()
            self._timer = self._loop.call_later(CLOSE_GRACE_S, self._transport.abort)

    def abort(self, reason: str) -> None:
        """Close without sending unsent data."""
        self._end(LinkClosed(reason))
        if self._transport is not None:
            self._transport.abort()

    def refuse(self, refusal: Refusal, reason: str) -> None:
        """Close because of the peer's behaviour: counted and logged, nothing sent.
        Safe to repeat.
        """
        if self._closed:
            return
        self._note(refusal, reason)
        self._stop(LinkClosed(reason))

    async def greeted(self) -> None:
        """Wait for the end of the handshake; raise its error."""
        error = await asyncio.shield(self._greeted)
        if error is not None:
            raise error

    async def gone(self) -> None:
        """Wait until the connection is closed and *on_lost* has been called."""
        await asyncio.shield(self._gone)

    # Calls of the transport -----------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first frame, if any, and start the handshake's clock."""
        # uvloop's transports only look like asyncio's, so an isinstance check would be wrong.
        self._transport = cast(asyncio.Transport, transport)
        self.address = address_of(transport.get_extra_info("peername"))
        tune(transport.get_extra_info("socket"), self._silence_max_s)
        self._transport.set_write_buffer_limits(high=UNSENT_SIZE_MAX_BYTES)
        if self._closed:
            self._transport.abort()
            return
        self.identity = peer_of(transport)
        self._outbox.open(self._transport, is_tls=self.identity is not None)
        self._timer = self._loop.call_later(self._handshake_timeout_s, self._greeting_late)
        opening = self._handshake.opening()
        if opening is not None:
            self._answer(opening.code, opening.body)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the transport reads the next bytes."""
        return self._reader.space()

    def buffer_updated(self, nbytes: int) -> None:
        """Cut frames from the bytes read, and dispatch them."""
        if self._closed:
            return
        try:
            frames = self._reader.filled(nbytes)
        except LinkError as error:
            self._break(error)
            return
        for frame in frames:
            if self._closed:
                return
            if frame.flags & RESPONSE and self.ready:
                if frame.flags & BULK and self._grants is not None:
                    # Also for a reply whose request is no longer waiting.
                    self._grants.took(len(frame.body))
                    self.grant()
                self._waiting.resolve(frame)
            elif frame.code == CREDIT and self.ready:
                self._credited(frame)
            elif self.ready:
                try:
                    self._on_frame(self, frame)
                except Exception as error:
                    self._callback_failed(error)
            else:
                self._greet(frame)

    def resume_writing(self) -> None:
        """Begin waiting reads: the kernel has taken most of the unsent data."""
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """Finish the link, whichever side ended it."""
        self._end(LinkClosed("the connection was lost"))
        if self._timer is not None:
            self._timer.cancel()
        error = self._error or exc
        if not self._greeted.done():
            refused = error if isinstance(error, LinkError) else HandshakeRefused(_CLOSED_EARLY)
            self._greeted.set_result(refused)
        if self.ready:
            try:
                self._on_lost(self, error)
            except Exception:
                # There is no link left to close; other links must not be affected.
                log.exception("a link's on_lost failed", extra={"peer": self.peer.name})
        self._gone.set_result(None)

    # Inside ---------------------------------------------------------------------------------------
    def _greet(self, frame: Frame) -> None:
        try:
            answer = self._handshake.receive(frame)
            check_certificate(self.identity, self._handshake.peer)
        except HandshakeRefused as error:
            self._break(error)
            return
        if answer is not None:
            self._answer(answer.code, answer.body)
        if self._handshake.trusted:
            # Frames of the peer may follow its last greeting in the same chunk.
            self._reader.frame_size_max_bytes = self._frame_size_max_bytes
        if self._handshake.peer is not None:
            self.peer = self._handshake.peer
            self.ready = True
            if self._timer is not None:
                self._timer.cancel()
            self._greeted.set_result(None)
            self.grant()
            try:
                self._on_ready(self)
            except Exception as error:
                self._callback_failed(error)

    def _credited(self, frame: Frame) -> None:
        try:
            self._window.granted(frame.body)
        except struct.error:
            self._break(FrameCorrupt(f"a grant of {len(frame.body)} bytes"))
        else:
            self._go_on()

    def _go_on(self) -> None:
        try:
            self._window.go_on()
        except Exception as error:
            self._callback_failed(error)

    def _greeting_late(self) -> None:
        self._break(LinkTimeout("the handshake took too long"))

    def _callback_failed(self, error: Exception) -> None:
        """Close this link after an error of a callback, so that loop and server are not
        affected.
        """
        log.error("a link's callback failed, so it was closed", extra={"peer": self.peer.name}, exc_info=error)
        self._stop(error)

    def _break(self, error: LinkError) -> None:
        """Close because the peer broke the rules of the link itself."""
        self._note(error.refusal, str(error))
        self._stop(error)

    def _note(self, refusal: Refusal, reason: str) -> None:
        if self._refusals.add(refusal):
            event = "closed a link" if self.ready else "refused a link"
            so_far = {"refusal": refusal, "so_far": self._refusals.count(refusal)}
            log.warning(event, extra={"address": self.address, "peer": self.peer.name, "reason": reason, **so_far})

    def _stop(self, error: Exception) -> None:
        self._error = self._error or error
        self._end(LinkClosed(str(error)))
        if self._transport is not None:
            self._transport.abort()

    def _end(self, error: LinkClosed) -> None:
        if self._closed:
            return
        self._closed = True
        self._window.close()
        self._outbox.clear()
        if self._timer is not None:
            self._timer.cancel()
        reason = str(error)
        self._waiting.fail(lambda: LinkClosed(reason))

    def _closed_error(self) -> LinkClosed:
        return LinkClosed("the link is closed" if self._closed else "the link is not ready")

    def _next_opaque(self) -> int:
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        while self._opaque in self._waiting:
            self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        return self._opaque

    def _checked_size(self, buffers: list[Buffer]) -> int:
        size = frame_size(buffers)
        if size - 4 > self._frame_size_max_bytes:
            raise FrameTooLarge(size - 4, self._frame_size_max_bytes)
        return size

    def _answer(self, code: int, body: bytes) -> None:
        buffers = encode_frame(code, 0, 0, [body])
        self._outbox.write(buffers, frame_size(buffers))


_CLOSED_EARLY = "the server closed the connection: another cluster key or group id, a certificate that it does not take, or no TernMQ"
