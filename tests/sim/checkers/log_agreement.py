"""Log agreement: two nodes hold different entries at one index at the end, or a node's log is no log.

Exactly: wherever two nodes have an entry of the same index, term, CRC and position are the same; within a node indexes follow one
another, terms never fall and positions rise. (While the run goes on, `observers.py` compares what is applied.)
"""

from tests.sim.history.history import EndState, History, LogRow, Violation


def check(_history: History, end: EndState) -> list[Violation]:
    """The first disagreement of each node; O(entries * nodes)."""
    found = []
    canon: dict[int, tuple[LogRow, str]] = {}
    for node in end.nodes:
        before: LogRow | None = None
        for row in node.log:
            if before is not None and (
                row.index != before.index + 1 or row.term < before.term or row.position <= before.position
            ):
                found.append(Violation("log_agreement", f"{node.node}: {row} follows {before}"))
                break
            before = row
            other, owner = canon.setdefault(row.index, (row, node.node))
            if other != row:
                found.append(Violation("log_agreement", f"{node.node} has {row}, {owner} has {other}"))
                break
    return found
