"""What the images install before our own package."""

import pytest

from deploy.requirements_of import requirements_of

EXTRAS = {"service": ["uvicorn"], "broker": ["shop[service,store]", "isal"], "store": ["numpy", "uvicorn"]}


def test_extras_of_ours_are_replaced_by_what_they_need() -> None:
    """Recursively, each requirement once."""
    extras = {name: [each.replace("shop", "ternmq") for each in needs] for name, needs in EXTRAS.items()}
    assert requirements_of("broker", extras) == ["uvicorn", "numpy", "isal"]


def test_an_extra_that_is_not_there_is_an_error() -> None:
    """An image that lacks half of its libraries is not built."""
    with pytest.raises(KeyError):
        requirements_of("nothing", {"mesh": []})
