"""Who asks, for the handlers of a request: what it may see and do, checked where a name is read that the path does not have.

The guard puts an `Admission` into the scope of every request that it lets through; without a guard (credentials are not required) everybody
may do everything, as `OPEN` says. A refusal is an exception, and the guard, which is around the handler, writes it into the audit.
"""

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Protocol

from tern_proxy.core.access.requirements import Rule
from tern_proxy.core.access.rights import Access
from tern_wire.errors import TernError
from tern_wire.principals.principals import CREATE

ADMISSION = "tern.admission"
# Whose admin request the task handles, "" for nobody's: it goes along to the brokers (brokers/caller_link.py).
CALLER: ContextVar[str] = ContextVar("caller", default="")


class Scoped(Protocol):
    """A request of ours or of Starlette."""

    @property
    def scope(self) -> Any:
        """The ASGI scope."""


class Admission:
    """One request that was let through: by whom, to which route, with which key. Owner: its handler.

    *access* is by the newest table of principals that the proxy has, also when that has changed since (open_requests.py).
    """

    __slots__ = ("_asked", "_on_end", "access", "ended", "hands_over", "is_cut", "kid", "refused", "rule")

    def __init__(self, access: Access, rule: Rule, kid: str) -> None:
        self.access, self.rule, self.kid = access, rule, kid
        # What it was refused in the end: action, kind, name.
        self.refused: tuple[str, str, str] | None = None
        # What it is refused with since its principal has lost its key or a right that the request asked for.
        self.ended: TernError | None = None
        # Whether its answer is what it waits for, not the word that something was done.
        self.hands_over = False
        # Whether `ended` was the answer.
        self.is_cut = False
        self._asked: list[tuple[str, str, str]] | None = None
        self._on_end: Callable[[], None] | None = None

    @property
    def principal(self) -> str:
        """Its name; "" when nobody is asked for one."""
        return self.access.principal.name

    @property
    def number(self) -> int:
        """What stands for it in transaction ids; 0 for nobody."""
        return self.access.principal.number

    def require(self, action: str, kind: str, name: str) -> None:
        """Forbidden, or the error of something that is not there, unless the principal may."""
        refusal: TernError | None = self.access.refusal(action, kind, name)
        if refusal is not None:
            self.refused = (action, kind, name)
            raise refusal
        if action != CREATE:  # what was made is there, whoever may make more of it
            if self._asked is None:
                self._asked = []
            self._asked.append((action, kind, name))

    @property
    def asked(self) -> Iterable[tuple[str, str, str]]:
        """What `require` has let pass: action, kind, name."""
        return self._asked or ()

    def listen(self, on_end: Callable[[], None] | None) -> None:
        """Call *on_end* as soon as the request has lost its rights, which may be now; None: nobody waits any more."""
        self.hands_over = True
        self._on_end = on_end
        if on_end is not None and self.ended is not None:
            on_end()

    def end(self, error: TernError) -> None:
        """The request has lost its rights: whatever waits for it ends with *error*."""
        self.ended = error
        if self._on_end is not None:
            self._on_end()

    def may(self, action: str, kind: str, name: str) -> bool:
        """Whether the principal may."""
        return self.access.may(action, kind, name)

    def sees(self, kind: str, name: str) -> bool:
        """Whether lists show it to the principal."""
        return self.access.sees(kind, name)

    def client(self, client: str) -> str:
        """As Access.client."""
        return self.access.client(client)


class _Open(Admission):
    """Nobody is asked who it is."""

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

    def sees(self, kind: str, name: str) -> bool:
        return True

    def client(self, client: str) -> str:
        return client


OPEN: Admission = _Open()


def admission_of(request: Scoped) -> Admission:
    """Who makes *request*."""
    scope: Mapping[str, Any] = request.scope
    found: Admission = scope.get(ADMISSION, OPEN)
    return found
