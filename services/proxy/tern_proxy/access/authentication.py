"""Authentication: the principal of a request, by a bearer key or by a signature.

    Authorization: Bearer mqk_<kid>_<secret>   compared with the SHA-256 in the table of principals
    Signature, Signature-Input                 see signed_requests.py

The session of an Authorization header is cached by the header's bytes until the table changes.

Law: a request has a principal only by the newest table of this proxy; a new table empties the
cache. All wrong credentials get the same answer at the same cost; the reason is for the audit. One
exception follows from the request alone: the 401 of a signature that names HMAC says what to do
instead, whatever its kid is. A request with both kinds of credentials, or with two of one kind, is
refused. Owner: the event loop.
Reference: RFC 6750, RFC 9110 11.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Protocol

from starlette.types import Scope

from tern_proxy.access.signed_requests import HmacSigned, NotSigned, read_signature
from tern_proxy.core.access.credential_limits import Failures, Nonces
from tern_proxy.core.access.quotas import Bucket
from tern_proxy.core.access.rights import Access
from tern_service.clock import Clock
from tern_wire.errors import HmacNotAccepted, TernError, TooManyFailures, Unauthenticated, WarmingUp
from tern_wire.kept_topics import KeptTopics
from tern_wire.limits import AUTH_FAILURES_PER_MIN, SESSIONS_KEPT_MAX, SIGNATURE_WINDOW_MS
from tern_wire.principals.client_keys import ROOT_KID, ClientKey, digest_of, is_bearer_of, kid_of, root_key_text
from tern_wire.principals.principals import ROOT, Principal, PrincipalTable

# The key in the scope of a signed request for the hashes that its body must have, by algorithm.
DIGESTS = "tern.digests"
_BEARER = b"bearer "
_FOR_EVER_MS = 1 << 62


class Principals(Protocol):
    """The source of principals."""

    @property
    def table(self) -> PrincipalTable:
        """All principals; another object after each change."""

    @property
    def is_ready(self) -> bool:
        """Whether they have been read once."""

    @property
    def is_whole(self) -> bool:
        """Whether every broker group has been read."""

    def follow(self, told: Callable[[], None]) -> None:
        """Call *told* at each new table, before anything else can happen."""


class Session:
    """Credentials that are good from *from_ms* until *until_ms* (wall time)."""

    __slots__ = ("access", "bucket", "from_ms", "key", "kid", "until_ms")

    def __init__(self, access: Access, key: ClientKey, bucket: Bucket | None) -> None:
        self.access, self.key, self.kid, self.bucket = access, key, key.kid, bucket
        self.from_ms, self.until_ms = key.not_before_ms, key.expires_ms or _FOR_EVER_MS


class Refused(Exception):
    """Wrong credentials: the error of the answer, and for the audit the kid and the reason."""

    def __init__(self, error: TernError, kid: str, reason: str) -> None:
        super().__init__(reason)
        self.error, self.kid, self.reason = error, kid, reason


class Authenticator:
    """Finder of the session of a request."""

    def __init__(self, principals: Principals, *, cluster_key: bytes, clock: Clock, kept: KeptTopics) -> None:
        self._principals, self._clock, self._kept = principals, clock, kept
        self._seal = blake2b(b"principals", key=cluster_key, digest_size=32).digest()
        self._root_key = ClientKey(kid=ROOT_KID, digest=digest_of(root_key_text(cluster_key)))
        self._table: PrincipalTable | None = None
        self._sessions: dict[bytes, Session] = {}
        self._accesses: dict[str, Access] = {}
        self._buckets: dict[str, Bucket] = {}
        self._failures, self._nonces = Failures(), Nonces()

    def find(self, scope: Scope) -> Session:
        """The session of a request; Refused.

        The scope of a signed request with a body has the body's hashes at DIGESTS then.
        """
        raw: bytes | None = None
        signed = False
        for name, value in scope["headers"]:
            if name == b"authorization":
                if raw is not None:
                    raise self._refuse(scope, "", "two Authorization headers")
                raw = value
            elif name == b"signature-input":
                signed = True
        if signed and raw is not None:
            raise self._refuse(scope, "", "a key and a signature")
        if self._principals.table is not self._table:
            self._renew()
        session = self._good(raw, scope) if raw is not None else None
        if session is not None:
            return session
        return self._look_signed(scope) if signed else self._look(scope, raw)

    def known(self, scope: Scope) -> Session | None:
        """The session of a bearer key that `find` has returned since the last change of the table.

        None: only `find` knows. Nothing is changed or counted.
        """
        raw: bytes | None = None
        for name, value in scope["headers"]:
            if name == b"authorization":
                if raw is not None:
                    return None
                raw = value
            elif name == b"signature-input":
                return None
        if raw is None or self._principals.table is not self._table:
            return None
        return self._good(raw, scope)

    def _good(self, raw: bytes, scope: Scope) -> Session | None:
        """The cached session of an Authorization header, if it is good now and from there."""
        session = self._sessions.get(raw)
        if session is None or not session.from_ms <= self._clock.now_ms() < session.until_ms:
            return None
        return session if not session.key.networks or session.key.is_good_from(address_of(scope)) else None

    def again(self, session: Session, address: str) -> Session | None:
        """*session* by the newest table and the time; None when its credentials are no longer good.

        *address*: where they are used from.
        """
        if self._principals.table is not self._table:
            self._renew()
        found, was = self._find(session.kid), session.key
        if found is None or found[0].name != session.access.principal.name:
            return None
        key = found[1]
        is_same = (key.digest, key.public_key, key.salt) == (was.digest, was.public_key, was.salt)
        if not is_same or not key.is_good_at(self._clock.now_ms()) or not key.is_good_from(address):
            return None
        return self._session(found[0], key)

    def _renew(self) -> None:
        self._table = self._principals.table
        self._sessions.clear()
        known = self._table.principals
        # An unchanged principal is the same object, so its rights and its bucket stay.
        self._accesses = {
            name: access for name, access in self._accesses.items() if known.get(name, ROOT) is access.principal
        }
        self._buckets = {name: bucket for name, bucket in self._buckets.items() if name in known}

    def _look(self, scope: Scope, raw: bytes | None) -> Session:
        if raw is None:
            raise Refused(Unauthenticated(), "", "no credentials")
        is_bearer = raw[: len(_BEARER)].lower() == _BEARER
        text = raw[len(_BEARER) :].decode("latin-1").strip(" ") if is_bearer else ""
        kid = kid_of(text)
        found = self._find(kid)
        key = found[1] if found is not None else None
        is_right = is_bearer_of(key, text)
        if found is None or key is None or not is_right:
            if found is None:
                self._refuse_early(kid)
            raise self._refuse(scope, kid, "no such key" if found is None else "a wrong key")
        self._check(scope, key, self._clock.now_ms())
        session = self._session(found[0], key)
        if len(self._sessions) >= SESSIONS_KEPT_MAX:
            self._sessions.clear()
        self._sessions[raw] = session
        return session

    def _look_signed(self, scope: Scope) -> Session:
        now_ms, address = self._clock.now_ms(), address_of(scope)
        found: tuple[Principal, ClientKey] | None = None

        def find_key(kid: str) -> bytes:
            nonlocal found
            found = self._find(kid)
            return b"" if found is None or self._failures.is_over(address, kid, now_ms) else found[1].public_key

        try:
            signed = read_signature(scope, find_key, now_ms)
        except HmacSigned as error:
            # Nothing is verified, so there is nothing to guess and nothing to count.
            raise Refused(HmacNotAccepted(), error.kid[:64], error.reason) from None
        except NotSigned as error:
            if self._find(error.kid) is None:
                self._refuse_early(error.kid)
            raise self._refuse(scope, error.kid[:64], error.reason) from None
        assert found is not None
        principal, key = found
        self._check(scope, key, now_ms)
        end_s = signed.created_s + SIGNATURE_WINDOW_MS // 1_000
        if not self._nonces.take(signed.kid, signed.nonce, now_ms // 1_000, end_s):
            raise self._refuse(scope, signed.kid, "a signature that was used before")
        if signed.digests:
            scope[DIGESTS] = signed.digests
        return self._session(principal, key)

    def _find(self, kid: str) -> tuple[Principal, ClientKey] | None:
        if kid == ROOT_KID:
            return ROOT, self._root_key
        return self._principals.table.find(kid)

    def _refuse_early(self, kid: str) -> None:
        """WarmingUp while the key may be good and this proxy has not read it yet."""
        if kid and kid != ROOT_KID and not (self._principals.is_ready and self._principals.is_whole):
            raise Refused(WarmingUp(), kid, "principals are not known yet")

    def _check(self, scope: Scope, key: ClientKey, now_ms: int) -> None:
        if key.kid != ROOT_KID and not self._principals.is_ready:
            raise Refused(WarmingUp(), key.kid, "principals are not known yet")
        if not key.is_good_at(now_ms):
            raise self._refuse(scope, key.kid, "a key out of its time")
        if key.networks and not key.is_good_from(address_of(scope)):
            raise self._refuse(scope, key.kid, "a key out of its networks")

    def _session(self, principal: Principal, key: ClientKey) -> Session:
        access = self._accesses.get(principal.name)
        if access is None or access.principal is not principal:
            access = Access(principal, kept=self._kept, seal=self._seal)
            self._accesses[principal.name] = access
        return Session(access, key, self._bucket(principal))

    def _bucket(self, principal: Principal) -> Bucket | None:
        limits = (principal.requests_per_s, principal.bytes_per_s)
        if not any(limits):
            self._buckets.pop(principal.name, None)
            return None
        bucket = self._buckets.get(principal.name)
        if bucket is None:
            bucket = self._buckets[principal.name] = Bucket(*limits, self._clock.mono_ms())
        bucket.limit(*limits)
        return bucket

    def _refuse(self, scope: Scope, kid: str, reason: str) -> Refused:
        now_ms, address = self._clock.now_ms(), address_of(scope)
        pause_ms = self._failures.is_over(address, kid, now_ms)
        if pause_ms:
            error = TooManyFailures(limit=AUTH_FAILURES_PER_MIN, retry_after_ms=pause_ms)
            return Refused(error, kid, reason)
        self._failures.add(address, kid, now_ms)
        return Refused(Unauthenticated(), kid, reason)


def address_of(scope: Scope) -> str:
    """Return the client's IP address; "" when there is none."""
    client = scope.get("client")
    return client[0] if client else ""
