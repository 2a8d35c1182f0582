"""Check of a service's installed packages before their import."""

from tern_service.settings import refuse
from tern_wire.extras import ExtraMissing, need_extra


def refuse_without(extra: str, purpose: str) -> None:
    """End the process with 78 unless *extra* is installed; *purpose* (`A broker`) begins the
    sentence.
    """
    try:
        need_extra(extra, purpose)
    except ExtraMissing as error:
        refuse(error.detail)
