"""What a service needs to be installed, asked for before it is imported."""

from tern_service.settings import refuse
from tern_wire.extras import ExtraMissing, need_extra


def refuse_without(extra: str, purpose: str) -> None:
    """End the process with exit code 78 and a sentence that begins with *purpose* (`A broker`) unless all of *extra* is installed."""
    try:
        need_extra(extra, purpose)
    except ExtraMissing as error:
        refuse(error.detail)
