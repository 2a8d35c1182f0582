"""`ternmq send` and `ternmq recv`: one message or many, from an argument, a file or a pipe."""

import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tern_cli.commands.admin import Group, Topic, duration_ms
from tern_cli.endpoint import Endpoint, endpoints
from tern_cli.failures import CommandFailed
from tern_cli.output import Format, Output, show_json, show_rows
from tern_cli.variables import namespace
from tern_cli.views.message_format import as_document, compile_format
from tern_wire.limits import (
    INVISIBLE_MAX_MS,
    INVISIBLE_MIN_MS,
    MESSAGE_BODY_SIZE_MAX_BYTES,
    RECEIVE_MESSAGES_MAX,
    SETTLE_ENTRIES_MAX,
    WAIT_MAX_MS,
)

if TYPE_CHECKING:
    from tern_client import ReceivedMessage


class Ack(StrEnum):
    """Settlement of a message after it was printed."""

    AUTO = "auto"
    NONE = "none"
    RELEASE = "release"


def send(
    topic: Topic,
    text: Annotated[
        str,
        typer.Argument(help="The message body; @FILE reads it from a file, - from standard input.", show_default=False),
    ] = "",
    *,
    tag: Annotated[str, typer.Option("-t", "--tag", help="Tag of the message.")] = "",
    key: Annotated[
        list[str] | None, typer.Option("-k", "--key", help="Key to find the message by; repeatable.")
    ] = None,
    prop: Annotated[
        list[str] | None, typer.Option("-p", "--prop", help="User property name=value; repeatable.")
    ] = None,
    content_type: Annotated[str, typer.Option("--content-type", help="Content type of the body.")] = "",
    queue: Annotated[str, typer.Option("--queue", help="Queue to send to, such as broker-a:3.")] = "",
    message_group: Annotated[
        str, typer.Option("-g", "--message-group", help="Message group, within which messages are delivered in order.")
    ] = "",
    delay: Annotated[str, typer.Option("--delay", help="Delay of the delivery, such as 30s.")] = "",
    at: Annotated[str, typer.Option("--at", help="Time of the delivery: RFC 3339, or ms since 1970.")] = "",
    delay_level: Annotated[int | None, typer.Option("--delay-level", help="RocketMQ's delay level, 1 to 18.")] = None,
    idempotency_key: Annotated[
        str, typer.Option("--idempotency-key", help="Two sends with the same key store one message.")
    ] = "",
    lines: Annotated[bool, typer.Option("--lines", "-l", help="Each line of the input is a message.")] = False,
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Send a message, or with --lines one message per line of the input.

    Success means that the message is durable on a majority of the brokers.

    [bold]Examples[/bold]

    ternmq send orders 'hello'
    ternmq send orders @order.json -t paid -k 4711 -p shop=berlin
    ternmq send reminders 'call back' --delay 30m
    seq 1000 | ternmq send orders - --lines
    """
    from tern_client import BlockingProducer, OutgoingMessage  # noqa: PLC0415 - help must not wait for the SDK

    if lines and idempotency_key:
        raise CommandFailed(
            "One key, many messages", "--idempotency-key names one message; leave --lines out.", exit_code=2
        )
    properties = read_properties(prop or [])
    bodies = read_bodies(text, lines)
    messages = [
        OutgoingMessage(
            body=body,
            tag=tag,
            keys=tuple(key or ()),
            properties=properties,
            content_type=content_type,
            queue=queue,
            idempotency_key=idempotency_key,
            message_group=message_group,
            delay=delay or None,
            deliver_at=at or None,
            delay_level=delay_level,
        )
        for body in bodies
    ]
    with BlockingProducer(endpoints(endpoint), namespace=namespace()) as producer:
        if lines:
            receipts = producer.send_batch(topic, messages, return_errors=True).confirmed()
        else:
            receipts = [producer.send_message(topic, messages[0])]
    rows = [
        {
            "message_id": receipt.message_id,
            "queue": receipt.queue,
            "offset": receipt.offset,
            "replayed": receipt.replayed,
            **(
                {"deliver_at": receipt.deliver_at, "recall_handle": receipt.recall_handle} if receipt.deliver_at else {}
            ),
        }
        for receipt in receipts
    ]
    if output is Format.JSON:
        show_json(rows if lines else rows[0])
    elif lines:
        typer.echo(f"{len(rows)} messages sent to {topic}.")
    else:
        more = ("deliver_at", "recall_handle") if rows[0].get("deliver_at") else ()
        show_rows(rows, ("message_id", "queue", "offset", "replayed", *more), output)


def recv(
    topic: Topic,
    group: Group,
    *,
    count: Annotated[
        int,
        typer.Option("-n", "--count", min=1, help="Maximum number of messages; fewer if none arrives within --wait."),
    ] = 1,
    wait: Annotated[str, typer.Option("-w", "--wait", help="Maximum wait for the next message (long poll).")] = "0s",
    invisible: Annotated[
        str, typer.Option("--invisible", help="Visibility timeout instead of the group's.", show_default=False)
    ] = "",
    tags: Annotated[
        str,
        typer.Option("--tags", help="Only messages with these tags: 'A || B'. The group never receives the others."),
    ] = "",
    sql: Annotated[
        str,
        typer.Option(
            "--sql", help="Only messages whose properties satisfy this condition. The group never receives the others."
        ),
    ] = "",
    ack: Annotated[
        Ack,
        typer.Option(
            "--ack",
            help="auto: acked once printed; none: redelivered after the visibility timeout; release: redelivered at once, as if it had not been received.",
        ),
    ] = Ack.AUTO,
    format: Annotated[
        str,
        typer.Option(
            "-f",
            "--format",
            help=r"Output per message: %v body %t tag %k keys %p properties %i id %q queue %o offset %c correlation id %r reply to \n \t",
        ),
    ] = "%v\\n",
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Receive messages for a consumer group, print them and ack them.

    Exit code 1 when there was no message.

    [bold]Examples[/bold]

    ternmq recv orders billing
    ternmq recv orders billing -n 100 -w 10s -f '%q %o %k %v\\n'
    ternmq recv orders billing --ack none -o json
    """
    from tern_client import BlockingConsumer  # noqa: PLC0415

    write = compile_format(format)
    wait_ms = duration_ms("--wait", wait, 0, WAIT_MAX_MS)
    invisible_ms = duration_ms("--invisible", invisible, INVISIBLE_MIN_MS, INVISIBLE_MAX_MS) if invisible else None
    if tags and sql:
        raise CommandFailed("Two filters", "Give --tags or --sql; TAGS is a property in SQL.", exit_code=2)
    shown: list[dict[str, Any]] = []
    held: list[ReceivedMessage] = []
    received = 0
    with BlockingConsumer(
        endpoints(endpoint), topic, group, invisible_ms=invisible_ms, tags=tags, sql=sql, namespace=namespace()
    ) as consumer:
        try:
            while received < count:
                messages = consumer.receive(min(count - received, RECEIVE_MESSAGES_MAX), wait_ms)
                if not messages:
                    break
                received += len(messages)
                if ack is Ack.RELEASE:
                    held += [replace(message, body=b"") for message in messages]
                for message in messages:
                    if output is Format.JSON:
                        shown.append(as_document(message))
                    else:
                        sys.stdout.buffer.write(write(message))
                sys.stdout.buffer.flush()
                if ack is Ack.AUTO:
                    errors = consumer.ack(*messages, return_errors=True)
                    if errors:
                        raise next(iter(errors.values()))
        finally:
            # Not earlier: the next receive would return the same messages again.
            for at in range(0, len(held), SETTLE_ENTRIES_MAX):
                consumer.release(*held[at : at + SETTLE_ENTRIES_MAX])
    if output is Format.JSON:
        show_json(shown)
    if not received:
        if output is Format.TABLE:
            typer.echo(f"No message for {group} in {topic}; wait for one with --wait 10s.", err=True)
        raise typer.Exit(1)


def read_properties(pairs: list[str]) -> dict[str, str]:
    """Return names and values of the --prop options; CommandFailed (exit 2) for a malformed one."""
    for pair in pairs:
        if "=" not in pair[1:]:
            raise CommandFailed("Not a property", f"'{pair}' should look like name=value.", exit_code=2)
    return {pair.partition("=")[0]: pair.partition("=")[2] for pair in pairs}


def read_bodies(text: str, lines: bool) -> list[bytes]:
    """Return the message bodies that TEXT, @FILE or - stand for.
    Without TEXT, standard input is read when it is a pipe.
    """
    if text == "-" or (not text and not sys.stdin.isatty()):
        limit = -1 if lines else MESSAGE_BODY_SIZE_MAX_BYTES + 1
        data = sys.stdin.buffer.read(limit)
    elif text.startswith("@"):
        try:
            data = Path(text[1:]).read_bytes()
        except OSError as error:
            raise CommandFailed("The file cannot be read", f"{text[1:]}: {error.strerror}.", exit_code=2) from error
    else:
        data = text.encode()
    if not lines:
        return [data]
    bodies = data.splitlines()
    if not bodies:
        raise CommandFailed("Nothing to send", "The input has no line.", exit_code=2)
    return bodies
