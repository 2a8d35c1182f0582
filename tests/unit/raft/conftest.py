"""The virtual clock of a simulated group is taken out again after each test."""

import pytest

from tests.support.raft.raft_group import CLOCKS


@pytest.fixture(autouse=True)
def real_clock_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a RaftGroup installs is undone with this fixture."""
    for module, name in CLOCKS:
        monkeypatch.setattr(module, name, getattr(module, name))
