"""What must hold at every moment of a run: the simulator reports what nodes do, and each report is checked at once.

Log agreement while running (two nodes never apply different entries at one index, no node skips or repeats one in a process), a
commit index that never goes back in a living process, one leader a term, one vote a node and term (whatever crashes and rebuilds
lie between), no leader without a majority of votes, no node that stands again and again though nobody hears it, and no answer from a
node that knew its files to be damaged. Definitions: each method's docstring. Laws between nodes: ghosts.py.
"""

from tern_broker.core import deadline_heap
from tests.sim.history.history import Violation
from tests.sim.laws.ghosts import Canon, Ghosts

# A run that has gone wrong goes wrong at every entry: the first ones tell what happened.
VIOLATIONS_MAX = 20
# So many lonely campaigns of one node in a row may come of leaders that told it to stand, and links that broke at that moment.
LONELY_CAMPAIGNS_MAX = 3


class Observers:
    """Owner: the run. Found violations gather in `violations`, at most VIOLATIONS_MAX of them."""

    # Checkers that are not listened to: a test that wants to see what harm a broken law does.
    muted: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self._canon: Canon = {}
        self.ghosts = Ghosts(self._report, self._canon)
        # Every node that ever began.
        self._names: set[str] = set()
        # What each running process has reached.
        self._applied: dict[str, int] = {}
        self._committed: dict[str, int] = {}
        # Term -> who led in it; (node, term) -> whom it voted for.
        self._leaders: dict[int, str] = {}
        self._votes: dict[tuple[str, int], str] = {}
        # Node -> the terms in which it has stood; term -> who has voted in it.
        self._campaigns: dict[str, list[int]] = {}
        self._voters: dict[int, set[str]] = {}

    def started(self, node: str, applied: int) -> None:
        """*node*'s process begins with a state as of entry *applied* (its saved state; 1: an empty one)."""
        self._names.add(node)
        self._applied[node] = applied
        self._committed.pop(node, None)

    def stopped(self, node: str) -> None:
        """*node*'s process is gone, and what it held in memory with it."""
        self._applied.pop(node, None)
        self._committed.pop(node, None)

    def applied(self, node: str, index: int, term: int, crc: int) -> None:
        """*node* has applied the entry at *index*: its term and the CRC in its header.

        Violations: another node applied another entry there; this process skipped an index or applied one twice.
        """
        before = self._applied.get(node)
        if before is not None and index != before + 1:
            self._report("apply_order", f"{node} applies {index} right after {before}")
        self._applied[node] = index
        known = self._canon.get(index)
        if known is None:
            self._canon[index] = (term, crc, node)
        elif known[0] != term or known[1] != crc:
            self._report(
                "log_agreement",
                f"at index {index}, {known[2]} has applied term {known[0]} crc {known[1]:08x}, {node} term {term} crc {crc:08x}",
            )

    def committed(self, node: str, index: int) -> None:
        """*node* believes that everything up to *index* is committed. Violation: it believed more before."""
        if index < self._committed.get(node, index):
            self._report("commit_index", f"{node}'s commit index goes back from {self._committed[node]} to {index}")
        self._committed[node] = index
        self.ghosts.committed(node, index)

    def role(self, node: str, term: int, is_leader: bool) -> None:
        """*node* believes to lead in *term*, or not to.

        Violations: another node led in that term; or no majority of the nodes has voted for this one in that term.
        """
        if not is_leader:
            return
        if (other := self._leaders.setdefault(term, node)) != node:
            self._report("one_leader", f"{node} leads in term {term}, and so did {other}")
        voters = sorted(name for name in self._names if self._votes.get((name, term)) == node)
        if 2 * len(voters) <= len(self._names):
            self._report("elected", f"{node} leads in term {term} with votes of {voters} alone")

    def voted(self, node: str, term: int, candidate: str) -> None:
        """*node* gave its vote to *candidate* in *term* (also itself: then it stands).

        Violations: it voted for another one in that term; or it stands anew after LONELY_CAMPAIGNS_MAX campaigns that no majority had
        asked it to begin, and in which nobody else voted: who hears a leader, or nobody at all, must not disturb by ever newer terms (R6).
        """
        if (other := self._votes.setdefault((node, term), candidate)) != candidate:
            self._report("one_vote", f"{node} votes for {candidate} in term {term}, where it voted for {other}")
        voters = self._voters.setdefault(term, set())
        if node == candidate and node not in voters and not self.ghosts.is_invited(node, term):
            campaigns = self._campaigns.setdefault(node, [])
            last = campaigns[-LONELY_CAMPAIGNS_MAX:]
            if len(last) == LONELY_CAMPAIGNS_MAX and all(self._voters[before] == {node} for before in last):
                self._report("lonely_campaigns", f"{node} stands in term {term}, alone as in the terms {last}")
            campaigns.append(term)
        voters.add(node)

    def deadlines(self, node: str, alive: int, kept: int, pairs: int) -> None:
        """After an entry *node* has *alive* leases and rests, of which it keeps *kept* deadlines in a heap of *pairs*.

        Violation: something without a deadline, a deadline of nothing, or more pairs than what is alive explains.
        """
        if kept != alive or pairs > 2 * alive + deadline_heap.STALE_MAX:
            self._report("deadlines", f"{node} keeps {kept} deadlines in {pairs} pairs of {alive} leases and rests")

    def unread(self, text: str) -> None:
        """Violation: to make room, a TRIM drops what somebody has yet to read (kept_unread.py)."""
        self._report("unread", text)

    def served(self, node: str, code: int, is_damaged: bool, bug: str = "") -> None:
        """*node* answered a client with frame code *code*; *is_damaged*: it had noted before that its files are damaged. *bug*: what the
        answer names.

        Violation: a damaged node gives any answer that is not an error; or there is a bug.
        """
        if bug:
            self._report("bug", f"{node} met a bug: {bug}")
        if is_damaged and not code:
            self._report("quarantine", f"{node} serves clients though it knows that its files are damaged")

    def _report(self, checker: str, text: str) -> None:
        if len(self.violations) < VIOLATIONS_MAX and checker not in self.muted:
            self.violations.append(Violation(checker, text))
