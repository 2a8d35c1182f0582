"""`ternmq demo transfer`: its options, and what is missing before it can run."""

import secrets
from typing import Annotated

import typer

from tern_cli.demo.transfer.settings import AskedBy, TransferSettings
from tern_cli.endpoint import DATA_DIR, DATA_DIR_VARIABLE, Endpoint, endpoints
from tern_cli.output import Format, Output
from tern_wire.extras import need_extra


def transfer(
    *,
    transfers: Annotated[int, typer.Option(min=100, max=1_000_000, help="How many transfers.")] = 20_000,
    crash_producer: Annotated[
        bool, typer.Option("--crash-producer", help="SIGKILL producers in the middle of transfers, again and again.")
    ] = False,
    kill_leader: Annotated[
        bool, typer.Option("--kill-leader", help="SIGKILL the leading broker when half is done.")
    ] = False,
    kill_checker: Annotated[
        bool, typer.Option("--kill-checker", help="SIGKILL the txn-checker while there is something to check.")
    ] = False,
    checks: Annotated[
        AskedBy, typer.Option(help="How bank A is asked: the txn-checker calls it, or it receives checks.")
    ] = AskedBy.CALLBACK,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Decides transfers and crashes.", show_default="another one each time"),
    ] = None,
    endpoint: Endpoint = "",
    data_dir: Annotated[
        str,
        typer.Option("--data-dir", envvar=DATA_DIR_VARIABLE, help="The mesh's data; the banks go to its folder demo."),
    ] = DATA_DIR,
    output: Output = Format.TABLE,
) -> None:
    """Move money between two banks by transactional messages, and prove that not a cent is lost or made.

    Each bank is a SQLite database. Producers debit at bank A in a local transaction and send the credit as a half message; a consumer
    credits at bank B. Whatever is killed in the middle, checks find out what became of it. Exit code 1 when the proof fails.

    [bold]Examples[/bold]

    ternmq demo transfer
    ternmq demo transfer --transfers 20000 --crash-producer --kill-leader --kill-checker
    ternmq demo transfer --checks pull -o json
    """
    if checks is AskedBy.CALLBACK:
        need_extra("txn-checker", "A demo with checks by callback", otherwise=", or say --checks pull")
    from tern_cli.demo.transfer.run import run_transfers  # noqa: PLC0415 - the SDK and more, for this command only

    run_transfers(
        TransferSettings(
            endpoints=tuple(endpoints(endpoint, data_dir)),
            data_dir=data_dir,
            transfers=transfers,
            seed=secrets.randbelow(1 << 32) if seed is None else seed,
            asked_by=checks,
            crashes_producers=crash_producer,
            kills_leader=kill_leader,
            kills_checker=kill_checker,
            as_json=output is Format.JSON,
        )
    )
