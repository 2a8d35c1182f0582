"""The loop that the tests of routes and links run on."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """asyncio, as in production."""
    return "asyncio"
