"""How much of a campaign runs: a part in `make test`, all of it in `make campaigns`.

A campaign is a test whose cases are drawn or counted by the thousand: corruptions, power cuts, timers, stories of a seed. A part of them
finds what a change has broken, all of them find what nobody has thought of. Such a test is marked `campaign`. A story of which two or three
seeds are told has one of them in `make test` and the others in `make campaigns`: `.ci/run`, which runs both, tells none twice.
"""

import os
from typing import TypeVar

import pytest

Cases = TypeVar("Cases")

IS_WHOLE = os.environ.get("TERNMQ_CAMPAIGNS", "") == "whole"


def cases(whole: Cases, part: Cases) -> Cases:
    """*whole* of them in `make campaigns`, *part* of them in `make test`."""
    return whole if IS_WHOLE else part


def shared_out(first: int, *others: int) -> tuple[int, ...]:
    """Seeds: the *first* in `make test`, the *others* in `make campaigns`."""
    return cases(others, (first,))


# Of a test that has more cases, or others, in `make campaigns`.
campaign = pytest.mark.campaign
