"""Which file of tests made which topic of a mesh that many files share: two that meet in one name fail in some orders only, so they fail at once."""

import os
import re
from collections.abc import Mapping

from tern_wire.paths import HEADER_NAMESPACE

# What makes a topic: its declaration, or a first message.
_MAKES = re.compile(r"(?:PUT /v1/topics/([^/?]+)|POST /v1/topics/([^/?]+)/messages(?:/batch)?)(?:\?.*)?")


class ClaimedNames:
    """Owner of the names of one mesh. A session's own set-up has no file and claims nothing."""

    def __init__(self) -> None:
        self._file_of: dict[tuple[str, str], str] = {}

    def claim(self, method: str, path: str, headers: Mapping[str, str]) -> None:
        """AssertionError when *path* makes a topic that a test of another file has made."""
        made = _MAKES.fullmatch(f"{method} {path}")
        file = os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[0]
        if made is None or not file:
            return
        name = (headers.get(HEADER_NAMESPACE, ""), made[1] or made[2])
        owner = self._file_of.setdefault(name, file)
        assert owner == file, f"the topic {name[1]!r} is {owner}'s: choose another name"
