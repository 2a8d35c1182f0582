"""`ternmq request` and `ternmq reply`: send a request over a topic and wait for its reply; reply.

`ternmq recv` shows the requests to reply to.
"""

import sys
from typing import Annotated

import typer

from tern_cli.commands.admin import Topic, duration_ms
from tern_cli.commands.message import read_bodies, read_properties
from tern_cli.endpoint import Endpoint, endpoints, namespace
from tern_cli.output import Format, Output, show_json, show_rows
from tern_cli.views.message_format import body_document
from tern_wire.limits import REPLY_TIMEOUT_MAX_MS

Text = Annotated[
    str, typer.Argument(help="The message; @FILE reads it from a file, - from standard input.", show_default=False)
]
Properties = Annotated[list[str] | None, typer.Option("-p", "--prop", help="name=value; repeatable.")]
ContentType = Annotated[str, typer.Option("--content-type", help="What the body is.")]


def request(
    topic: Topic,
    text: Text = "",
    *,
    timeout: Annotated[
        str, typer.Option("-w", "--timeout", help="How long to wait for the reply, 30s at most.")
    ] = "10s",
    tag: Annotated[str, typer.Option("-t", "--tag", help="One tag.")] = "",
    key: Annotated[list[str] | None, typer.Option("-k", "--key", help="A key to find it by; repeatable.")] = None,
    prop: Properties = None,
    content_type: ContentType = "",
    correlation_id: Annotated[str, typer.Option("--correlation-id", help="Names this request; made if left out.")] = "",
    client: Annotated[str, typer.Option("--client", help="Who asks; made if left out.")] = "",
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Send a request, wait for its reply and print the reply's body.

    Exit code 1 when no reply came in time. A consumer of the topic answers with
    `ternmq reply`.

    [bold]Examples[/bold]

    ternmq request prices 'AAPL?' --timeout 5s
    ternmq request prices @question.json --content-type application/json -o json
    """
    from tern_client import BlockingProducer  # noqa: PLC0415 - help must not wait for the SDK

    timeout_ms = duration_ms("--timeout", timeout, 1, REPLY_TIMEOUT_MAX_MS)
    properties = read_properties(prop or [])
    (body,) = read_bodies(text, lines=False)
    with BlockingProducer(endpoints(endpoint), namespace=namespace()) as producer:
        found = producer.request(
            topic,
            body,
            timeout=timeout_ms,
            correlation_id=correlation_id,
            client=client,
            tag=tag,
            keys=tuple(key or ()),
            properties=properties,
            content_type=content_type,
        )
    if output is Format.JSON:
        document = {
            "message_id": found.message_id,
            "topic": found.topic,
            "queue": found.queue,
            "offset": found.offset,
            "correlation_id": found.correlation_id,
            "keys": list(found.keys),
            "properties": dict(found.properties),
            "content_type": found.content_type,
            "born_at": found.born_at,
            "stored_at": found.stored_at,
        }
        show_json({**document, **body_document(found.body)})
    else:
        sys.stdout.buffer.write(found.body + b"\n")
        sys.stdout.buffer.flush()


def reply(
    topic: Topic,
    text: Text = "",
    *,
    to: Annotated[str, typer.Option("--to", help="The request's reply_to (recv -f %r).", show_default=False)],
    correlation_id: Annotated[
        str, typer.Option("--correlation-id", help="The request's correlation_id (recv -f %c).", show_default=False)
    ],
    prop: Properties = None,
    content_type: ContentType = "",
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Reply to a request that was received from a topic.

    [bold]Examples[/bold]

    ternmq recv prices brokers -f '%c %r %v\\n'
    ternmq reply prices '187.20' --to broker-a:shop-7 --correlation-id 7F3A9C
    """
    from tern_client import BlockingProducer  # noqa: PLC0415

    properties = read_properties(prop or [])
    (body,) = read_bodies(text, lines=False)
    with BlockingProducer(endpoints(endpoint), namespace=namespace()) as producer:
        receipt = producer.reply(
            topic, body, reply_to=to, correlation_id=correlation_id, content_type=content_type, properties=properties
        )
    row = {"message_id": receipt.message_id, "queue": receipt.queue, "offset": receipt.offset}
    if output is Format.JSON:
        show_json(row)
    else:
        show_rows([row], tuple(row), output)
