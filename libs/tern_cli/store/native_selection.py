"""Selection of the contents of a data directory that `ternmq store dump` shows.

The selection comes from options, or from the paths of files.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from tern_cli.failures import CommandFailed

_POSITION_MAX = (1 << 63) - 1
_ENTRY_SIZE_BYTES, _ENTRIES_PER_FILE = 20, 300_000


class What(StrEnum):
    """Parts of a data directory that can be shown."""

    ENTRIES = "entries"
    RECORDS = "records"
    QUEUES = "queues"
    INDEX = "index"
    TIMERS = "timers"
    STATE = "state"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Filter of one dump.
    *topic* is a name or an id. The unit of *first* depends on the part. *begin* and *stop* are
    positions of the log.
    """

    what: What
    topic: str | None = None
    queue: int | None = None
    first: int | None = None
    count: int | None = None
    begin: int = 0
    stop: int = _POSITION_MAX
    file: str | None = None
    bodies: bool = False

    def wants_topic(self, topic_id: int, name: str) -> bool:
        """Return whether messages of this topic are selected."""
        return self.topic is None or self.topic in {name, str(topic_id)}

    def wants_queue(self, queue: int) -> bool:
        """Return whether messages of this queue are selected."""
        return self.queue is None or self.queue == queue


def select(
    paths: list[Path], data_dir: Path | None, wanted: Selection | None, base: Selection
) -> tuple[Path, list[Selection]]:
    """Return the data directory and its selections: one per file in *paths*, or one for all of it.
    *wanted*: the selection of --what; *base* has the other options. CommandFailed (exit 2) if the
    options and paths contradict each other.
    """
    if not paths:
        if data_dir is None:
            raise CommandFailed(
                "Nothing to show", "Use --data-dir, such as .tern/data/broker-a-0, or name files.", exit_code=2
            )
        return data_dir, [wanted or base]
    if len(paths) == 1 and data_dir is None and (paths[0] / "commitlog").is_dir():
        return paths[0], [wanted or base]
    found = [_of_file(path, wanted, base) for path in paths]
    directories = {directory for directory, _ in found} | ({data_dir.absolute()} if data_dir is not None else set())
    if len(directories) > 1:
        raise CommandFailed("Files of several nodes", "Show one data directory at a time.", exit_code=2)
    return directories.pop(), [selection for _, selection in found]


def _of_file(path: Path, wanted: Selection | None, base: Selection) -> tuple[Path, Selection]:
    """Return the data directory of a file, and the selection of the file's contents.
    Files are `commitlog/FILE`, `consumequeue/ID/QUEUE/FILE`, `index/FILE`, `state/FILE`.
    """
    whole = path.absolute()
    parts, name = whole.parts, whole.name
    if not whole.is_file():
        raise CommandFailed("The file cannot be read", f"{path}: there is no such file.", exit_code=2)
    numbered = len(name) == 20 and name.isascii() and name.isdecimal()
    if numbered and parts[-2] == "commitlog":
        what = wanted.what if wanted is not None and wanted.what is What.RECORDS else What.ENTRIES
        begin = int(name)
        return whole.parents[1], replace(base, what=what, begin=begin, stop=begin + whole.stat().st_size)
    if numbered and parts[-4:-3] == ("consumequeue",):
        first = int(name) // _ENTRY_SIZE_BYTES
        place = {"topic": parts[-3], "queue": int(parts[-2])}
        return whole.parents[3], replace(base, what=What.QUEUES, first=first, count=_ENTRIES_PER_FILE, **place)  # type: ignore[arg-type]
    if numbered and parts[-2] == "index":
        return whole.parents[1], replace(base, what=What.INDEX, file=name)
    if parts[-2] == "state":
        return whole.parents[1], replace(base, what=What.STATE, file=name)
    detail = f"{path} is no file of commitlog/, consumequeue/, index/ or state/. For RocketMQ's files, use --format rocketmq."
    raise CommandFailed("Not a file of a node", detail, exit_code=2)
