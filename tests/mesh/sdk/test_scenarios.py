"""The suite of scenarios on real processes: what a TestMesh promises to a test is what a mesh does. See `tests/unit/testing`."""

import asyncio
import secrets
import time
import traceback
from typing import Any

import pytest

from tern_client import Admin, Consumer, Producer, PullConsumer, TransactionProducer
from tests.support.mesh.mesh import Mesh
from tests.support.scenarios import reads, receives, sends, settles, timing  # noqa: F401 (each enters its own)
from tests.support.scenarios.stage import SCENARIOS, Scenario, Stage

pytestmark = pytest.mark.calm
# Scenarios at a time: most of them wait.
SIDE_BY_SIDE = 64


class OfProcesses:
    """The standing mesh as the World of a scenario."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    def producer(self, **options: Any) -> Producer:
        """As World."""
        return Producer(self._endpoint, **options)

    def consumer(self, topic: str, group: str, **options: Any) -> Consumer:
        """As World."""
        return Consumer(self._endpoint, topic, group, **options)

    def pull_consumer(self, topic: str, **options: Any) -> PullConsumer:
        """As World."""
        return PullConsumer(self._endpoint, topic, **options)

    def transaction_producer(self, producer_group: str, **options: Any) -> TransactionProducer:
        """As World."""
        return TransactionProducer(self._endpoint, producer_group, **options)

    def admin(self) -> Admin:
        """As World."""
        return Admin(self._endpoint)

    async def pass_time(self, ms: int) -> None:
        """As World."""
        until_s = time.monotonic() + ms / 1000
        while (left_s := until_s - time.monotonic()) > 0:
            await asyncio.sleep(left_s)


def test_every_scenario_has_its_result_on_real_processes(mesh: Mesh) -> None:
    """Side by side, with names of their own."""
    suffix = secrets.token_hex(4)
    turns = asyncio.Semaphore(SIDE_BY_SIDE)

    async def wrong(number: int, scenario: Scenario) -> str:
        async with turns:
            try:
                found = await scenario.play(Stage(OfProcesses(mesh.endpoint), f"{suffix}-{number}"))
            except Exception:
                return f"{scenario.name}: {traceback.format_exc()}"
        return "" if found == scenario.expected else f"{scenario.name}: {found!r} instead of {scenario.expected!r}"

    async def play() -> list[str]:
        return await asyncio.gather(*(wrong(*numbered) for numbered in enumerate(SCENARIOS.values())))

    failures = [failure for failure in asyncio.run(play()) if failure]
    assert not failures, "\n".join(failures)
