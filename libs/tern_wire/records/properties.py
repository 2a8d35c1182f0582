r"""Some properties of many records, without decoding the rest of them.

    ... | topic size 1 | topic ... | properties size 2 | k \x01 v \x02 k \x01 v ...      (see tern_wire.records.record)

Law: the values are those of `decode_record(...).properties`: of equal names the last one counts, bytes that are not UTF-8 are replaced.
"""

import numpy as np
import numpy.typing as npt

from tern_wire.errors import LinkBodyMalformed
from tern_wire.records.record import HEAD_SIZE_BYTES, MAGIC, Bytes, decode_properties

Numbers = npt.NDArray[np.int64]
# Names that are searched one by one, in properties of at most so many bytes. Beyond either, decoding all properties is faster, or at least
# takes a time that nobody can stretch by choosing names.
_SEARCHED_NAMES_MAX = 6
_SEARCHED_SIZE_MAX_BYTES = 2_048
# What reading takes at most, for as many properties as a message can have.
READ_MAX_US = 30.0

_HEAD = np.dtype(
    {
        "names": ["size", "magic", "body_size"],
        "formats": [">u4", ">u4", ">u4"],
        "offsets": [0, 4, HEAD_SIZE_BYTES - 4],
        "itemsize": HEAD_SIZE_BYTES,
    }
)


def property_bounds(data: Bytes, starts: Numbers) -> tuple[Numbers, Numbers]:
    """Where in *data* the properties of the records at *starts* begin and end; LinkBodyMalformed when a record is not whole there."""
    if not len(starts):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    view = np.frombuffer(data, np.uint8)
    _must_hold(starts, (starts >= 0) & (starts + HEAD_SIZE_BYTES <= len(view)))
    # A head at every byte of the data, overlapping: one gather instead of one for each field.
    heads = np.ndarray((len(view) - HEAD_SIZE_BYTES + 1,), _HEAD, view, strides=(1,))[starts]
    topics = starts + HEAD_SIZE_BYTES + heads["body_size"]
    ends = starts + heads["size"]
    _must_hold(starts, (heads["magic"] == MAGIC) & (ends <= len(view)) & (topics + 3 <= ends))
    begins = topics + 3 + view[topics]
    _must_hold(starts, begins <= ends)
    return begins, ends


def _must_hold(starts: Numbers, is_sound: npt.NDArray[np.bool_]) -> None:
    if not is_sound.all():
        raise LinkBodyMalformed(reason=f"no whole record at {int(starts[np.argmin(is_sound)])}")


class PropertyReader:
    """Reads the properties *names*, in that order, from the properties' bytes of one record after the other."""

    __slots__ = ("_marks", "names")

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self._marks = [(mark, len(mark)) for mark in (b"\x02%b\x01" % name.encode() for name in names)]

    def values(self, properties: Bytes) -> list[str | None]:
        """The value of each of `names` in *properties*, None where it is missing."""
        if len(self._marks) > _SEARCHED_NAMES_MAX or len(properties) > _SEARCHED_SIZE_MAX_BYTES:
            decoded = decode_properties(bytes(properties))
            return [decoded.get(name) for name in self.names]
        # Every pair between two separators: then a name is found with its whole length, and its value ends.
        framed = b"".join((b"\x02", properties, b"\x02"))
        found: list[str | None] = []
        for mark, size in self._marks:
            at = framed.rfind(mark)
            if at < 0:
                found.append(None)
            else:
                found.append(framed[at + size : framed.index(b"\x02", at + size)].decode("utf-8", "replace"))
        return found
