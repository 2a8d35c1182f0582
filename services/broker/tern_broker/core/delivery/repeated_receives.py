"""The leases of each receive with an attempt id, so that a repeated request gets the same messages
and handles.

Law: an index over the leases' own tokens (`Lease.token`), rebuilt when a state is loaded. A lease
that ends is removed, so the index never exceeds the live leases, even if a client uses one attempt
id for ever.
"""

from collections.abc import Callable

from tern_broker.core.delivery.delivery import Delivery
from tern_broker.core.delivery.lease import Lease
from tern_wire.link.receives import ATTEMPT_ID_SIZE_BYTES

# Size of an attempt id's hash.
TOKEN_SIZE_BYTES = ATTEMPT_ID_SIZE_BYTES


class Replays:
    """Leases by group, topic and token. Owner: Leasing, whose *find* returns the delivery of (group
    id, topic id, queue).
    """

    def __init__(self, find: Callable[[int, int, int], Delivery | None]) -> None:
        self._find_delivery = find
        # (queue, lease id) of each, in the order of the receive: dictionaries keep it.
        self._leases: dict[tuple[int, int, bytes], dict[tuple[int, int], None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._leases.values()))

    def add(self, group_id: int, topic_id: int, queue: int, lease: Lease) -> None:
        """Add *lease* of the receive that its token names."""
        self._leases.setdefault((group_id, topic_id, lease.token), {})[queue, lease.lease_id] = None

    def remove(self, group_id: int, topic_id: int, queue: int, lease_id: int, token: bytes) -> None:
        """Remove a lease that has ended, if it is in the index."""
        key = (group_id, topic_id, token)
        found = self._leases.get(key)
        if found is not None:
            found.pop((queue, lease_id), None)
            if not found:
                del self._leases[key]

    def find(self, group_id: int, topic_id: int, token: bytes) -> list[tuple[int, Lease]]:
        """Return (queue, lease) of the leases that the receive got and still holds, in the order in
        which it got them.
        """
        found: list[tuple[int, Lease]] = []
        for queue, lease_id in self._leases.get((group_id, topic_id, token), ()):
            delivery = self._find_delivery(group_id, topic_id, queue)
            assert delivery is not None
            found.append((queue, delivery.leases[lease_id]))
        return found
