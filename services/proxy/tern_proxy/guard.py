"""Guard in front of every route: authentication, the permissions of the route's row, quotas, and
the audit.

    credentials -> session -> quota -> rule of the path -> permissions on path names -> handler
        401          429       429        404, 405         403, or 404 of what is hidden

The handler checks permissions on other names. When rights change while the request is open, all
checks are repeated: 401 or 403 (open_requests.py).

The guard wraps the application once. Only GET /healthz is answered without valid credentials, and a
path outside the table never reaches the application. A successful check is cached by method and
path with the principal's rights, so the usual request costs a few dictionary look-ups.

Law: rights are checked on the full names that brokers use. The names in paths are full names here,
because the namespace adapter comes first. Owner: the event loop.
"""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from tern_proxy.access.authentication import DIGESTS, Authenticator, Refused, Session, address_of
from tern_proxy.access.authorization import ADMISSION, CALLER, Admission
from tern_proxy.access.signed_requests import receive_checked
from tern_proxy.audit import ALLOWED, DENIED, AuditTrail
from tern_proxy.core.access.quotas import Bucket
from tern_proxy.core.access.requirements import Rule
from tern_proxy.core.access.rights import Access
from tern_proxy.exchange import Reply
from tern_proxy.hot import Application, count_answer, receive_nothing
from tern_proxy.proxy import Proxy
from tern_proxy.routes.table import RouteTable
from tern_proxy.waiting.open_requests import OpenRequest, OpenRequests
from tern_service.problems import problem_reply, refuse, request_id_of
from tern_tasks import keep_running
from tern_wire.errors import QuotaExceeded, TernError
from tern_wire.principals.principals import CLUSTER

PRINCIPAL = "ternmq.principal"
_CHALLENGE = (b"www-authenticate", b'Bearer realm="ternmq"')
NEWS_INTERVAL_MS = 500
_ALIVE = b'{"status":"alive"}'
_ALIVE_HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(_ALIVE))]


class Guard:
    """Application with a guard in front."""

    def __init__(self, app: Application, proxy: Proxy, table: RouteTable) -> None:
        self._app, self._proxy, self._table = app, proxy, table
        self._authenticator = Authenticator(
            proxy.principals, cluster_key=proxy.cluster_key, clock=proxy.clock, kept=proxy.kept
        )
        self.open = OpenRequests(
            proxy.principals,
            self._authenticator,
            proxy.clock,
            waiting=lambda: proxy.waiting + proxy.arriving(),
            claimed=lambda owner: proxy.parking.claimed(owner) + proxy.tails.claimed(owner),
        )
        self.audit = AuditTrail(proxy, proxy.kept.audit)
        # Refresh of the principals because of an unknown key, and its start (monotonic).
        self._news: asyncio.Future[None] | None = None
        self._asked_ms = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._live(scope, receive, send)
            return
        if scope["path"] == "/healthz" and scope["method"] == "GET":
            await send({"type": "http.response.start", "status": 200, "headers": _ALIVE_HEADERS})
            await send({"type": "http.response.body", "body": _ALIVE})
            return
        try:
            try:
                session, admission = self.admit(scope)
            except Refused as refused:
                if not await self._has_news(refused):
                    raise
                session, admission = self.admit(scope)
        except Refused as refused:
            self._tell(DENIED, scope, None, refused.error.status, kid=refused.kid, reason=refused.reason)
            await self._refuse(scope, send, refused.error, False)
            return
        except TernError as error:
            await self._refuse(scope, send, error, False)
            return
        if admission.rule.is_admin or (session.bucket is not None and session.bucket.counts_bytes):
            await self._pass_watched(session, admission, scope, receive, send)
        else:
            await self._pass(session, admission, scope, receive, send)
        if admission.refused is not None:
            self._tell_refused(scope, admission)
        elif admission.is_cut:
            self._tell(DENIED, scope, session, 401, kid=session.kid, reason="a key that was good at the beginning only")

    async def _pass(self, session: Session, admission: Admission, scope: Scope, receive: Receive, send: Send) -> None:
        request = OpenRequest(session, admission, scope, receive, send, self._refuse)
        self.open.enter(request)
        try:
            checked = receive_checked(request.receive, scope[DIGESTS]) if DIGESTS in scope else request.receive
            await self._app(scope, checked, request.send)
        finally:
            self.open.leave(request)

    def take(self, scope: Scope, body: bytes) -> Coroutine[Any, Any, Reply] | None:
        """Take a request whole whose key and path are known to be good, and whose bytes do not
        count.
        """
        session = self._authenticator.known(scope)
        if session is None or (scope["method"], scope["path"]) not in session.access.passed:
            return None
        if session.bucket is not None and session.bucket.counts_bytes:
            return None
        answering = self._app.take(scope, body)
        return None if answering is None else self._answer(session, scope, answering)

    async def _answer(self, session: Session, scope: Scope, answering: Coroutine[Any, Any, Reply]) -> Reply:
        try:
            admission = self._admit(session, scope, is_whole=True)
        except TernError as error:
            answering.close()
            count_answer(self._proxy.counters, "refused", error.status)
            return problem_reply(error, instance=scope["path"], request_id=request_id_of(scope))
        request = OpenRequest(session, admission, scope, receive_nothing, _send_nothing, self._refuse, is_whole=True)
        self.open.enter(request)
        try:
            reply = await answering
        finally:
            self.open.leave(request)
        if admission.refused is not None:
            self._tell_refused(scope, admission)
        return reply

    def admit(self, scope: Scope) -> tuple[Session, Admission]:
        """Admit a request to its handler. Raise Refused, or the error of the answer."""
        session = self._authenticator.find(scope)
        return session, self._admit(session, scope)

    def _admit(self, session: Session, scope: Scope, *, is_whole: bool = False) -> Admission:
        access = session.access
        scope[PRINCIPAL] = access.principal
        if session.bucket is not None:
            self._charge(session.bucket, scope, session)
        self.open.require_place(access.principal.name, is_whole=is_whole)
        method, path = scope["method"], scope["path"]
        rule = access.passed.get((method, path))
        if rule is None:
            rule = self._look(scope, session, access, method, path)
        admission = scope[ADMISSION] = Admission(access, rule, session.kid)
        return admission

    async def _has_news(self, refused: Refused) -> bool:
        """Return whether the principals have changed since a key was refused.

        The key may have been created at another proxy a moment ago, so the brokers are asked, at
        most every NEWS_INTERVAL_MS to bound the cost of guesses. Concurrent requests wait for the
        same answer.
        """
        if refused.error.status != 401 or not refused.kid:
            return False
        now_ms = self._proxy.clock.mono_ms()
        if self._news is None or (self._news.done() and now_ms - self._asked_ms >= NEWS_INTERVAL_MS):
            self._asked_ms = now_ms
            self._news = asyncio.ensure_future(self._proxy.principals.refresh())
        elif self._news.done():
            return False
        before = self._proxy.principals.table
        await asyncio.wait({self._news})
        return self._news.exception() is None and self._proxy.principals.table is not before

    def _charge(self, bucket: Bucket, scope: Scope, session: Session) -> None:
        try:
            held_bytes = self._proxy.budget.bytes.held(session.access.principal.name) if bucket.counts_bytes else 0
            bucket.take(self._proxy.clock.mono_ms(), held_bytes)
        except QuotaExceeded as error:
            self._tell(DENIED, scope, session, error.status, kid=session.kid, reason=str(error.fields["unit"]))
            raise

    def _look(self, scope: Scope, session: Session, access: Access, method: str, path: str) -> Rule:
        found = self._table.find(method, path)
        if found is None:
            raise self._table.refusal(method, path)
        rule = found[0].rule
        segments = path.split("/")
        for requirement, place in rule.in_front:
            name = segments[place] if requirement.kind != CLUSTER else ""
            refusal = access.refusal(requirement.action, requirement.kind, name)
            if refusal is not None:
                admission = Admission(access, rule, session.kid)
                admission.refused = (requirement.action, requirement.kind, name)
                self._tell_refused(scope, admission)
                raise refusal
        if rule.is_cacheable:
            access.pass_path(method, path, rule)
        return rule

    async def _pass_watched(
        self, session: Session, admission: Admission, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Pass on a request that is audited or whose bytes count."""
        status, bucket = 500, session.bucket
        counts = bucket is not None and bucket.counts_bytes

        async def receive_counted() -> Message:
            message = await receive()
            if bucket is not None:
                bucket.charge(len(message.get("body", b"")))
            return message

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif bucket is not None:
                bucket.charge(len(message.get("body", b"")))
            await send(message)

        taken = receive_counted if counts else receive
        token = CALLER.set(admission.principal if admission.rule.is_admin else "")
        try:
            await self._pass(session, admission, scope, taken, send_counted)
        finally:
            CALLER.reset(token)
            if admission.rule.is_admin and admission.refused is None and not admission.is_cut:
                self._tell(ALLOWED, scope, session, status, kid=session.kid, **_route(admission.rule, scope))

    async def _refuse(self, scope: Scope, send: Send, error: TernError, is_read: bool) -> None:
        challenge = (_CHALLENGE,) if error.status == 401 else ()
        status = await refuse(error, scope, send, *challenge, is_read=is_read)
        count_answer(self._proxy.counters, "refused", status)

    # Audit ----------------------------------------------------------------------------------------
    def _tell_refused(self, scope: Scope, admission: Admission) -> None:
        assert admission.refused is not None
        action, kind, name = admission.refused
        self.audit.tell(
            DENIED,
            principal=admission.principal,
            kid=admission.kid,
            action=action,
            kind=kind,
            object=name,
            route=f"{admission.rule.method} {admission.rule.path}",
            address=address_of(scope),
            request_id=request_id_of(scope),
        )

    def _tell(self, decision: str, scope: Scope, session: Session | None, status: int, **fields: str) -> None:
        principal = session.access.principal.name if session is not None else ""
        at = {"address": address_of(scope), "request_id": request_id_of(scope)}
        self.audit.tell(decision, principal=principal, status=status, **fields, **at)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application's lifespan with the audit beside it."""
        writing = keep_running("audit", self.audit.run)
        try:
            await self._app(scope, receive, send)
        finally:
            writing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await writing


def _route(rule: Rule, scope: Scope) -> dict[str, str]:
    """Return the audit fields of an admin request: its route, and the required permissions with
    their objects.
    """
    segments = scope["path"].split("/")
    asked = [
        " ".join(part for part in (each.action, each.kind, segments[place] if place > 0 else "") if part)
        for each, place in rule.in_front
    ]
    return {"route": f"{rule.method} {rule.path}", "path": scope["path"], "permissions": ", ".join(asked)}


async def _send_nothing(_: Message) -> None:
    raise AssertionError("a request that came whole is answered by its reply")
