"""The loop that the checker's tests run on."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """asyncio, as in production."""
    return "asyncio"
