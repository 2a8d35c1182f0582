"""One real mesh (three brokers, two proxies, two name servers) for all tests of this folder; topics keep them apart.

With TERNMQ_FAILOVER_SEED set (`make test-failover`), each test runs while its leader is killed once, at a moment that the seed and the
test's name decide: the same test must have the same result. A test that is about leadership itself is marked `calm`. Of a test with
cases, the seed chooses the cases that meet a death: 185 kinds of bad input would make it a matter of half an hour.
"""

import os
import random
import threading
from collections.abc import Iterator

import pytest

from tests.support.mesh.mesh import Mesh, eventually

# The kill should meet a test's requests, not the silence behind them: half of the tests are over after a quarter of a second, others take
# a few, so half of the kills come within the first 0.2 s.
KILL_WITHIN_S = 1.5
CASES_THAT_MEET_A_DEATH = 0.25


@pytest.fixture(scope="session")
def mesh(standing_mesh: Mesh) -> Mesh:
    """Started once; a quiet run of these tests kills no process of it."""
    return standing_mesh


@pytest.fixture(autouse=True)
def failover(request: pytest.FixtureRequest, mesh: Mesh) -> Iterator[None]:
    """Nothing, or the death of the leader in the middle of the test, and its return before the next one."""
    seed = os.environ.get("TERNMQ_FAILOVER_SEED", "")
    if not seed or request.node.get_closest_marker("calm") is not None:
        yield
        return
    chance = random.Random(f"{seed} {request.node.nodeid}")
    delay_s = KILL_WITHIN_S * chance.random() ** 3
    if hasattr(request.node, "callspec") and chance.random() > CASES_THAT_MEET_A_DEATH:
        yield
        return
    leader = mesh.leader()
    print(f"seed {seed}: {leader} dies after {delay_s:.2f} s")
    killer = threading.Timer(delay_s, mesh.kill, (leader,))
    killer.start()
    yield
    killer.join()
    eventually(lambda: all(mesh.broker(name).get("term") for name in mesh.brokers()), within_s=30, what="all brokers")
    mesh.leader()
