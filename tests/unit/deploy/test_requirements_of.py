"""What the images install before our own packages."""

import pytest

from deploy.requirements_of import read_projects, requirements_of

PROJECTS = {
    "shop": {"": ["till[scales]==1.0", "uvicorn"], "store": ["numpy", "uvicorn"], "all": ["shop[store]", "isal"]},
    "till": {"": ["orjson"], "scales": ["cryptography"]},
}


def test_requirements_of_ours_are_replaced_by_what_they_need() -> None:
    """Recursively, with their extras, each requirement once."""
    assert requirements_of("shop", [], PROJECTS) == ["orjson", "cryptography", "uvicorn"]
    assert requirements_of("shop", ["all"], PROJECTS) == ["orjson", "cryptography", "uvicorn", "numpy", "isal"]


def test_an_extra_that_is_not_there_is_an_error() -> None:
    """An image that lacks half of its libraries is not built."""
    with pytest.raises(KeyError):
        requirements_of("shop", ["nothing"], PROJECTS)


def test_an_image_needs_nothing_that_an_index_would_have_to_know_of_us() -> None:
    """Our own packages come from the tree, so none of them is among the requirements of any image."""
    for extras in ([], ["demo"], ["load"]):
        found = requirements_of("ternmq", extras, read_projects())
        assert "numpy" in found and "httpx" in found
        assert not [each for each in found if each.startswith("ternmq")]
