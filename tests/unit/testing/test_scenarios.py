"""The suite of scenarios on a TestMesh; `tests/mesh/sdk/test_scenarios.py` plays the same ones on real processes."""

from typing import Any

import pytest

from tern_client import Admin, Consumer, Producer, PullConsumer, TransactionProducer
from tern_testing import TestMesh
from tests.support.scenarios import reads, receives, sends, settles, timing  # noqa: F401 (each enters its own)
from tests.support.scenarios.stage import SCENARIOS, Scenario, Stage

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """asyncio only."""
    return "asyncio"


class InMemory:
    """A TestMesh as the World of a scenario."""

    def __init__(self, mesh: TestMesh) -> None:
        self._mesh = mesh

    def producer(self, **options: Any) -> Producer:
        """As World."""
        return self._mesh.producer(**options)

    def consumer(self, topic: str, group: str, **options: Any) -> Consumer:
        """As World."""
        return self._mesh.consumer(topic, group, **options)

    def pull_consumer(self, topic: str, **options: Any) -> PullConsumer:
        """As World."""
        return self._mesh.pull_consumer(topic, **options)

    def transaction_producer(self, producer_group: str, **options: Any) -> TransactionProducer:
        """As World."""
        return self._mesh.transaction_producer(producer_group, **options)

    def admin(self) -> Admin:
        """As World."""
        return self._mesh.admin()

    async def pass_time(self, ms: int) -> None:
        """As World."""
        await self._mesh.advance(ms)


def test_there_are_a_hundred_of_them() -> None:
    """At least."""
    assert len(SCENARIOS) >= 100


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=lambda scenario: scenario.name)
async def test_a_scenario_has_its_result_in_memory(scenario: Scenario) -> None:
    """Each in a mesh of its own."""
    async with TestMesh() as mesh:
        assert await scenario.play(Stage(InMemory(mesh), "1")) == scenario.expected
