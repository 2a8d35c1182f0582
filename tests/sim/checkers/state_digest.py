"""State digest: nodes that applied the same entries have another state.

Exactly: among nodes with the same applied index, the digest of the encoded state machine is the same.
"""

from tests.sim.history.history import EndState, History, Violation


def check(_history: History, end: EndState) -> list[Violation]:
    """Each node that differs from the first one at its index."""
    found = []
    digests: dict[int, tuple[str, str]] = {}
    for node in end.nodes:
        digest, other = digests.setdefault(node.applied, (node.digest, node.node))
        if digest != node.digest:
            found.append(Violation("state_digest", f"{node.node} and {other} differ, both at {node.applied}"))
    return found
