"""The rules that make pysyncobj 0.3.17 safe, as decisions over one message and the log. Pure.

R1  a reply counts only in the term it was made in          (S6, syncobj.py:1098-1106: no term in
it) R2  nothing is committed on a log that was not compared     (S1, syncobj.py:1021-1035: snapshots
do) R3  nothing is truncated without a conflict, and only what
 was verified is acknowledged                            (S5, syncobj.py:991-1006: late ones cut)
R4  a proven conflict is dropped at once                    (L2, syncobj.py:985-990: endless
restarts) R5  one vote a voter and term                               (syncobj.py:1063-1068: counts
messages) R6  no node stands that a majority would not elect          (L6, syncobj.py:635-648,
918-923) R7  apply is bounded and begins behind the saved index      (L1, syncobj.py:177, 708-734)
R6 is in elections.py, R7 in consensus.py. S, L and X number what is wrong with pysyncobj 0.3.17
(safety, liveness, its port); lines are those of its sdist.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AppendPlan:
    """The changes to an `append_entries` before pysyncobj receives it."""

    message: Message
    # The last index that this message has verified, the limit of the ack. -1: it verifies nothing.
    verified: int
    # Cut the log from here first (R4); 0 for no cut.
    cut_from: int = 0


def plan_append(
    message: Message, *, first: int, last: int, commit: int, term_at: Callable[[int], int]
) -> AppendPlan | None:
    """The plan for an append of a current or newer term; None if it must be ignored (R2).
    *first*, *last* and *commit* are indexes of the own log; *term_at* is valid for first..last.
    """
    if "prevLogIdx" not in message or message.get("serialized") or message.get("transmission"):
        return None
    message = dict(message)
    previous, entries = message["prevLogIdx"], message["entries"]
    if previous > last or previous < first:
        message["commit_index"] = 0
        return AppendPlan(message, verified=-1)
    if term_at(previous) != message["prevLogTerm"]:
        message["commit_index"] = 0
        if previous <= commit:
            return None  # a committed entry cannot conflict: the sender is wrong
        # After the cut the log ends before `previous`, so pysyncobj asks the leader to restart
        # further back.
        return AppendPlan(message, verified=-1, cut_from=previous)
    verified = previous + len(entries)
    message["commit_index"] = min(message["commit_index"], verified)
    known = 0
    while known < len(entries) and entries[known][1] <= last and term_at(entries[known][1]) == entries[known][2]:
        known += 1
    previous += known
    entries = entries[known:]
    if entries and previous < min(commit, last):
        return None  # as above: an entry that is committed here would be cut
    message["prevLogTerm"] = message["prevLogTerm"] if not known else term_at(previous)
    if not entries and previous < last:
        # Nothing conflicts: let the message end where our log ends, so that nothing is truncated.
        previous, message["prevLogTerm"] = last, term_at(last)
    message["prevLogIdx"], message["entries"] = previous, entries
    return AppendPlan(message, verified=verified)


class VoteCount:
    """R5: the votes for this node in a term. Owner: the transport."""

    def __init__(self) -> None:
        self._term = -1
        self._voters: set[str] = set()

    def is_new(self, term: int, voter: str) -> bool:
        """Count *voter* in *term*; False if it was counted before."""
        if term != self._term:
            self._term, self._voters = term, set()
        if voter in self._voters:
            return False
        self._voters.add(voter)
        return True


def may_lead(*, own_term: int, own_index: int, last_term: int, last_index: int) -> bool:
    """Whether a log that ends at (*last_term*, *last_index*) is as new as the own one.
    Raft, 5.4.1.
    """
    return (last_term, last_index) >= (own_term, own_index)
