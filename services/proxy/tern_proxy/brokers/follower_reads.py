"""Reads of old data from followers: a read from the leader's disk is replaced by one from a
follower's disk.

The leader's answer to a pull that is far behind the end of the log suggests a follower. The next
pulls of that queue go there as long as it returns messages. A follower answers from its applied
state, which is committed: it may end early, but it is never wrong.
"""

from collections import OrderedDict
from collections.abc import Callable

from msgspec.structs import asdict

from tern_proxy.core.sending.topic import Queue
from tern_remoting import LinkError
from tern_routing import GroupLink
from tern_wire.errors import TernError
from tern_wire.link.pulls import Pull, PullAnywhere, Pulled

# After a longer pause the leader suggests a follower again; the old one may have gone meanwhile.
SUGGESTION_KEPT_S = 10.0
# Readers of old data are few: jobs, and groups that were away.
SUGGESTIONS_MAX = 1_024
# A follower answers at once or not at all: the leader is always available.
ASK_TIMEOUT_MS = 2_000


class FollowerReads:
    """Followers suggested for old messages, by queue.

    Owner: the proxy, in its event loop. *now*: seconds, monotonic.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        # Pulls that followers have answered.
        self.served = 0
        self._nodes: OrderedDict[tuple[str, str], tuple[str, float]] = OrderedDict()

    def suggested(self, topic: str, queue: Queue, node: str) -> None:
        """Record *node*, the follower that the leader suggests for the next pull; "" for none."""
        key = (topic, queue.name)
        self._nodes.pop(key, None)
        if node:
            self._nodes[key] = (node, self._now() + SUGGESTION_KEPT_S)
            if len(self._nodes) > SUGGESTIONS_MAX:
                self._nodes.popitem(last=False)

    def node_for(self, topic: str, queue: Queue) -> str:
        """Return the node for the next pull; empty for the leader."""
        node, until_s = self._nodes.get((topic, queue.name), ("", 0.0))
        return node if until_s > self._now() else ""


async def pull_old(old: FollowerReads, link: GroupLink, queue: Queue, asked: Pull) -> tuple[Pulled, memoryview] | None:
    """Return a follower's answer to a pull that does not wait, and its records; None when the
    leader must be asked.
    """
    node = old.node_for(asked.topic, queue)
    if not node:
        return None
    try:
        pulled, raw = await link.ask_at(node, PullAnywhere(**asdict(asked)), ASK_TIMEOUT_MS)
    except (LinkError, TernError):
        old.suggested(asked.topic, queue, "")
        return None
    if pulled.next_offset <= asked.offset:
        # The end of this node's applied state, or of the queue, is near.
        old.suggested(asked.topic, queue, "")
        return None
    old.served += 1
    return pulled, raw
