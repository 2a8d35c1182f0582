"""Checkers over groups and reads: leases, acks, committed offsets, stale answers. Good histories pass, each kind of bad one does not."""

from collections.abc import Callable

import pytest

from tern_wire.link.rows import EXTEND, LEASE_OVER, RELEASE
from tests.sim.checkers import leases, offsets, redelivery, stale_reads
from tests.sim.history.history import Receive, Seek
from tests.unit.sim.stories import GROUP, INVISIBLE_MS, TOPIC, Story, message

Tale = Callable[[Story], object]


def begun() -> Story:
    """Two messages, one of them received at 100 and held until 1,100."""
    story = Story()
    story.sends(message("p0.1"), 0)
    story.sends(message("p0.2"), 1)
    story.receives(0, 1, 100)
    return story


# Leases -----------------------------------------------------------------------------------------------------------
def over(story: Story) -> None:
    """The next one, exactly at its end."""
    story.receives(0, 2, 1_100, attempt=2)


def released(story: Story) -> None:
    """Given back."""
    story.settles(0, 1, RELEASE)
    story.receives(0, 2, 200)


def perhaps_released(story: Story) -> None:
    """Perhaps given back, nobody knows."""
    story.info(story.begin(story.settling(0, 1, RELEASE)))
    story.receives(0, 2, 200)


def sought(story: Story) -> None:
    """A seek forgets leases."""
    story.commits(0)
    story.receives(0, 2, 200)


def perhaps_sought(story: Story) -> None:
    """Even if nobody knows whether it happened."""
    story.info(story.begin(story.commit(0)))
    story.receives(0, 2, 200)


def perhaps_sought_anywhere(story: Story) -> None:
    """A seek of unknown outcome says not even where it may have led."""
    story.info(story.begin(Seek(GROUP, TOPIC, "shift", -1)))
    story.receives(0, 2, 200)


def extended(story: Story) -> None:
    """Until 1,200 at least, then given again."""
    story.receives(1, 2, 400, name="p0.2")  # the group's time is 400 now
    story.settles(0, 1, EXTEND, 800)
    story.receives(0, 3, 1_200, attempt=2)


def shortened(story: Story) -> None:
    """An extension by less ends the lease sooner."""
    story.settles(0, 1, EXTEND, 100)
    story.receives(0, 2, 200, attempt=2)


def perhaps_shortened(story: Story) -> None:
    """And if nobody knows, it may have."""
    story.info(story.begin(story.settling(0, 1, EXTEND, 100)))
    story.receives(0, 2, 200, attempt=2)


def refused_in_time(story: Story) -> None:
    """A late ack is refused, and a later lease shows that it was late."""
    story.settles(0, 1, status=LEASE_OVER)
    story.receives(0, 2, 1_150, attempt=2)


@pytest.mark.parametrize(
    "tell",
    [
        *(over, released, perhaps_released, sought, perhaps_sought, perhaps_sought_anywhere, extended),
        *(shortened, perhaps_shortened, refused_in_time),
    ],
)
def test_a_lease_that_was_over_may_be_followed_by_another(tell: Tale) -> None:
    """All that ends a lease, also when only perhaps."""
    story = begun()
    tell(story)
    assert leases.check(story.history, story.end()) == []


def too_early(story: Story) -> None:
    """One millisecond before its end."""
    story.receives(0, 2, 1_099, attempt=2)


def in_spite_of_an_extension(story: Story) -> None:
    """It was extended to 400 + 800 at least."""
    story.receives(1, 2, 400, name="p0.2")
    story.settles(0, 1, EXTEND, 800)
    story.receives(0, 3, 1_150, attempt=2)


def released_afterwards(story: Story) -> None:
    """A release that came after the second holder excuses nothing."""
    story.receives(0, 2, 200, attempt=2)
    story.settles(0, 1, RELEASE)


def sought_before(story: Story) -> None:
    """A seek that was over before the lease excuses nothing."""
    story.commits(0)
    story.receives(0, 3, 150)
    story.receives(0, 4, 200, attempt=2)


def one_id_twice(story: Story) -> None:
    """Two receives got one lease."""
    story.receives(1, 1, 100, name="p0.2")


def time_falls(story: Story) -> None:
    """A later lease of an earlier time."""
    story.receives(1, 2, 50, name="p0.2")


def ids_fall(story: Story) -> None:
    """A lease that was asked for later has a lower id."""
    story.receives(1, 7, 100, name="p0.2")
    story.receives(1, 5, 100, name="p0.2")


def refused_too_early(story: Story) -> None:
    """An ack is refused at 200 at the latest, as the next lease of anything shows."""
    story.settles(0, 1, status=LEASE_OVER)
    story.receives(1, 2, 200, name="p0.2")


@pytest.mark.parametrize(
    "tell",
    [
        *(too_early, in_spite_of_an_extension, released_afterwards, sought_before, one_id_twice),
        *(time_falls, ids_fall, refused_too_early),
    ],
)
def test_two_holders_or_a_lease_that_was_none(tell: Tale) -> None:
    """Everything that a lease promises, broken once."""
    story = begun()
    tell(story)
    assert leases.check(story.history, story.end())


# Redelivery -------------------------------------------------------------------------------------------------------
def asked_for_before(story: Story) -> None:
    """A receive that was under way when the ack was answered."""
    operation = story.begin(Receive(GROUP, TOPIC, 1, INVISIBLE_MS), "c1")
    story.settles(0, 1)
    other = story.receives(0, 2, 1_100)
    story.history.operations.remove(other)
    story.ok(operation, other.answer)


def not_acked_in_time(story: Story) -> None:
    """The ack was refused."""
    story.settles(0, 1, status=LEASE_OVER)
    story.receives(0, 2, 1_200)


def sought_back(story: Story) -> None:
    """A seek to it after the ack."""
    story.settles(0, 1)
    story.commits(0)
    story.receives(0, 2, 200)


def sought_back_by_a_shift(story: Story) -> None:
    """A seek says where it led."""
    story.settles(0, 1)
    story.seeks("shift", -1, before=1, after=0)
    story.receives(0, 2, 200)


def perhaps_sought_back(story: Story) -> None:
    """An older commit of unknown outcome may still come."""
    story.info(story.begin(story.commit(0)))
    story.settles(0, 1)
    story.receives(0, 2, 200)


@pytest.mark.parametrize(
    "tell", [asked_for_before, not_acked_in_time, sought_back, sought_back_by_a_shift, perhaps_sought_back]
)
def test_a_message_may_come_again_when_something_asked_for_it(tell: Tale) -> None:
    """What excuses a redelivery."""
    story = begun()
    tell(story)
    assert redelivery.check(story.history, story.end()) == []


def again(story: Story) -> None:
    """Just so."""
    story.settles(0, 1)
    story.receives(0, 2, 5_000)


def sought_forward(story: Story) -> None:
    """A seek beyond it excuses nothing."""
    story.settles(0, 1)
    story.commits(1)
    story.receives(0, 2, 5_000)


def sought_back_before(story: Story) -> None:
    """A seek that was over before the ack excuses nothing."""
    story.commits(0)
    story.receives(0, 2, 5_000)
    story.settles(0, 2)
    story.receives(0, 3, 9_000)


def sought_forward_by_a_shift(story: Story) -> None:
    """Nor does a seek that says so."""
    story.settles(0, 1)
    story.seeks("shift", 1, before=1, after=2)
    story.receives(0, 2, 5_000)


@pytest.mark.parametrize("tell", [again, sought_forward, sought_forward_by_a_shift, sought_back_before])
def test_a_message_that_was_acked_comes_again(tell: Tale) -> None:
    """An ok ack is for good."""
    story = begun()
    tell(story)
    assert redelivery.check(story.history, story.end())


# Committed offsets ------------------------------------------------------------------------------------------------
def acked(*acks: int) -> Story:
    """Messages 0 to 3, of which *acks* were received and acked."""
    story = Story()
    for offset in range(4):
        story.sends(message(f"p0.{offset + 1}"), offset)
    for offset in acks:
        story.receives(offset, offset + 1, 100, name=f"p0.{offset + 1}")
        story.settles(offset, offset + 1)
    return story


def test_offsets_that_move_as_they_were_moved_are_left_alone() -> None:
    """Acks, seeks forward and back, swaps, a commit of unknown outcome that comes late."""
    story = acked(0, 1)
    story.looks(2)
    story.commits(4)
    story.looks(4)
    story.commits(1, expected=4)
    story.looks(1)
    late = story.begin(story.commit(0))
    story.looks(1)
    story.looks(0)
    story.info(late)
    assert offsets.check(story.history, story.end()) == []


def went_back(story: Story) -> None:
    """From 2 to 1, and nobody sought."""
    story.looks(2)
    story.looks(1)


def stale_after_a_commit(story: Story) -> None:
    """A commit to 4 was acknowledged."""
    story.commits(4)
    story.looks(2)


def stale_in_a_seek(story: Story) -> None:
    """A seek found 1 after 2 had been seen."""
    story.looks(2)
    story.seeks("latest", 0, before=1, after=4)


def swapped_with_a_stale_value(story: Story) -> None:
    """Expected 1 after 2 had been seen."""
    story.looks(2)
    story.commits(3, expected=1)


def swapped_twice(story: Story) -> None:
    """Two at once, both from 2 on: one of them must lose."""
    first, second = story.begin(story.commit(3, 2), "r0"), story.begin(story.commit(4, 2), "r1")
    story.ok(first, ())
    story.ok(second, ())


def skipped(story: Story) -> None:
    """Message 2 was never acked by anybody."""
    story.looks(3)


def beyond_the_end(story: Story) -> None:
    """There are four messages."""
    story.commits(4)
    story.looks(5)


def acked_only_later(story: Story) -> None:
    """Committed before its ack was asked for."""
    story.looks(3)
    story.settles(2, 3)


@pytest.mark.parametrize(
    "tell",
    [
        *(went_back, stale_after_a_commit, stale_in_a_seek, swapped_with_a_stale_value, swapped_twice),
        *(skipped, beyond_the_end, acked_only_later),
    ],
)
def test_a_committed_offset_that_nobody_moved(tell: Tale) -> None:
    """Back, twice, ahead of the acks, beyond the end."""
    story = acked(0, 1)
    tell(story)
    assert offsets.check(story.history, story.end())


def test_what_retention_has_dropped_need_not_have_been_settled() -> None:
    """A group that was too slow is moved on."""
    story = acked(0)
    story.looks(3)
    assert offsets.check(story.history, story.end())
    story.mins[TOPIC, 0] = 3
    assert offsets.check(story.history, story.end()) == []


# Stale reads ------------------------------------------------------------------------------------------------------
def test_a_queue_that_only_grows_is_left_alone() -> None:
    """Reads that overlap a send may show it or not."""
    story = acked()
    story.pulls(0, "p0.1", end=4)
    story.ends(4)
    assert stale_reads.check(story.history, story.end()) == []


def shorter_than_a_receipt(story: Story) -> None:
    """Offset 3 was acknowledged."""
    story.ends(3)


def shorter_than_before(story: Story) -> None:
    """Somebody else has seen 9."""
    story.pulls(4, end=9, next_offset=4)
    story.ends(8)


@pytest.mark.parametrize("tell", [shorter_than_a_receipt, shorter_than_before])
def test_a_queue_is_shown_shorter_than_it_was(tell: Tale) -> None:
    """After an acknowledged send, and after another read."""
    story = acked()
    tell(story)
    assert stale_reads.check(story.history, story.end())
