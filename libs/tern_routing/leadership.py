"""Who leads one broker group, as far as a proxy or a checker has heard. Pure.

Law: Raft elects at most one leader a term, so a word from an older term never replaces one from a newer term, whoever says it and
however late it comes: a leader that slept for ten seconds still believes in itself when it wakes.
"""


class LeaderBelief:
    """Mutated by the GroupLink that owns it."""

    __slots__ = ("_elected", "leader", "term")

    def __init__(self) -> None:
        # Who is asked now; "" while nobody is known to lead.
        self.leader = ""
        # The newest term of which a serving leader was heard, and that leader.
        self.term = 0
        self._elected = ""

    def serves(self, node: str, term: int) -> bool:
        """*node* was heard to lead and serve in *term*; False when that is out of date, and changes nothing."""
        if term < self.term or (term == self.term and self._elected not in {"", node}):
            return False
        self.leader, self.term, self._elected = node, term, node
        return True

    def resigns(self, node: str, term: int) -> None:
        """*node* says that it does not serve as of *term*."""
        if term >= self.term:
            self.forget(node)

    def refused(self, node: str, hint: str) -> None:
        """*node* refused a request, since it does not lead; *hint* ("" for none) may. A hint has no term, so it is only a guess."""
        if self.leader == node:
            self.leader = hint if hint != node else ""

    def forget(self, node: str) -> None:
        """*node* cannot be asked any more; who was elected in this term is remembered."""
        if self.leader == node:
            self.leader = ""
