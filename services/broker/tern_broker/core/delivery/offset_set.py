"""A set of offsets of one queue, as bits above a base: an eighth of a byte for each, independent of
insertion order.

     base (a multiple of 8)
     | bits of base .. base + 7 | bits of base + 8 .. base + 15 | ...
"""


class OffsetSet:
    """Owner: its creator."""

    def __init__(self, base: int = 0, bits: bytes = b"") -> None:
        self._base, self._bits = base, bytearray(bits)

    def __contains__(self, offset: int) -> bool:
        octet = offset - self._base >> 3
        return 0 <= octet < len(self._bits) and bool(self._bits[octet] >> (offset & 7) & 1)

    def add(self, offset: int) -> None:
        """Add *offset*."""
        if not self._bits:
            self._base = offset & ~7
        octet = offset - self._base >> 3
        if octet < 0:
            self._bits[:0] = bytes(-octet)
            self._base, octet = offset & ~7, 0
        if octet >= len(self._bits):
            self._bits.extend(bytes(octet + 1 - len(self._bits)))
        self._bits[octet] |= 1 << (offset & 7)

    def first_missing(self, offset: int) -> int:
        """Return the lowest offset from *offset* on that is not in the set."""
        while offset in self:
            octet = offset - self._base >> 3
            offset += 8 if not offset & 7 and self._bits[octet] == 0xFF else 1
        return offset

    def drop_before(self, offset: int) -> None:
        """Remove offsets below *offset*, in whole bytes."""
        octets = min((offset - self._base) >> 3, len(self._bits))
        if octets > 0:
            del self._bits[:octets]
            self._base += octets << 3

    def count_from(self, offset: int) -> int:
        """Return how many offsets from *offset* on are in the set."""
        skip = max(0, offset - self._base)
        return (int.from_bytes(self._bits, "little") >> skip).bit_count()

    def pack(self) -> tuple[int, bytes]:
        """Return a frozen copy: the constructor's arguments."""
        return self._base, bytes(self._bits)
