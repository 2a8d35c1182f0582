"""The rolling digest of apply's decisions. It is equal on every node after the same entry; a node
that differs is faulty.
"""

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_wire.errors import TernError
from tern_wire.link.codec import encode_msgpack

Verdict = npt.NDArray[Any] | bytes | dict[str, Any] | TernError
_NUMBERS = struct.Struct("<qqq")


def advance(digest: int, verdicts: Sequence[Verdict], numbers: tuple[int, int, int]) -> int:
    """Return the digest after an entry that got *verdicts* and left the state with *numbers*."""
    for verdict in verdicts:
        digest = zlib.crc32(_witness(verdict), digest)
    return zlib.crc32(_NUMBERS.pack(*numbers), digest)


def _witness(verdict: Verdict) -> bytes:
    if isinstance(verdict, np.ndarray):
        return verdict.tobytes()
    if isinstance(verdict, TernError):
        return verdict.code.encode()
    return verdict if isinstance(verdict, bytes) else encode_msgpack(verdict)
