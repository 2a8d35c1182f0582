"""What a process of the transfers is told to do, as one JSON argument; and how it is started. Pure but for starting."""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from tests.chaos.transfer.orders import Crash, CrashStage

# Where `tests` can be imported.
ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """One life of one process. *share*, *crash* and *seed* are of producers."""

    endpoints: Sequence[str]
    topic: str
    # The producer group of bank A, or the consumer group of bank B.
    group: str
    bank: str
    seed: int = 0
    transfers: int = 0
    share: int = 0
    shares: int = 1
    crash: Crash | None = None

    def text(self) -> str:
        """As one argument."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Self:
        """What `text` wrote."""
        fields = json.loads(text)
        if crash := fields["crash"]:
            fields["crash"] = Crash(at=crash["at"], stage=CrashStage(crash["stage"]))
        return cls(**fields)

    async def start(self, module: str, log: Path) -> asyncio.subprocess.Process:
        """A process that runs *module* with this; what it prints is added to *log*."""
        with log.open("ab") as output:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", module, self.text()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=ROOT,
            )
