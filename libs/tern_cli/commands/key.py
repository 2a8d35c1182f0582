"""`ternmq key create|ls|revoke`: keys of clients.

A key is written to a file or shown once, and never logged.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tern_cli.commands.topic import Sure, confirm
from tern_cli.endpoint import Endpoint, administration
from tern_cli.failures import CommandFailed
from tern_cli.output import Format, Output, show_json, show_rows, show_warning
from tern_cli.readable import shown_time
from tern_client import BlockingAdmin
from tern_wire.errors import InvalidField, PrincipalNotFound
from tern_wire.limits import KEYS_LIVE_MAX, PRINCIPAL_TEXT_LENGTH_MAX
from tern_wire.principals.client_keys import NOT_ACCEPTED, check_key_type, encoded_public_key, signing_text

key_app = typer.Typer(
    no_args_is_help=True,
    help=f"""Create, list and revoke the keys of clients.

    A key belongs to a principal, whose grants define its permissions: see
    `ternmq acl`. The cluster stores a hash of the key, or its public half, so a
    lost key cannot be read again: create another one. A principal has at most
    {KEYS_LIVE_MAX} keys, enough to rotate: create the new key, give it to the
    clients, revoke the old key. Clients read keys from files: --key-file,
    TERNMQ_KEY_FILE.""",
)

PrincipalName = Annotated[
    str,
    typer.Argument(
        metavar="PRINCIPAL",
        help="The principal, which identifies a client, such as billing-service.",
        show_default=False,
    ),
]
_REPLACED = "no longer accepted; make an Ed25519 key"
_COLUMNS = ("kid", "principal", "type", "state", "expires", "networks", "description")


class KeyType(StrEnum):
    """Way in which a client proves that it has its key."""

    BEARER = "bearer"
    ED25519 = "ed25519"


def _key_type(text: str) -> KeyType:
    try:
        check_key_type(text)
    except InvalidField as error:
        raise typer.BadParameter(f"{error.fields['reason']}.") from None
    return KeyType(text)


@key_app.command("create")
def create_key(
    principal: PrincipalName,
    *,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the key to this new file (0600) instead of showing it."),
    ] = None,
    kind: Annotated[
        KeyType,
        typer.Option(
            "--type",
            parser=_key_type,
            metavar="<bearer|ed25519>",
            help="bearer: the key is sent with each request. ed25519: the key is made here, signs each request and never leaves the client.",
        ),
    ] = KeyType.BEARER,
    expires: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Expiry, as a duration (90d) or a time (2027-01-31).", show_default="never"),
    ] = None,
    not_before: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Start of validity, such as 2026-12-01T08:00:00Z.", show_default="at once"),
    ] = None,
    network: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CIDR",
            help="Network from which the key is valid, such as 10.0.0.0/8; repeatable.",
            show_default="anywhere",
        ),
    ] = None,
    description: Annotated[
        str | None, typer.Option(help=f"For people; at most {PRINCIPAL_TEXT_LENGTH_MAX} characters.")
    ] = None,
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Create a key for a principal.

    The principal is created if it does not exist; it has no permissions until
    `ternmq acl grant`. Without --out the key is the only line on stdout, and is
    never shown again.

    [bold]Examples[/bold]

    ternmq key create billing --out billing.key
    ternmq key create billing --expires 90d --network 10.0.0.0/8 > billing.key
    ternmq key create billing --type ed25519 --out billing.key
    """
    made = _ed25519() if kind is KeyType.ED25519 else None
    with _private_file(out) as keep, administration(endpoint) as admin:
        is_new = _is_made(admin, principal)
        document = admin.create_key(
            principal,
            public_key=encoded_public_key(made[1]) if made else None,
            not_before=not_before,
            networks=network,
            description=description,
            **_end(expires),
        )
        text = signing_text(document["kid"], made[0]) if made else str(document.pop("key"))
        if keep is not None:
            os.write(keep, f"{text}\n".encode())
    if missing := document["missing_broker_groups"]:
        show_warning(f"{', '.join(missing)} did not answer; the key works, and they get it as soon as they do.")
    _show_made(document, text, out, is_new=is_new, output=output)


@key_app.command("ls")
def list_keys(
    principal: Annotated[
        str, typer.Argument(metavar="[PRINCIPAL]", help="Only keys of this principal.", show_default=False)
    ] = "",
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """List keys by name (kid), with their expiry and the networks that may use them.

    Names are no secret; the keys themselves are never shown.

    [bold]Examples[/bold]

    ternmq key ls
    ternmq key ls billing -o json
    """
    with administration(endpoint) as admin:
        found = [admin.principal(principal)] if principal else admin.principals()
    rows = [{"principal": one["principal"], **key} for one in found for key in one["keys"]]
    if output is Format.TABLE:
        rows = [
            {
                **row,
                "state": _REPLACED if row["state"] == NOT_ACCEPTED else row["state"],
                "expires": shown_time(row["expires_at"]) or "never",
                "networks": ", ".join(row["networks"]) or "anywhere",
            }
            for row in rows
        ]
    show_rows(rows, _COLUMNS, output)


@key_app.command("revoke")
def revoke_key(
    principal: PrincipalName,
    kid: Annotated[
        str, typer.Argument(metavar="KID", help="The key's name, as `ternmq key ls` shows it.", show_default=False)
    ],
    yes: Sure = False,
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Revoke a key for good: within 5 s every proxy refuses it.

    A revoked key never becomes valid again. Repeating the command is safe.

    If a broker group does not answer, the command fails and names it. Proxies
    that reach another broker group already refuse the key, and the rest follows
    without further action; repeat the command until it succeeds to be sure.

    [bold]Examples[/bold]

    ternmq key revoke billing Zk3vQ8mT1xWc5RbN
    """
    confirm(f"Revoke key {kid} of {principal}?", yes=yes)
    with administration(endpoint) as admin:
        admin.revoke_key(principal, kid)
    if output is Format.JSON:
        show_json({"principal": principal, "kid": kid, "revoked": True})
    else:
        typer.echo(f"Key {kid} of {principal} is revoked.")


def _show_made(document: dict[str, Any], text: str, out: Path | None, *, is_new: bool, output: Format) -> None:
    principal = document["principal"]
    if output is Format.JSON:
        show_json({**document, "principal_created": is_new, **({"key_file": str(out)} if out else {"key": text})})
        return
    if is_new:
        typer.echo(f"{principal} is a new principal. It can do nothing yet: ternmq acl grant {principal} ...", err=True)
    if out is None:
        typer.echo(f"Key {document['kid']} of {principal}, which is not shown again:", err=True)
        typer.echo(text)
    else:
        typer.echo(f"Key {document['kid']} of {principal} is in {out}, which only you can read.")


def _is_made(admin: BlockingAdmin, principal: str) -> bool:
    """Return whether the principal had to be created."""
    try:
        admin.principal(principal)
    except PrincipalNotFound:
        return bool(admin.put_principal(principal)["created"])
    return False


def _end(expires: str | None) -> Any:
    """Return `expires_in` for a duration such as `90d`, `expires_at` for any other text."""
    if expires is None:
        return {}
    is_span = expires[:-1].replace(".", "", 1).isdecimal() or expires.removesuffix("ms").isdecimal()
    return {"expires_in" if is_span else "expires_at": expires}


@contextmanager
def _private_file(path: Path | None) -> Iterator[int | None]:
    """Open a new file that only its owner can read, before a key exists; remove it on failure."""
    if path is None:
        yield None
        return
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError as error:
        raise CommandFailed(
            "The file is there already", f"{path} is not overwritten: it may be the only copy of a key.", exit_code=2
        ) from error
    try:
        yield handle
        os.fsync(handle)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


def _ed25519() -> tuple[bytes, bytes]:
    """Return a new key pair: the private key, which stays on this machine, and the public key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - only here

    private = Ed25519PrivateKey.generate()
    return private.private_bytes_raw(), private.public_key().public_bytes_raw()
