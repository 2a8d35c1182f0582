"""What a seed chooses: a short window of idempotency keys in some of them, which ends within the run and is the law's as well."""

from collections.abc import Callable
from random import Random

from tern_broker.core.sending import idempotency
from tern_broker.core.sending.idempotency import KeyTable
from tern_wire.limits import IDEMPOTENCY_WINDOW_MS
from tests.sim.checkers import duplicates
from tests.sim.clients.plan import draw_plan
from tests.sim.clients.repeats import Repeats
from tests.sim.history.history import Send
from tests.sim.planted.planting import changed, quiet
from tests.sim.seed_run import run_seed
from tests.sim.swarm import SHORT_WINDOW_MS, choose, constants
from tests.unit.sim.stories import message


def window_of(module: object) -> int:
    """As it is there now."""
    return int(vars(module)["IDEMPOTENCY_WINDOW_MS"])


def test_some_seeds_have_a_short_window_and_no_clock_that_jumps_over_it() -> None:
    """The product and the checker have it for as long as the seed runs."""
    short = [swarm for swarm in map(choose, range(200)) if swarm.is_short_window]
    assert 30 < len(short) < 70
    assert not any(kind.startswith("clock") for swarm in short for kind in swarm.kinds)
    with constants(short[0]):
        assert window_of(idempotency) == window_of(duplicates) == SHORT_WINDOW_MS
    assert window_of(idempotency) == window_of(duplicates) == IDEMPOTENCY_WINDOW_MS


def test_a_run_with_a_short_window_passes_its_end() -> None:
    """Tables of keys are dropped, and nothing is stored twice."""
    dropped: list[int] = []
    original = KeyTable.expire

    def expire(self: KeyTable, now_ms: int) -> list[int]:
        gone = original(self, now_ms)
        dropped.extend(gone)
        return gone

    for seed in [seed for seed in range(30) if choose(seed).is_short_window]:
        with quiet(), changed((KeyTable, "expire", expire)):
            result = run_seed(seed)
        assert result.is_good, f"seed {seed}: {result.violations[:2]} {result.stuck}"
        if dropped:
            break
    assert dropped, "no table of keys grew old"


class ClientContext:
    """A client's, with *within_s* to repeat in. Time is the test's."""

    def __init__(self, within_s: float) -> None:
        self.plan = draw_plan(Random(1), 10, 1.0, within_s)
        self.later_s: list[tuple[float, Callable[[], None]]] = []

    def later(self, delay_s: float, step: Callable[[], None]) -> None:
        """As the clients' context: remembered."""
        self.later_s.append((delay_s, step))


def test_a_request_is_repeated_for_a_while_after_its_begin_and_then_never() -> None:
    """Where the window is short; elsewhere for ever."""
    asked, late = (Send("orders", (message(name, key=name),)) for name in ("p0.1", "p0.2"))
    context = ClientContext(4.0)
    repeats = Repeats[Send](context)
    repeats.add(asked, 1.5)
    repeats.add(asked, 0.1)
    repeats.add(late, 4.0)
    assert repeats.asked == [asked]
    ((delay_s, end),) = context.later_s
    assert delay_s == 2.5
    end()
    repeats.add(asked, 0.1)
    assert repeats.asked == []
    endless = Repeats[Send](ClientContext(0.0))
    endless.add(asked, 100.0)
    assert endless.asked == [asked]
