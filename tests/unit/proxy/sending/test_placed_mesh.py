"""Topics come to be and move while two proxies send to them, of which each sees what it sees; and faults that are planted there.

Laws (tests/support/proxy/placed_brokers.py): one key, one stored message; one message group, one order. A failure names its seed: `run(seed)` does
the same again.
"""

import asyncio
from collections.abc import Callable, Container, Sequence
from typing import Any

import pytest

from tern_broker.core.sending.placing import Placing
from tern_proxy.core.sending import owners as owners_module
from tern_proxy.core.sending import topic as topic_module
from tern_proxy.core.sending.owners import owner_or_refuse
from tern_proxy.core.topics import topic_route
from tern_proxy.core.transactions import begins as transactions_module
from tern_proxy.proxy import Proxy
from tern_proxy.routes.messages import first_use
from tern_proxy.routes.topics import topic_places
from tern_wire.errors import OwnerUnknown, PlacementChanged
from tern_wire.link.rows import FLAG_SENT_ON
from tern_wire.link.topics import ChangeTopic
from tern_wire.routing.placement import Placement, owners
from tern_wire.settings.topic_settings import DECLARE
from tests.support.campaigns import campaign, cases
from tests.support.proxy.placed_story import NAMES, run

SEEDS = range(1, cases(9, 4))
# A planted fault is found by one of so many seeds, from the one on that found it when this was written.
CONVICTING = 40


@campaign
@pytest.mark.parametrize("seed", SEEDS)
def test_one_key_is_one_stored_message_and_one_message_group_one_order(seed: int) -> None:
    """Whatever the seed brings; and it brings enough."""
    story = run(seed)
    assert not story.told.faults, f"seed {seed}: {story.told.faults[:5]}"
    assert story.told.stored > 300
    assert story.told.delivered > 50


# Planted faults ---------------------------------------------------------------------------------------------------
def _guess_owner(topic: str, placement: Placement, hosts: Container[str], slot: int, moved_from: str = "") -> str:
    """Whoever is in sight is asked: when the owner of before is not, the next one."""
    if placement.is_moving:
        before = owners(placement.before)[slot]
        if before != moved_from and before in hosts:
            return before
    owner = owners(placement.groups)[slot]
    if owner == moved_from or owner not in hosts:
        raise PlacementChanged(topic=topic)
    return owner


async def _create_everywhere(proxy: Proxy, topic: str, names: list[str], check_new: Callable[[str], None]) -> None:
    """At once, with no placement; then placed."""
    asked = ChangeTopic(topic=topic, mode=DECLARE)
    up = [name for name in names if proxy.groups[name].link.has_leader]
    found = await asyncio.gather(*(proxy.groups[name].link.ask(asked, is_repeatable=True) for name in up))
    for name, (created, _) in zip(up, found, strict=True):
        proxy.cache.insert(topic, name, topic_route(created))
    await topic_places._place_where_it_is(proxy, topic)


def _choose_of_those_in_sight(
    placed: Sequence[owners_module.Placed], slot: int, moved_from: str = ""
) -> tuple[str, bool]:
    """A key of several topics goes to one of those that host them all as far as this proxy sees."""
    names = tuple(name for name in NAMES if all(name in hosts for _, _, hosts in placed))
    try:
        owner = owner_or_refuse(*placed[0], slot, moved_from)
    except OwnerUnknown:
        owner = ""
    return (owner, False) if owner in names else (owners(names)[slot], True)


def _own_by_groups_alone(self: Placing, topic: Any, rows: Any, own: Any) -> Any:
    """The next owner takes whatever comes."""
    rows = rows.copy()
    rows["flags"][own] |= FLAG_SENT_ON
    return _AWAY(self, topic, rows, own)


_AWAY = Placing.away
PLANTED: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "an owner of before that is not in sight is passed over": lambda patch: (
        patch.setattr(topic_module, "owner_or_refuse", _guess_owner),
        patch.setattr(owners_module, "owner_or_refuse", _guess_owner),
    )[0],
    "a topic is created everywhere at once, without a placement": lambda patch: patch.setattr(
        first_use, "create_topic_at_first_use", _create_everywhere
    ),
    "a move ends a window after its begin": lambda patch: patch.setattr(Placing, "stored", lambda *_: None),
    "a transaction goes to whoever hosts all its topics": lambda patch: patch.setattr(
        transactions_module, "owner_of_several", _choose_of_those_in_sight
    ),
    "the next owner takes what nobody has sent on": lambda patch: patch.setattr(Placing, "away", _own_by_groups_alone),
}


@pytest.mark.parametrize(("fault", "first"), list(zip(PLANTED, (16, 4, 10, 2, 1), strict=True)))
def test_a_planted_fault_is_convicted(fault: str, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one of a few dozen seeds; the run without it is clean with all of them."""
    PLANTED[fault](monkeypatch)
    seeds = range(first, first + CONVICTING)
    assert any(run(seed).told.faults for seed in seeds), f"nobody has noticed: {fault}"
