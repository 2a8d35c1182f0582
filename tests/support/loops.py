"""Both event loops that we run on, for tests of what their readers, transports and timers do."""

import pytest

# Of a fixture `anyio_backend`.
BOTH_LOOPS = [
    pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
    pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
]
