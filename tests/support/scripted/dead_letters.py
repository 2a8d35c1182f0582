"""What a scripted broker answers about dead letters: those that were rejected are there at once, tasks are done when they begin."""

from collections.abc import Callable
from typing import Any

from tern_wire.dead_letters import DONE, Selection
from tern_wire.errors import GroupNotFound
from tern_wire.link.requests import RequestCode

Answer = tuple[dict[str, Any], bytes]


class ScriptedDeadLetters:
    """DEAD_LETTERS, PURGE, REDRIVE. *letters*: rows as of a DEAD_LETTERS reply, and the records behind them."""

    def __init__(self, groups: dict[str, int]) -> None:
        self._groups = groups
        self.letters: list[tuple[list[Any], bytes]] = []
        self.started: list[dict[str, Any]] = []

    def handlers(self) -> dict[RequestCode, Callable[[dict[str, Any], memoryview], Answer]]:
        """By request."""
        return {
            RequestCode.DEAD_LETTERS: self._browse,
            RequestCode.PURGE: self._purge,
            RequestCode.REDRIVE: self._redrive,
        }

    def _check(self, head: dict[str, Any]) -> None:
        if head["group"] not in self._groups:
            raise GroupNotFound(group=head["group"])

    def _browse(self, head: dict[str, Any], _: memoryview) -> Answer:
        self._check(head)
        found = self.letters[head["offset"] : head["offset"] + head["count"]]
        end = head["offset"] + len(found)
        rows = [row for row, _ in found]
        reply = {"letters": rows, "next": end if end < len(self.letters) else -1, "count": len(self.letters)}
        return reply, b"".join(record for _, record in found)

    def _purge(self, head: dict[str, Any], _: memoryview) -> Answer:
        self._check(head)
        count = len(self.letters)
        self.letters.clear()
        return {"purged": count}, b""

    def _redrive(self, head: dict[str, Any], _: memoryview) -> Answer:
        if head["op"] == "start":
            self._check(head)
            self.started.append(head)
        count = len(self.letters)
        task = {
            "task_id": head["task"],
            "group_id": 1,
            "group": head.get("group", "billing"),
            "selection": head.get("selection", Selection().pack()),
            "rate": head.get("rate", 0),
            "state": DONE,
            "dry_run": head.get("dry_run", False),
            "begin": 0,
            "end": count,
            "next": count,
            "redriven": count,
            "skipped": 0,
            "failed": 0,
            "failures": [],
            "started_ms": 5,
            "finished_ms": 6,
        }
        return task, b""
