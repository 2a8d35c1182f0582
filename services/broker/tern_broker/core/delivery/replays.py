"""Which leases a receive with an attempt id got, so that the same request again gets the same messages and handles.

Law: this is an index over what the leases say themselves (`Lease.token`), made again when a state is loaded. A lease that ends leaves it,
so it never holds more than what is alive, though a client may use one attempt id for ever.
"""

from collections.abc import Callable

from tern_broker.core.delivery.delivery import Delivery
from tern_broker.core.delivery.lease import Lease
from tern_wire.link.receives import ATTEMPT_ID_SIZE_BYTES

# An attempt id's hash.
TOKEN_SIZE_BYTES = ATTEMPT_ID_SIZE_BYTES


class Replays:
    """By group, topic and token. Owner: Leasing, whose *find* knows the delivery of (group id, topic id, queue)."""

    def __init__(self, find: Callable[[int, int, int], Delivery | None]) -> None:
        self._find_delivery = find
        # (queue, lease id) of each, in the order in which the receive got them: dictionaries for their order.
        self._leases: dict[tuple[int, int, bytes], dict[tuple[int, int], None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._leases.values()))

    def add(self, group_id: int, topic_id: int, queue: int, lease: Lease) -> None:
        """*lease* was given to the receive that its token names."""
        self._leases.setdefault((group_id, topic_id, lease.token), {})[queue, lease.lease_id] = None

    def remove(self, group_id: int, topic_id: int, queue: int, lease_id: int, token: bytes) -> None:
        """The lease is over, if it was one of those."""
        key = (group_id, topic_id, token)
        found = self._leases.get(key)
        if found is not None:
            found.pop((queue, lease_id), None)
            if not found:
                del self._leases[key]

    def find(self, group_id: int, topic_id: int, token: bytes) -> list[tuple[int, Lease]]:
        """(queue, lease) of what the receive got and still holds, in the order in which it got them."""
        found: list[tuple[int, Lease]] = []
        for queue, lease_id in self._leases.get((group_id, topic_id, token), ()):
            delivery = self._find_delivery(group_id, topic_id, queue)
            assert delivery is not None
            found.append((queue, delivery.leases[lease_id]))
        return found
