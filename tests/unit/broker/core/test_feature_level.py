"""The group's feature level: what the leader asks for and when, what the entry does, and who does not run any more."""

from dataclasses import dataclass, field

import pytest

from tern_broker.core import saving
from tern_broker.core.feature_level import LEVEL_MAX
from tern_broker.core.machine import StateMachine
from tern_broker.start_checks import require_new_enough
from tern_broker.upkeep.feature_level_upgrade import FeatureLevelUpgrade
from tern_store import StoreError
from tern_wire.errors import LinkBodyMalformed
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import GENESIS_VERSION, STATE_MACHINE_VERSION, CommandKind, entry_parts
from tern_wire.link.requests import Parts


def apply(state: StateMachine, *levels: object, version: int = GENESIS_VERSION) -> list[object]:
    """An entry with one RAISE each; its verdicts."""
    parts = entry_parts(1_000, [(CommandKind.RAISE, [encode_msgpack({"level": level})]) for level in levels])
    applied = state.apply(memoryview(b"".join(parts)), 0, 7, version=version)
    assert applied.version == version
    return list(applied.verdicts)


@dataclass
class Group:
    """A raft as the upgrade sees it; a proposal is applied when `commit` is called."""

    is_serving: bool = True
    is_yielding: bool = False
    applied_index: int = 10
    common_version: int = 1
    state: StateMachine = field(default_factory=StateMachine)
    proposed: list[bytes] = field(default_factory=list)
    is_full: bool = False

    def __post_init__(self) -> None:
        self.level_upgrade = FeatureLevelUpgrade(
            self, level=lambda: self.state.feature_level.level, now_ms=lambda: 5, propose=self._propose
        )

    def _propose(self, parts: Parts, urgent: bool) -> tuple[int, int]:
        assert urgent, "it stores nothing, and a full disk must not keep a group at its old level"
        if self.is_full:
            raise OSError(28, "No space left on device")
        self.proposed.append(b"".join(parts))
        return self.applied_index + 1, 1

    def commit(self) -> None:
        """Apply what was proposed last."""
        self.applied_index += 1
        self.state.apply(memoryview(self.proposed[-1]), 0, self.applied_index)


def test_the_level_begins_with_the_first_version_and_never_sinks() -> None:
    """A second leader may ask for what is there, or for less."""
    state = StateMachine()
    assert state.feature_level.level == GENESIS_VERSION == 1
    assert apply(state, 3, 2, 3) == [{"level": 3}, {"level": 3}, {"level": 3}]
    assert apply(state, LEVEL_MAX, version=3) == [{"level": LEVEL_MAX}]


@pytest.mark.parametrize("level", [0, -1, LEVEL_MAX + 1, True, "2", 2.0, None])
def test_a_level_that_is_none_changes_nothing(level: object) -> None:
    """It does not fit into the header of an entry, or is no number."""
    state = StateMachine()
    (verdict,) = apply(state, level)
    assert isinstance(verdict, LinkBodyMalformed)
    assert state.feature_level.level == GENESIS_VERSION


def test_the_level_is_saved() -> None:
    """A restart, a copy and a trimmed log have it; a state of before it existed is of the first level."""
    state = StateMachine()
    apply(state, 4)
    payload = b"".join(saving.encode(saving.take(state)))
    assert saving.load(payload).feature_level.level == 4
    snapshot = saving.take(StateMachine())
    snapshot.facts["format"] = 10
    del snapshot.facts["parts"]["feature_level"]
    assert saving.load(b"".join(saving.encode(snapshot))).feature_level.level == GENESIS_VERSION


def test_the_leader_raises_once_when_all_members_know_more() -> None:
    """Not while it does not serve, hands over, or has asked already; again, if there is more to know later."""
    group = Group(is_serving=False, common_version=2)
    group.level_upgrade.step()
    group.is_serving, group.is_yielding = True, True
    group.level_upgrade.step()
    group.is_yielding = False
    for unknown in (0, 1):
        group.common_version = unknown
        group.level_upgrade.step()
    assert group.proposed == []
    group.common_version = 2
    group.level_upgrade.step()
    group.level_upgrade.step()
    assert len(group.proposed) == 1
    group.commit()
    group.level_upgrade.step()
    assert (group.state.feature_level.level, len(group.proposed)) == (2, 1)
    group.common_version = 3
    group.level_upgrade.step()
    group.commit()
    assert (group.state.feature_level.level, len(group.proposed)) == (3, 2)


def test_what_was_asked_for_and_lost_is_asked_for_again() -> None:
    """Another leader's entry came in its place; or the disk had no room."""
    group = Group(common_version=2, is_full=True)
    group.level_upgrade.step()
    group.is_full = False
    group.level_upgrade.step()
    group.applied_index += 1  # somebody else's entry
    group.level_upgrade.step()
    assert len(group.proposed) == 2


def test_a_release_that_knows_less_than_the_group_does_not_run() -> None:
    """The text names what to start instead."""
    require_new_enough(STATE_MACHINE_VERSION, STATE_MACHINE_VERSION)
    with pytest.raises(StoreError, match=r"this release knows 1\. Start this node with the release"):
        require_new_enough(2, 1)


def test_a_saved_state_that_is_no_state_of_ours_is_not_known() -> None:
    """Another release may lay it out in another way altogether."""
    known = b"".join(saving.encode(saving.take(StateMachine())))
    assert saving.is_known(known)
    for other in (b"", b"\x01", b"\xff" * 40, known[:9], encode_msgpack({"format": 10}), (9).to_bytes(4, "little")):
        assert not saving.is_known(other)
    for facts in ([1], {}, {"format": [1]}, {"format": 1 << 40}):
        packed = encode_msgpack(facts)
        assert not saving.is_known(len(packed).to_bytes(4, "little") + packed)


def test_a_raise_that_was_lost_with_its_leader_is_asked_for_again() -> None:
    """Whatever is behind it in the log: an idle group never comes to the place where it was written."""
    group = Group(common_version=2)
    group.level_upgrade.step()
    group.level_upgrade.step()
    assert len(group.proposed) == 1
    group.is_serving = False
    group.level_upgrade.step()
    group.is_serving = True
    group.level_upgrade.step()
    assert len(group.proposed) == 2
    group.commit()
    group.level_upgrade.step()
    assert (group.state.feature_level.level, len(group.proposed)) == (2, 2)
