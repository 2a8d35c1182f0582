"""What operators have told this name server, and brokers cannot tell it again: configuration and withdrawn write permissions. Pure."""

from dataclasses import dataclass, field, replace

from tern_namesrv.core.configuration import Configuration
from tern_wire.errors import LimitReached
from tern_wire.limits import WIPED_GROUPS_MAX


@dataclass(frozen=True, slots=True)
class OperatorState:
    """Configuration, and the broker groups that have no write permission. A change makes a new one."""

    configuration: Configuration = field(default_factory=Configuration)
    wiped: frozenset[str] = frozenset()

    def put(self, namespace: str, key: str, value: str) -> "OperatorState":
        """As Configuration.put."""
        return replace(self, configuration=self.configuration.put(namespace, key, value))

    def without(self, namespace: str, key: str) -> "OperatorState":
        """As Configuration.without."""
        return replace(self, configuration=self.configuration.without(namespace, key))

    def permit(self, broker_group: str, *, writable: bool) -> "OperatorState":
        """With the broker group's write permission restored or withdrawn; LimitReached."""
        wiped = self.wiped - {broker_group} if writable else self.wiped | {broker_group}
        if len(wiped) > WIPED_GROUPS_MAX:
            what = "Broker groups without write permission"
            raise LimitReached(what=what, actual=len(self.wiped), limit=WIPED_GROUPS_MAX)
        return replace(self, wiped=wiped)
