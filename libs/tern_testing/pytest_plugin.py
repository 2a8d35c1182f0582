"""The fixture `tern_mesh` of pytest: a TestMesh for each test that asks for it.

`pip install ternmq` registers this module by the entry point `pytest11`, so no test needs to name
it. It imports nothing but pytest until the fixture is used: other test runs in the same environment
must not pay for a server.

The fixture is an asynchronous one, which pytest runs through the plugin of the test: anyio, or
pytest-asyncio in its mode `auto`.
"""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tern_testing.mesh import TestMesh


@pytest.fixture
async def tern_mesh() -> "AsyncIterator[TestMesh]":
    """A TestMesh with its defaults, which ends with the test."""
    from tern_testing.mesh import TestMesh  # noqa: PLC0415 - a server, for tests that use it only

    async with TestMesh() as mesh:
        yield mesh
