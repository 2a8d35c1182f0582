"""The mesh of the tests that share one: whatever a test did to its processes, the next one finds it whole."""

from collections.abc import Iterator

import pytest

from tests.support.mesh.mesh import Mesh


@pytest.fixture
def mesh(standing_mesh: Mesh) -> Iterator[Mesh]:
    """The standing mesh, whole before the test and behind it."""
    standing_mesh.wait_until_whole()
    yield standing_mesh
    standing_mesh.wait_until_whole()
