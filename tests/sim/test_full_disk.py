"""A group whose disks are full again and again drops nothing that is unread: the law of `kept_unread.py`, and that it sees who breaks it."""

from collections.abc import Iterator

import pytest

from tern_broker.core.applied import Applied
from tern_broker.engine import Engine
from tests.sim.planted.__main__ import convict
from tests.sim.planted.planting import changed, quiet
from tests.sim.seed_run import run_seed
from tests.sim.swarm import short_of_room


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    """Simulated nodes die by the dozen."""
    with quiet():
        yield


def test_a_full_disk_drops_nothing_unread_and_the_group_goes_on() -> None:
    """Sends are refused meanwhile, some of what is read goes, and at the end everything is read."""
    trims = 0
    original = Engine._apply_retention

    def counted(self: Engine, entry: object, applied: Applied) -> None:
        nonlocal trims
        trims += applied.trim is not None and applied.trim.index > 0
        original(self, entry, applied)  # type: ignore[arg-type]

    with changed((Engine, "_apply_retention", counted)):
        for seed in range(1, 9):
            result = run_seed(seed, swarm=short_of_room(seed))
            assert result.is_good, f"seed {seed}: {result.violations[:3]} {result.stuck}"
            print(f"seed {seed}: {result.faults}, {trims} trims so far")
            if trims and seed > 1:
                break
    assert trims, "nothing went at all: this shows nothing"


def test_a_disk_that_makes_room_with_unread_messages_is_convicted() -> None:
    """As it was: the oldest segment goes, whoever has yet to read it."""
    trial = convict("room_takes_unread", seeds=6)
    assert trial.by[:1] == ("unread",), trial
