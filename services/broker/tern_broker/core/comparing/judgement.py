"""What a comparison of the nodes has found: who is right, and who goes. The payload of a JUDGE."""

from dataclasses import dataclass

from tern_wire.link.codec import encode_msgpack


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Of the nodes' digests just before entry *index*: *right* is that of a majority, or of the node that an operator chose; None: nobody's.

    *leaving*: who goes now; with *is_final* that is everybody who differs.
    """

    index: int
    digests: dict[str, int]
    right: int | None = None
    leaving: tuple[str, ...] = ()
    is_final: bool = True

    def parts(self) -> list[bytes | bytearray | memoryview]:
        """The payload of a JUDGE."""
        facts = {
            "index": self.index,
            "digests": self.digests,
            "right": self.right,
            "leaving": list(self.leaving),
            "is_final": self.is_final,
        }
        return [encode_msgpack(facts)]
