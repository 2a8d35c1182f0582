"""How fast a body must come: with time and bytes as arguments, one line a case."""

import pytest

from tern_service.connections.body_pace import BodyPace
from tern_service.connections.bounds import Bounds
from tern_wire.errors import BodyTooSlow, RequestTimeout

MIB = 1 << 20


def end_of(came_bytes: list[int]) -> tuple[int, type[Exception] | None]:
    """At which step, of 5 s each, a body ends of which so much is there at each; and how."""
    pace = BodyPace(Bounds(), 100.0)
    for step, size in enumerate(came_bytes, 1):
        trouble = pace.trouble(100.0 + 5 * step, size)
        if trouble is not None:
            return step, type(trouble)
    return len(came_bytes), None


@pytest.mark.parametrize(
    ("came_bytes", "step", "how"),
    [
        ([3], 1, BodyTooSlow),
        ([5_119], 1, BodyTooSlow),
        ([5_120, 10_240, 15_360], 3, None),
        ([5_120 * step for step in range(1, 7)], 6, RequestTimeout),
        # One pause of a step, however little came before it; not two.
        ([40_000, 40_000, 51_000, 62_000], 4, None),
        ([40_000, 40_000, 40_000], 3, BodyTooSlow),
        # Nearly a whole batch at once, and then a dribble that a small body could live with.
        ([16 * MIB - 60_000, 16 * MIB - 50_000, 16 * MIB - 40_000], 3, BodyTooSlow),
        # As slow as a batch may be on average, to be whole in time.
        ([step * 16 * MIB // 6 for step in range(1, 6)], 5, None),
    ],
)
def test_a_body_ends_when_it_is_too_slow_and_not_before(
    came_bytes: list[int], step: int, how: type[Exception] | None
) -> None:
    """At 1 KiB/s at least, and a 120th of what has come, over two steps."""
    assert end_of(came_bytes) == (step, how)


def test_where_we_did_not_read_the_client_is_not_late() -> None:
    """Time begins anew, and so does the deadline."""
    pace = BodyPace(Bounds(), 0.0)
    pace.rest(29.0, 70_000)
    assert pace.wait_s(29.0) == 5.0
    assert pace.trouble(34.0, 76_000) is None
    assert isinstance(pace.trouble(59.0, 1_000_000), RequestTimeout)
