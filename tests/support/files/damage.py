"""Damage to files at rest, by seed, and what a store makes of it: bits flip, pages turn zero, files are cut or gone.

Law: damage is only done to bytes that the store wrote and still counts on; what lies behind the end of a log, or behind what a saved
state counts, is space. `outcome` looks at everything that a reader could see, and at what the store's own verification says.
"""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tern_store import DerivedDamage, LogRot, StoreError
from tests.support.files.faulty_files import FaultyFiles
from tests.support.files.store_node import DIRECTORY, Node
from tests.support.files.store_run import Promise, StoreRun, examine

PAGE_SIZES_BYTES = (512, 4096)
KINDS = ("flip", "zero", "cut", "delete")


@dataclass(frozen=True, slots=True)
class Damage:
    """One wound: *size* bytes at *at* of a file (for a cut: what is left of it)."""

    kind: str
    path: Path
    at: int
    size: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of it: *word* is "quarantined", "refused", "rebuilt", "older state" or "unseen"; *text* what was said."""

    word: str
    text: str = ""


def damage_to(files: FaultyFiles, paths: list[Path], kind: str, seed: str) -> Damage | None:
    """Damage of *kind* to the used bytes of one of *paths*, both chosen by *seed*; None if that file has none."""
    rng = random.Random(seed)
    path = rng.choice(paths)
    content = files.content(path)
    used = len(content.rstrip(b"\0"))
    if kind == "delete":
        return Damage(kind, path, 0, 0)
    if not used:
        return None
    if kind == "flip":
        return Damage(kind, path, rng.randrange(used), 1)
    if kind == "cut":
        return Damage(kind, path, rng.randrange(used), 0)
    size = rng.choice(PAGE_SIZES_BYTES)
    pages = [at for at in range(0, used, size) if any(content[at : at + size])]
    return Damage(kind, path, rng.choice(pages), size)


def inflict(files: FaultyFiles, damage: Damage, rng: random.Random) -> None:
    """Do it, on the platter."""
    if damage.kind == "delete":
        files.lose(damage.path)
        return
    content = files.content(damage.path)
    if damage.kind == "flip":
        content[damage.at] ^= 1 << rng.randrange(8)
    elif damage.kind == "cut":
        del content[damage.at :]
    else:
        stop = min(damage.at + damage.size, len(content))
        content[damage.at : stop] = bytes(stop - damage.at)


def outcome(files: FaultyFiles, run: StoreRun, promise: Promise) -> Outcome:
    """Start a node on damaged *files*, read everything, verify; start it again as its supervisor would.

    AssertionError if anything is served that is not what was promised.
    """
    try:
        node = Node(files, run.limits, group=run.group)
    except LogRot as rot:
        _require_quarantine(files, run)
        return Outcome("quarantined", str(rot))
    except StoreError as refused:
        return Outcome("refused", str(refused))
    found = _look(node, run, promise)
    if found is None and node.store.rebuilding:
        found = Outcome("rebuilt", node.store.rebuilding)
    if found is None and node.state_index < promise.state_index:
        found = Outcome("older state")
    return found or Outcome("unseen")


def _look(node: Node, run: StoreRun, promise: Promise) -> Outcome | None:
    """What a node that started finds out when all of it is read, and what it does about it."""
    damage = next(
        (found for look in (_read_all(run, promise), _verify) if (found := look(node)) is not None),
        None,
    )
    if damage is None:
        return None
    node.store.note_damage(damage)
    node.close()
    if isinstance(damage, LogRot):
        _require_quarantine(node.files, run)
        return Outcome("quarantined", str(damage))
    again = Node(node.files, run.limits)
    assert again.store.rebuilding, "the note of damage was forgotten"
    examine(again, run, promise, is_damaged=True)
    assert _verify(again) is None, "what was made again is damaged"
    return Outcome("rebuilt", str(damage))


Look = Callable[[Node], LogRot | DerivedDamage | None]


def _read_all(run: StoreRun, promise: Promise) -> Look:
    def look(node: Node) -> LogRot | DerivedDamage | None:
        try:
            examine(node, run, promise, is_damaged=True)
        except (LogRot, DerivedDamage) as damage:
            return damage
        return None

    return look


def _verify(node: Node) -> LogRot | DerivedDamage | None:
    return next((found for found in node.store.verify() if isinstance(found, LogRot | DerivedDamage)), None)


def _require_quarantine(files: FaultyFiles, run: StoreRun) -> None:
    try:
        Node(files, run.limits, group=run.group)
    except LogRot:
        return
    raise AssertionError("a node whose log was found damaged starts again")


def kind_of(path: Path) -> str:
    """The kind of a node's file: `queue rows`, `segment`, ..."""
    place = str(path.relative_to(DIRECTORY))
    return next(kind for pattern, kind in _KINDS if re.fullmatch(pattern, place))


_KINDS = [
    (r"commitlog/\d{20}", "segment"),
    (r"commitlog/start", "log start"),
    (r"commitlog/(spare|reserve|new|start\.new)", "spare"),
    (r"entryindex/\d{20}", "entry index"),
    (r"consumequeue/\d+/\d+/\d{20}", "queue rows"),
    (r"consumequeue/\d+/\d+/\d{20}\.crc", "queue checks"),
    (r"consumequeue/\d+/\d+/times/\d{20}", "times"),
    (r"consumequeue/\d+/\d+/times/\d{20}\.crc", "times checks"),
    (r"index/\d{20}", "index"),
    (r"index/\d{20}\.crc", "index checks"),
    (r"timers/\d+/\d{20}", "timers"),
    (r"timers/\d+/\d{20}\.crc", "timers checks"),
    (r"sentkeys/keys-\d{20}\.bin", "sent keys"),
    (r"state/state-\d{20}\.bin", "state"),
    (r"state/segment-\d{20}-\d+\.bin", "boundary state"),
    (r"votes", "votes"),
    (r"abort|checkpoint|lock|.*\.new|state/new", "small"),
]


def files_by_kind(files: FaultyFiles) -> dict[str, list[Path]]:
    """Every file of a node, by its kind."""
    found: dict[str, list[Path]] = {}
    for path in files.paths(DIRECTORY):
        found.setdefault(kind_of(path), []).append(path)
    return found
