"""The bench of two versions: both take every turn, who begins changes, and its ratios are those of windows that lie side by side."""

from pathlib import Path

import pytest
import uvloop

from loadtest.bench import versions
from loadtest.bench.own_mesh import OwnMesh
from loadtest.bench.versions import FIGURES, Side, ratios, take_turns
from tests.support.client.scripted_proxy import blocking_proxy
from tests.support.proxy.proxy_in_memory import ProxyInMemory


def test_both_take_the_same_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every figure as often as asked, with a rate of each window."""
    monkeypatch.setattr(versions, "_BACKLOG_BATCHES_PER_S", 10)
    # A busy machine could receive all of so small a backlog in a warm-up.
    monkeypatch.setattr(versions, "_WARM_UP_WINDOWS", 0.0)
    with blocking_proxy(ProxyInMemory("").answer) as one, blocking_proxy(ProxyInMemory("").answer) as two:
        sides = []
        for name, proxy in (("before", one), ("after", two)):
            mesh = OwnMesh(port=int(proxy.url.rpartition(":")[2]), pids={}, startup_s=1.0, data_dir=tmp_path)
            sides.append(Side(name, mesh))
        uvloop.run(take_turns((sides[0], sides[1]), list(FIGURES), 2, 0.1))
    for side in sides:
        assert {figure: len(rates) for figure, rates in side.rates.items()} == dict.fromkeys(FIGURES, 2)
        assert min(rate for rates in side.rates.values() for rate in rates) > 0


def test_a_ratio_is_of_neighbours() -> None:
    """A machine that is twice as fast in between changes nothing."""
    assert ratios([100.0, 200.0, 100.0, 220.0], [110.0, 220.0, 110.0, 242.0]) == pytest.approx((1.1, 1.1, 1.1))
    assert ratios([100.0], [90.0]) == pytest.approx((0.9, 0.9, 0.9))
