"""State that only operators supply: configuration and withdrawn write permissions. Pure.

Brokers do not send this state again, so it is lost unless it is saved.
"""

from dataclasses import dataclass, field, replace

from tern_namesrv.core.configuration import Configuration
from tern_wire.errors import LimitReached
from tern_wire.limits import WIPED_GROUPS_MAX


@dataclass(frozen=True, slots=True)
class OperatorState:
    """Configuration, and the broker groups without write permission. Immutable."""

    configuration: Configuration = field(default_factory=Configuration)
    wiped: frozenset[str] = frozenset()

    def put(self, namespace: str, key: str, value: str) -> "OperatorState":
        """Return a state with this value; the errors of Configuration.put."""
        return replace(self, configuration=self.configuration.put(namespace, key, value))

    def without(self, namespace: str, key: str) -> "OperatorState":
        """Return a state without this key; the errors of Configuration.without."""
        return replace(self, configuration=self.configuration.without(namespace, key))

    def permit(self, broker_group: str, *, writable: bool) -> "OperatorState":
        """Return a state with the group's write permission restored or withdrawn.

        Raises LimitReached.
        """
        wiped = self.wiped - {broker_group} if writable else self.wiped | {broker_group}
        if len(wiped) > WIPED_GROUPS_MAX:
            what = "Broker groups without write permission"
            raise LimitReached(what=what, actual=len(self.wiped), limit=WIPED_GROUPS_MAX)
        return replace(self, wiped=wiped)
