"""The plan of a replay, made once and kept until it is done, and the note of what is published.

Law: the rows of batch N follow from the plan alone. Whoever runs N again stages the same rows, and
a broker group publishes N once.
"""

import hashlib

import msgspec

from tern_jobs.archive.folder import ArchiveFolder
from tern_jobs.frame.outcome import JobFailed

VERSION = 1
UNKNOWN_ROWS = -1
_FOLDER = "replays"


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller asked for. Two runs with equal choices are one replay.

    *archive*: its URI; "": the topics themselves, at their brokers. *since_ms*, *until_ms*: store
    times, until exclusive; 0: no limit. *selection*: the filter as `tern_spark` has it.
    """

    to: str
    archive: str
    topics: list[str]
    since_ms: int
    until_ms: int
    selection: list[tuple[str, str]]
    tells_origin: bool

    @property
    def id(self) -> str:
        """A name of this choice, for files."""
        digest = hashlib.blake2b(msgspec.json.encode(self), digest_size=8).hexdigest()
        return f"{self.to}-{digest}"


class ReplayedQueue(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets *start* to below *end* of a queue."""

    topic: str
    queue: str
    start: int
    end: int


class ReplayPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The ranges of a replay in a number of *batches*. *query* publishes them.

    *created_ms*: when each topic was made, for a replay without an archive. *rows*: how many there
    are, where nothing is left out of an archive.
    """

    version: int
    query: str
    made_ms: int
    choice: Choice
    created_ms: dict[str, int]
    queues: list[ReplayedQueue]
    batches: int
    rows: int = UNKNOWN_ROWS


class ReplayNote(msgspec.Struct, frozen=True, kw_only=True):
    """Batches that are published, and the rows of all of them. *at_ms*: of the last one."""

    batches: int = 0
    rows: int = 0
    at_ms: int = 0


class ReplayState:
    """The files of one replay. Owner: the job that runs it."""

    def __init__(self, folder: ArchiveFolder, choice: Choice, attempt: str) -> None:
        """*attempt*: an id of this run."""
        self._folder, self._attempt = folder, attempt
        self._plan, self._note = (f"{_FOLDER}/{choice.id}.{kind}.json" for kind in ("plan", "note"))

    def plan(self) -> ReplayPlan | None:
        """Return the plan of an earlier run; None if there is none."""
        try:
            found = msgspec.json.decode(self._folder.read(self._plan), type=ReplayPlan)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise JobFailed("A plan is damaged", f"{error}. Remove {self._plan} to begin anew.") from error
        if found.version != VERSION:
            raise JobFailed(
                "A plan of another release",
                f"{self._plan} has version {found.version}; this release reads version {VERSION}.",
            )
        return found

    def note(self) -> ReplayNote:
        """Return what is known to be published."""
        try:
            return msgspec.json.decode(self._folder.read(self._note), type=ReplayNote)
        except FileNotFoundError:
            return ReplayNote()
        except msgspec.DecodeError as error:
            raise JobFailed(
                "A note is damaged", f"{error}. Remove {self._note}: what is published stays so, and is counted anew."
            ) from error

    def begin(self, plan: ReplayPlan) -> None:
        """Keep *plan*, in the place of an earlier one. Its note is written first: a plan never
        meets the note of another.
        """
        self.keep(ReplayNote())
        self._write(self._plan, plan)

    def keep(self, note: ReplayNote) -> None:
        """Keep *note*."""
        self._write(self._note, note)

    def _write(self, path: str, what: ReplayPlan | ReplayNote) -> None:
        self._folder.write(path, msgspec.json.format(msgspec.json.encode(what), indent=1) + b"\n", self._attempt)
