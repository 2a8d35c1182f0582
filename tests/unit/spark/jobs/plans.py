"""Plans of replays for tests."""

from collections.abc import Sequence

from tern_jobs.replay.plans import VERSION, Choice, ReplayedQueue, ReplayPlan


def plan_with(starts: Sequence[int], ends: Sequence[int], batches: int) -> ReplayPlan:
    """A plan of one queue for each start and end."""
    choice = Choice(to="again", archive="/a", topics=[], since_ms=0, until_ms=0, selection=[], tells_origin=True)
    queues = [
        ReplayedQueue(topic="orders", queue=f"broker-a:{number}", start=start, end=end)
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
    return ReplayPlan(
        version=VERSION, query="q", made_ms=0, choice=choice, created_ms={}, queues=queues, batches=batches
    )
