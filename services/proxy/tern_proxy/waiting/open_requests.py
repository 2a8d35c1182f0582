"""Admitted requests in progress: they lose their rights at the moment at which the proxy learns of
a change.

    new table of principals, or the end of a key's lifetime
      -> every open request: are its credentials still valid, and all of its permissions?
      -> if not: its wait ends (interrupts.py), its body is read no further, no data is sent

A wait, a slow body and an answer pass through here on every route, so that no route can omit the
check. The permissions of a request are those of its rule, and those that its handler has required
since. The answer is 401 or 403; it never hides the object, whose existence the client has seen
before.

Law: once a table without a principal's key or right is in force, no body of that principal is
completed, and no message, reply, check or document is handed to it. Earlier effects stay, and are
answered as such. Owner: the event loop.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from starlette.types import Message, Receive, Scope, Send

from tern_proxy.access.authentication import Authenticator, Principals, Session, address_of
from tern_proxy.access.authorization import Admission
from tern_service.clock import Clock
from tern_service.connections.table import AT_A_TIME
from tern_wire.errors import ShareExceeded, TernError, Unauthenticated
from tern_wire.limits import BODY_DEADLINE_MS, REQUESTS_MAX, WAIT_MAX_MS, WHOLE_REQUESTS_MAX
from tern_wire.limits_requests import CALM_SHARE, SHARE_OF_FREE
from tern_wire.principals.principals import CLUSTER

# Longest life of a request that is no stream: body, wait, and a minute for the rest.
OPEN_MAX_MS = BODY_DEADLINE_MS + WAIT_MAX_MS + 60_000
# Sends a request's refusal. The flag: the body was read to its end, so the connection can continue.
Refuse = Callable[[Scope, Send, TernError, bool], Awaitable[None]]


class OpenRequest:
    """One request in the application, which gets `receive` and `send` of this object."""

    __slots__ = (
        *("_is_breaking_off", "_is_broken_off", "_is_refused", "_is_whole", "_reading", "_receive", "_refuse", "_send"),
        *("admission", "is_whole", "lost", "scope", "session", "timer"),
    )

    def __init__(
        self,
        session: Session,
        admission: Admission,
        scope: Scope,
        receive: Receive,
        send: Send,
        refuse: Refuse,
        *,
        is_whole: bool = False,
    ) -> None:
        """*is_whole*: it came whole, and has a place among those."""
        self.session, self.admission, self.scope = session, admission, scope
        self.is_whole = is_whole
        self.timer: asyncio.TimerHandle | None = None
        # Lost permission, if that was the cause: action, kind, name.
        self.lost: tuple[str, str, str] | None = None
        self._receive, self._send, self._refuse = receive, send, refuse
        # The task that waits for more of the body, or for the client to disconnect.
        self._reading: asyncio.Task[object] | None = None
        self._is_breaking_off = self._is_broken_off = self._is_whole = self._is_refused = False

    async def receive(self) -> Message:
        """Receive an ASGI message; raise the refusal once the request has lost its rights."""
        self._reading = asyncio.current_task()
        try:
            message = await self._receive()
        except asyncio.CancelledError:
            # As asyncio.timeout does: the cancellation was ours, unless another one came with it.
            if self._is_breaking_off and self._reading is not None and self._reading.uncancel() == 0:
                raise self._broken_off() from None
            raise
        finally:
            self._reading, self._is_breaking_off = None, False
        if self.admission.ended is not None:
            raise self._broken_off()
        if not message.get("more_body", False):
            self._is_whole = True
        return message

    async def send(self, message: Message) -> None:
        """Send an ASGI message; the answer becomes the refusal if it would hand data over without
        rights.
        """
        if self._is_refused:
            return
        error = self.admission.ended
        if error is not None and message["type"] == "http.response.start" and self._hands_over():
            self._is_refused = self.admission.is_cut = True
            self.admission.refused = self.lost
            await self._refuse(self.scope, self._send, error, self._is_whole)
            return
        if error is not None and self.admission.rule.is_stream:
            # What a stream still sends is why it ends.
            self.admission.is_cut, self.admission.refused = True, self.lost
        await self._send(message)

    def end(self, error: TernError) -> None:
        """End the request with *error*, because it has lost its rights."""
        if self._reading is not None and not self._is_whole:
            self._is_breaking_off = True
            self._reading.cancel()
        self.admission.end(error)

    def _broken_off(self) -> TernError:
        self._is_broken_off = True
        assert self.admission.ended is not None
        return self.admission.ended

    def _hands_over(self) -> bool:
        return self._is_broken_off or self.admission.hands_over or self.scope["method"] in {"GET", "HEAD"}


class OpenRequests:
    """Open requests of one proxy."""

    def __init__(
        self,
        principals: Principals,
        authenticator: Authenticator,
        clock: Clock,
        *,
        waiting: Callable[[], int],
        claimed: Callable[[str], int],
        places: int = REQUESTS_MAX,
    ) -> None:
        """*places* bounds the requests in progress at a time.

        Waiting and incomplete requests do not count. *waiting*: their number. *claimed*: the number
        of a principal's requests that wait or may wait.
        """
        self._authenticator, self._clock, self._places = authenticator, clock, places
        self._waiting, self._claimed = waiting, claimed
        self._open: set[OpenRequest] = set()
        # Requests of each principal, by whether they came whole; bounded by the number of requests.
        self._by_principal: Counter[tuple[str, bool]] = Counter()
        self._whole_places, self._whole = WHOLE_REQUESTS_MAX, 0
        principals.follow(self._renew)

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, request: OpenRequest) -> None:
        """Register *request* as open, until `leave`."""
        self._open.add(request)
        self._by_principal[request.session.access.principal.name, request.is_whole] += 1
        self._whole += request.is_whole
        if request.admission.rule.is_stream or request.session.until_ms - self._clock.now_ms() < OPEN_MAX_MS:
            self._watch_time(request)

    def leave(self, request: OpenRequest) -> None:
        """Remove *request*."""
        self._open.discard(request)
        mine = request.session.access.principal.name, request.is_whole
        self._whole -= request.is_whole
        self._by_principal[mine] -= 1
        if not self._by_principal[mine]:
            del self._by_principal[mine]
        if request.timer is not None:
            request.timer.cancel()
            request.timer = None

    def require_place(self, principal: str, *, is_whole: bool = False) -> None:
        """Raise ShareExceeded when *principal* uses its share of the places (as in
        tern_service/request_memory.py); requests that came whole have places of their own.

        A request that may wait for messages counts as waiting; ParkedPolls bounds those of one
        principal.
        """
        if is_whole:
            if self._whole >= self._whole_places // CALM_SHARE:
                _require_share(self._by_principal[principal, True], self._whole, self._whole_places)
            return
        if len(self._open) - self._whole < self._places // CALM_SHARE:
            return
        working = len(self._open) - self._whole - self._waiting()
        if working >= self._places // CALM_SHARE:
            mine = self._by_principal[principal, False] - self._claimed(principal)
            _require_share(mine, working, self._places)

    def _renew(self) -> None:
        for request in list(self._open):
            self._look(request)

    def _watch_time(self, request: OpenRequest) -> None:
        left_ms = request.session.until_ms - self._clock.now_ms()
        # Not before its millisecond is over, and not in a loop if the clock was set back.
        # A stream whose key has years left looks again meanwhile.
        delay_s = min(max(1, left_ms), OPEN_MAX_MS) / 1_000
        request.timer = asyncio.get_running_loop().call_later(delay_s, self._on_time, request)

    def _on_time(self, request: OpenRequest) -> None:
        request.timer = None
        self._look(request)
        if request.admission.ended is None:
            self._watch_time(request)

    def _look(self, request: OpenRequest) -> None:
        """Repeat the checks of *request* with the current table."""
        admission = request.admission
        if admission.ended is not None:
            return
        session = self._authenticator.again(request.session, address_of(request.scope))
        if session is None:
            request.end(Unauthenticated())
            return
        request.session = session
        access, admission.access = admission.access, session.access
        if access is session.access:
            return
        segments = request.scope["path"].split("/")
        in_front = [
            (each.action, each.kind, segments[place] if each.kind != CLUSTER else "")
            for each, place in admission.rule.in_front
        ]
        for action, kind, name in [*in_front, *admission.asked]:
            if not session.access.may(action, kind, name):
                request.lost = (action, kind, name)
                request.end(session.access.forbidden(action, kind, name))
                return


def _require_share(mine: int, working: int, places: int) -> None:
    if mine >= SHARE_OF_FREE * max(0, places - working):
        raise ShareExceeded(what=AT_A_TIME)
