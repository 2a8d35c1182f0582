"""Messages that the flights demo has sent and received."""

from collections.abc import Mapping
from dataclasses import dataclass

from tern_cli.demo.consuming import ReceiveLog
from tern_cli.demo.producing import SendLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Traffic of one run: offset ranges by queue, and the counts of both sides."""

    group: str
    starting: Mapping[str, int]
    ending: Mapping[str, int]
    committed: Mapping[str, int]
    sends: SendLog
    receives: ReceiveLog
    batch_seconds: float
    killed: str
    back_after_ms: float
