"""The leader of one broker group, as far as a proxy or a checker knows. Pure.

Law: Raft elects at most one leader a term, so news of an older term never replaces that of a newer
one, whatever its source and delay: a leader that was paused for ten seconds still considers itself
the leader.
"""


class LeaderBelief:
    """Changed only by the GroupLink that owns it."""

    __slots__ = ("_elected", "leader", "term")

    def __init__(self) -> None:
        # The node that receives requests; "" while no leader is known.
        self.leader = ""
        # The newest term with a serving leader, and that leader.
        self.term = 0
        self._elected = ""

    def serves(self, node: str, term: int) -> bool:
        """Record that *node* leads and serves in *term*; False if outdated, without a change."""
        if term < self.term or (term == self.term and self._elected not in {"", node}):
            return False
        self.leader, self.term, self._elected = node, term, node
        return True

    def resigns(self, node: str, term: int) -> None:
        """Record that *node* does not serve as of *term*."""
        if term >= self.term:
            self.forget(node)

    def refused(self, node: str, hint: str) -> None:
        """Record that *node* refused a request; *hint* ("" for none) may lead.
        A hint has no term, so it is only a guess.
        """
        if self.leader == node:
            self.leader = hint if hint != node else ""

    def forget(self, node: str) -> None:
        """Stop sending to *node*; the elected node of this term is remembered."""
        if self.leader == node:
            self.leader = ""
