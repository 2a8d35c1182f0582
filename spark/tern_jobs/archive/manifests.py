"""Manifests: the ranges that each run added to an archive, and the chain of their hashes.

Law: manifest N holds the SHA-256 of the bytes of manifest N - 1. So the hash of the newest one
stands for the whole archive: whoever keeps it elsewhere sees any later change of the past.
"""

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from tern_jobs.archive.folder import ArchiveFolder
from tern_jobs.frame.outcome import JobFailed

VERSION = 1
_MANIFESTS, _PLANS = "manifests", "plans"
# Those that `archive` writes; `replay` keeps its state beside them.
ARCHIVE_FOLDERS = ("data", _MANIFESTS, _PLANS)


class PlannedRange(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets *start* to below *end* of a queue, for one task."""

    topic: str
    queue: str
    start: int
    end: int


class ArchivedRange(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets *start* to below *end* of a queue, of one day, in one file.

    *file* is empty for a range without rows. *checksum* is that of the rows (checksum.py), which
    the broker's records and the file's rows have alike; *file_sha256* is that of the file's bytes.
    """

    topic: str
    queue: str
    start: int
    end: int
    rows: int = 0
    # Sum of the records' sizes in the broker's log.
    stored_bytes: int = 0
    stored_min_ms: int = 0
    stored_max_ms: int = 0
    checksum: str = ""
    file: str = ""
    file_bytes: int = 0
    file_sha256: str = ""
    # True for offsets that were deleted at the broker before they were archived.
    is_skipped: bool = False


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The ranges of manifest *number*, written before any task begins.

    *created_ms*: when each topic was made.
    """

    number: int
    previous: str
    ranges: list[PlannedRange]
    created_ms: dict[str, int] = {}


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What one run added; *replaced* names the files of older manifests that no longer count.

    *created_ms*: when each topic of the run was made; earlier releases did not say.
    """

    version: int
    number: int
    previous: str
    made_ms: int
    ranges: list[ArchivedRange]
    replaced: list[str] = []
    created_ms: dict[str, int] = {}


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """All manifests in order, the hash of the newest (empty: none), and the faults of the chain."""

    manifests: list[Manifest]
    head: str
    faults: list[str]


def read_chain(folder: ArchiveFolder) -> Chain:
    """Return the manifests of an archive; what is wrong with them is in `faults`."""
    manifests: list[Manifest] = []
    faults: list[str] = []
    head, expected = "", 1
    for name in folder.names(_MANIFESTS):
        content = folder.read(f"{_MANIFESTS}/{name}")
        try:
            found = msgspec.json.decode(content, type=Manifest)
        except msgspec.DecodeError as error:
            faults.append(f"manifest {name}: not readable: {error}")
            head, expected = hashlib.sha256(content).hexdigest(), expected + 1
            continue
        if found.version != VERSION:
            faults.append(f"manifest {name}: version {found.version}; this release reads version {VERSION}")
        if name != f"{found.number:08}.json":
            faults.append(f"manifest {name}: calls itself number {found.number}")
        if found.number != expected:
            faults.append(f"manifest {expected:08}.json: absent, and {name} is there")
        if found.previous != head:
            faults.append(f"manifest {name}: the chain breaks: the one before it is not the one that it names")
        manifests.append(found)
        head, expected = hashlib.sha256(content).hexdigest(), found.number + 1
    return Chain(manifests=manifests, head=head, faults=faults)


def current_ranges(manifests: Iterable[Manifest]) -> list[ArchivedRange]:
    """Return the ranges of an archive as of its newest manifest, ordered by topic, queue, start."""
    live: dict[tuple[str, str, int, int, str], ArchivedRange] = {}
    for manifest in manifests:
        replaced = set(manifest.replaced)
        live = {key: found for key, found in live.items() if not found.file or found.file not in replaced}
        live |= {(found.topic, found.queue, found.start, found.end, found.file): found for found in manifest.ranges}
    return [live[key] for key in sorted(live)]


def known_topics(manifests: Iterable[Manifest]) -> dict[str, int]:
    """Return when each archived topic was made, as far as the manifests say."""
    known: dict[str, int] = {}
    for manifest in manifests:
        known |= manifest.created_ms
    return known


def next_offsets(ranges: Iterable[ArchivedRange]) -> dict[tuple[str, str], int]:
    """Return the offset behind the archived ones, by (topic, queue)."""
    ends: dict[tuple[str, str], int] = {}
    for found in ranges:
        at = (found.topic, found.queue)
        ends[at] = max(ends.get(at, 0), found.end)
    return ends


def archived_files(uri: str, topics: Sequence[str] = ()) -> list[str]:
    """Return the paths of the Parquet files of the archive at *uri*, below it; of *topics* only.

    ValueError when the chain of manifests is broken.
    """
    chain = read_chain(ArchiveFolder(uri))
    if chain.faults:
        raise ValueError("; ".join(chain.faults))
    ranges = current_ranges(chain.manifests)
    return [found.file for found in ranges if found.file and (not topics or found.topic in topics)]


def publish_manifest(folder: ArchiveFolder, manifest: Manifest, attempt: str) -> str:
    """Write *manifest* at once, and return its hash.

    JobFailed when its number is taken: another run was at work at the same time.
    """
    content = msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
    name = f"{manifest.number:08}.json"
    if name in folder.names(_MANIFESTS):
        raise JobFailed("Another run was faster", f"Manifest {name} is there. Run again, one run at a time.")
    folder.write(f"{_MANIFESTS}/{name}", content, attempt)
    return hashlib.sha256(content).hexdigest()


def read_plan(folder: ArchiveFolder, number: int) -> Plan | None:
    """Return the plan of manifest *number*, which a killed run has left; None if there is none."""
    try:
        return msgspec.json.decode(folder.read(_plan_path(number)), type=Plan)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise JobFailed("A plan is damaged", f"{error}. Remove {_plan_path(number)} and run again.") from error


def write_plan(folder: ArchiveFolder, plan: Plan, attempt: str) -> None:
    """Write *plan* before its tasks begin."""
    folder.write(_plan_path(plan.number), msgspec.json.encode(plan), attempt)


def drop_plans(folder: ArchiveFolder, up_to: int) -> None:
    """Remove the plans of manifests that are published: those up to number *up_to*."""
    for name in folder.names(_PLANS):
        if int(name.removesuffix(".json")) <= up_to:
            folder.delete(f"{_PLANS}/{name}")


def _plan_path(number: int) -> str:
    return f"{_PLANS}/{number:08}.json"
