"""Leaders of two broker groups, for tests of what a proxy asks of several."""

from tests.support.broker.memory_broker import MemoryBroker
from tests.support.proxy.proxy_mesh import KEY

B = "/v1/broker-groups/broker-b"


def two_groups() -> tuple[MemoryBroker, MemoryBroker]:
    """Leaders of broker-a and broker-b."""
    return MemoryBroker(KEY), MemoryBroker(KEY, node="broker-b-0", broker_group="broker-b")
