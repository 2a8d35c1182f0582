"""What a run of the transfers was asked for. Pure, and light: the command imports it before anything else."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class AskedBy(StrEnum):
    """How bank A is asked what became of a transaction: the txn-checker calls it, or it receives checks."""

    CALLBACK = "callback"
    PULL = "pull"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferSettings:
    """*seed* decides transfers and crashes."""

    endpoints: Sequence[str]
    data_dir: str
    transfers: int
    seed: int
    asked_by: AskedBy
    crashes_producers: bool
    kills_leader: bool
    kills_checker: bool
    as_json: bool
