"""Who asks, for the handlers of a request: what it may see and do, checked where a name is read that the path does not have.

The guard puts an `Admission` into the scope of every request that it lets through; without a guard (credentials are not required) everybody
may do everything, as `OPEN` says. A refusal is an exception, and the guard, which is around the handler, writes it into the audit.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Protocol

from tern_proxy.core.access import Access
from tern_proxy.core.requirements import Rule
from tern_wire.errors import TernError

ADMISSION = "tern.admission"
# Whose admin request the task handles, "" for nobody's: it goes along to the brokers (principal_link.py).
CALLER: ContextVar[str] = ContextVar("caller", default="")


class Scoped(Protocol):
    """A request of ours or of Starlette."""

    @property
    def scope(self) -> Any:
        """The ASGI scope."""


class Admission:
    """One request that was let through: by whom, to which route, with which key. Owner: its handler."""

    __slots__ = ("access", "kid", "refused", "rule")

    def __init__(self, access: Access, rule: Rule, kid: str) -> None:
        self.access, self.rule, self.kid = access, rule, kid
        # What it was refused in the end: action, kind, name.
        self.refused: tuple[str, str, str] | None = None

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
        pass

    @property
    def principal(self) -> str:
        return ""

    @property
    def number(self) -> int:
        return 0

    def require(self, action: str, kind: str, name: str) -> None:
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
