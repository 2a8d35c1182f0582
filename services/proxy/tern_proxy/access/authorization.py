"""Authorization for request handlers: rights of the caller, checked where a name outside the path
is read.

The guard puts an `Admission` into the scope of every admitted request. Without a guard (credentials
are not required) `OPEN` permits everything. A refusal is an exception, which the guard around the
handler records in the audit.
"""

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Protocol

from tern_proxy.core.access.requirements import Rule
from tern_proxy.core.access.rights import Access
from tern_wire.errors import TernError
from tern_wire.principals.principals import CREATE

ADMISSION = "tern.admission"
# Principal of the admin request that the task handles, "" for none; it is sent to the brokers
# (brokers/callers.py).
CALLER: ContextVar[str] = ContextVar("caller", default="")


class Scoped(Protocol):
    """A request of ours or of Starlette."""

    @property
    def scope(self) -> Any:
        """The ASGI scope."""


class Admission:
    """Admission of one request: its principal, its route and its key. Owner: its handler.

    *access* follows the newest table of principals, even after a change during the request
    (open_requests.py).
    """

    __slots__ = ("_asked", "_on_end", "access", "ended", "hands_over", "is_cut", "kid", "refused", "rule")

    def __init__(self, access: Access, rule: Rule, kid: str) -> None:
        self.access, self.rule, self.kid = access, rule, kid
        # Refused permission: action, kind, name.
        self.refused: tuple[str, str, str] | None = None
        # Error after the principal has lost its key or a right that the request needs.
        self.ended: TernError | None = None
        # Whether the answer hands over data that the request waits for, and not a confirmation of
        # an action.
        self.hands_over = False
        # Whether `ended` was the answer.
        self.is_cut = False
        self._asked: list[tuple[str, str, str]] | None = None
        self._on_end: Callable[[], None] | None = None

    @property
    def principal(self) -> str:
        """Name of the principal; "" without authentication."""
        return self.access.principal.name

    @property
    def number(self) -> int:
        """Number of the principal in transaction ids; 0 without authentication."""
        return self.access.principal.number

    def require(self, action: str, kind: str, name: str) -> None:
        """Raise Forbidden, or the error of a missing object, unless the principal has the right."""
        refusal: TernError | None = self.access.refusal(action, kind, name)
        if refusal is not None:
            self.refused = (action, kind, name)
            raise refusal
        if action != CREATE:  # a created object stays, even if the right to create is lost
            if self._asked is None:
                self._asked = []
            self._asked.append((action, kind, name))

    @property
    def asked(self) -> Iterable[tuple[str, str, str]]:
        """Permissions that `require` has granted: action, kind, name."""
        return self._asked or ()

    def listen(self, on_end: Callable[[], None] | None) -> None:
        """Call *on_end* once the request has lost its rights, possibly now; None unregisters."""
        self.hands_over = True
        self._on_end = on_end
        if on_end is not None and self.ended is not None:
            on_end()

    def end(self, error: TernError) -> None:
        """End the request's waits with *error*, because it has lost its rights."""
        self.ended = error
        if self._on_end is not None:
            self._on_end()

    def may(self, action: str, kind: str, name: str) -> bool:
        """Return whether the principal has the right."""
        return self.access.may(action, kind, name)

    def may_some(self, action: str, kind: str) -> bool:
        """Return whether the principal has the right on any object of *kind*."""
        return self.access.may_some(action, kind)

    def sees(self, kind: str, name: str) -> bool:
        """Return whether lists show the object to the principal."""
        return self.access.sees(kind, name)

    def client(self, client: str) -> str:
        """Return the client id of this principal (see `Access.client`)."""
        return self.access.client(client)


class _Open(Admission):
    """Admission without authentication."""

    __slots__ = ()

    def __init__(self) -> None:
        self.ended = None

    @property
    def principal(self) -> str:
        return ""

    @property
    def number(self) -> int:
        return 0

    def require(self, action: str, kind: str, name: str) -> None:
        pass

    def listen(self, on_end: Callable[[], None] | None) -> None:
        pass

    def may(self, action: str, kind: str, name: str) -> bool:
        return True

    def may_some(self, action: str, kind: str) -> bool:
        return True

    def sees(self, kind: str, name: str) -> bool:
        return True

    def client(self, client: str) -> str:
        return client


OPEN: Admission = _Open()


def admission_of(request: Scoped) -> Admission:
    """Return the admission of *request*."""
    scope: Mapping[str, Any] = request.scope
    found: Admission = scope.get(ADMISSION, OPEN)
    return found
