"""Principals of one broker group: the joined document of each, in the order of their changes.

So a proxy reads only the changes since its last read. Law: a change is joined with the existing
document (`tern_wire/principals/documents.py`), so a removal is never undone, in whatever order
broker groups get changes. A change is refused only above a limit, or when it is based on settings
that have changed meanwhile.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any
from zlib import crc32

from tern_broker.core.applied import Applied, Handler, read_map
from tern_broker.core.comparing.digest import Verdict
from tern_broker.core.windows import rows_of, windows_of
from tern_wire.errors import InvalidField, LimitReached, PrincipalChanged, TernError
from tern_wire.limits import (
    DELETED_PRINCIPAL_KEPT_MS,
    KEYS_KEPT_MAX,
    KEYS_LIVE_MAX,
    PRINCIPAL_SIZE_MAX_BYTES,
    PRINCIPALS_MAX,
    PRINCIPALS_PAGE_SIZE_MAX_BYTES,
    PRINCIPALS_SIZE_MAX_BYTES,
    REVOKED_KEPT_MAX,
)
from tern_wire.link.codec import decode_msgpack, encode_msgpack
from tern_wire.link.commands import CommandKind
from tern_wire.principals.documents import PrincipalDocument, joined, read_principal_document
from tern_wire.settings.topic_settings import is_whole

# The base of a change that applies to any version.
ANY_VERSION = -1


class Principals:
    """Principals by name, in the order of their last change. Owner: the state machine."""

    def __init__(self) -> None:
        # Name -> (revision, document, the document in MessagePack, for saved states and proxies),
        # in the order of revisions. A change moves its principal to the end.
        self._all: dict[str, tuple[int, PrincipalDocument, bytes]] = {}
        # The number of changes so far; and the bytes of all documents.
        self.revision = 0
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self._all)

    def commands(self) -> Mapping[int, Handler]:
        """Return the handlers of this part's commands."""
        return {CommandKind.PUT_PRINCIPAL: self._put}

    def is_due(self, _now_ms: int) -> bool:
        """Return False: nothing here ends by itself."""
        return False

    def expire(self, applied: Applied) -> None:
        """Do nothing: nothing here ends by itself."""

    def get(self, name: str) -> PrincipalDocument | None:
        """Return the document of that name, also of a deleted principal; None if there is none."""
        found = self._all.get(name)
        return None if found is None else found[1]

    def changed_after(self, revision: int, limit: int) -> dict[str, Any]:
        """Return at most *limit* principals that changed after *revision*, in that order.

        There are fewer if their documents exceed the size of one answer.
        """
        if revision > self.revision:
            # The broker group was created again since: the reader starts from the beginning.
            revision = 0
        later = sum(1 for _ in self._later(revision))
        found: list[list[Any]] = []
        size_bytes = 0
        for number, _, packed in islice(self._all.values(), len(self._all) - later, None):
            if len(found) == limit or (found and size_bytes + len(packed) > PRINCIPALS_PAGE_SIZE_MAX_BYTES):
                break
            found.append([number, packed])
            size_bytes += len(packed)
        return {"principals": found, "revision": self.revision, "more": len(found) < later}

    def _later(self, revision: int) -> Iterator[str]:
        for name in reversed(self._all):
            if self._all[name][0] <= revision:
                return
            yield name

    # Commands -------------------------------------------------------------------------------------
    def _put(self, payload: memoryview, _position: int, applied: Applied) -> Verdict:
        request = read_map(payload)
        change, base, is_repair = read_put(request)
        known = self._all.get(change.name)
        before = PrincipalDocument(name=change.name) if known is None else known[1]
        after = joined(before, change)
        if after == before:
            # A repeat, or overtaken by a later change: the state is as requested.
            return {"changed": False, "revision": self.revision, "version": after.settled}
        if base != ANY_VERSION and before.settled > base:
            raise PrincipalChanged(principal=change.name, actual=before.settled, expected=base)
        packed = encode_msgpack(after.packed())
        size = len(packed)
        _check_size(before, after, size, is_repair=is_repair)
        if known is None and len(self._all) >= PRINCIPALS_MAX:
            self._forget_deleted(applied.now_ms)
        if known is None and len(self._all) >= PRINCIPALS_MAX:
            raise LimitReached(what="principals", actual=len(self._all), limit=PRINCIPALS_MAX)
        grown = size - (0 if known is None else len(known[2]))
        if grown > 0 and self._size_bytes + grown > PRINCIPALS_SIZE_MAX_BYTES and not _takes_away(before, after):
            actual = self._size_bytes + grown
            raise LimitReached(what="bytes of all principals", actual=actual, limit=PRINCIPALS_SIZE_MAX_BYTES)
        # Nothing is refused below this line.
        self.revision += 1
        self._keep(after, self.revision, packed)
        # The checksum puts the whole document into the digest that replicas compare.
        witness = {"size": self._size_bytes, "crc": crc32(packed)}
        return {"changed": True, "revision": self.revision, "version": after.settled, **witness}

    def _keep(self, document: PrincipalDocument, revision: int, packed: bytes) -> None:
        known = self._all.pop(document.name, None)
        self._size_bytes += len(packed) - (0 if known is None else len(known[2]))
        self._all[document.name] = (revision, document, packed)

    def _forget_deleted(self, now_ms: int) -> None:
        """Make room: drop principals that were deleted long ago."""
        for name, (_, document, packed) in list(self._all.items()):
            if not document.is_there and document.deleted_ms + DELETED_PRINCIPAL_KEPT_MS <= now_ms:
                del self._all[name]
                self._size_bytes -= len(packed)

    # Saving ---------------------------------------------------------------------------------------
    def pack(self) -> Any:
        """Return a frozen copy of MessagePack's types."""
        documents = [[revision, packed] for revision, _, packed in self._all.values()]
        return {"revision": self.revision, "principals": documents}

    def windows(self) -> int:
        """Return the number of windows, at least one."""
        return windows_of(self._all)

    def window(self, number: int) -> Any:
        """Return window *number*, of MessagePack's types."""
        rows = rows_of(self._all.values(), number)
        return [self.revision, [[revision, packed] for revision, _, packed in rows]]

    def unpack(self, packed: Any) -> None:
        """Restore the part from *packed*."""
        self.revision = packed["revision"]
        for revision, document in packed["principals"]:
            self._keep(read_principal_document(decode_msgpack(document)), revision, document)


def read_put(request: Mapping[str, Any]) -> tuple[PrincipalDocument, int, bool]:
    """Return the change, the version that it is based on (or ANY_VERSION), and `is_repair`.

    *is_repair*: the change repairs a group that lacks it. Raises InvalidField.
    """
    base, is_repair = request.get("base", ANY_VERSION), request.get("is_repair", False)
    if not is_whole(base, ANY_VERSION, (1 << 53) - 1) or not isinstance(is_repair, bool):
        raise InvalidField(reason="'base' is a version, 'is_repair' true or false", pointer="/base")
    return read_principal_document(request.get("document")), base, is_repair


def _check_size(before: PrincipalDocument, after: PrincipalDocument, size: int, *, is_repair: bool) -> None:
    keys_max = KEYS_KEPT_MAX if is_repair else KEYS_LIVE_MAX
    trouble: TernError | None = None
    if len(after.keys) > max(keys_max, len(before.keys)):
        trouble = LimitReached(what=f"Keys of '{after.name}'", actual=len(after.keys), limit=keys_max)
    elif len(after.revoked) > max(2 * REVOKED_KEPT_MAX, len(before.revoked)):
        what = f"Revoked keys of '{after.name}'"
        trouble = LimitReached(what=what, actual=len(after.revoked), limit=2 * REVOKED_KEPT_MAX)
    elif size > PRINCIPAL_SIZE_MAX_BYTES and not _takes_away(before, after):
        trouble = LimitReached(what=f"Bytes of '{after.name}'", actual=size, limit=PRINCIPAL_SIZE_MAX_BYTES)
    if trouble is not None:
        raise trouble


def _takes_away(before: PrincipalDocument, after: PrincipalDocument) -> bool:
    """Whether the change only revokes or deletes: it is never refused for lack of room."""
    return after.version == before.version and set(after.keys) <= set(before.keys)
