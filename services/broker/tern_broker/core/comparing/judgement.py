"""The result of a comparison of the nodes: the right digest, and the nodes that differ. The payload
of a JUDGE.
"""

from dataclasses import dataclass

from tern_wire.link.codec import encode_msgpack


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A judgement of the nodes' digests just before entry *index*.

    *right*: the digest of a majority, or of the node that an operator chose; None: undecided.
    *leaving*: the nodes that discard their state now; with *is_final* these are all nodes that
    differ.
    """

    index: int
    digests: dict[str, int]
    right: int | None = None
    leaving: tuple[str, ...] = ()
    is_final: bool = True

    def parts(self) -> list[bytes | bytearray | memoryview]:
        """Return the payload of a JUDGE."""
        facts = {
            "index": self.index,
            "digests": self.digests,
            "right": self.right,
            "leaving": list(self.leaving),
            "is_final": self.is_final,
        }
        return [encode_msgpack(facts)]
