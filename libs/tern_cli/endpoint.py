"""Selection of the proxies and name servers that a command uses.

Order: --endpoint or --context, TERNMQ_ENDPOINT, TERNMQ_CONTEXT, the mesh in TERNMQ_DATA_DIR or
.tern, the current context, http://127.0.0.1:8080.

A mesh of this folder precedes the current context: what one tries in a folder goes to the mesh that
was started there, and not to a cluster that was chosen some day.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from tern_cli.failures import CommandFailed
from tern_cli.mesh.files import MeshFiles
from tern_cli.variables import (
    ENDPOINT_DEFAULT,
    ENDPOINT_VARIABLE,
    command_context,
    mesh_directory,
    namespace,
    use_namespace,
)
from tern_client import BlockingAdmin, RetryPolicy
from tern_client.settings.contexts import contexts_file, read_contexts
from tern_client.settings.settings import split_urls
from tern_client.transport.credentials import CA_FILE, KEY_FILE
from tern_client.transport.endpoints import EndpointMalformed, Endpoints
from tern_wire.paths import PORT_NAMESRV

# Longer than an election or the restart of a proxy, and short enough for a person at a terminal.
AT_TERMINAL = RetryPolicy(deadline_ms=5_000)

Endpoint = Annotated[
    str,
    typer.Option(
        "--endpoint",
        envvar=ENDPOINT_VARIABLE,
        help="Proxies, separated by commas.  [default: the context, or the mesh in TERNMQ_DATA_DIR or .tern]",
    ),
]


def endpoints(option: str, data_dir: str = "") -> list[str]:
    """Return the URLs of the proxies. CommandFailed (exit 2) when one is no http URL, or an
    endpoint and a context are given; ContextUnusable.
    """
    context, is_option = command_context()
    if is_option and option != os.environ.get(ENDPOINT_VARIABLE, ""):
        raise CommandFailed("Two meshes", "Give --endpoint or --context, not both.", exit_code=2)
    if not is_option and (urls := _urls(option, "an endpoint", ENDPOINT_DEFAULT)):
        return urls
    if is_option or (context and not data_dir):
        return _of_context(context)
    found = _of_mesh("proxies", data_dir)
    if any(url.startswith("https:") for url in found):
        _trust_mesh(MeshFiles(data_dir or mesh_directory()).root)
    return found or _of_context("")


def name_servers(option: str, data_dir: str = "") -> list[str]:
    """Return the name servers of *option*, else of the mesh in *data_dir*, else the default one.
    CommandFailed (exit 2) when one is no http URL.
    """
    if urls := _urls(option, "a name server", f"http://127.0.0.1:{PORT_NAMESRV}"):
        return urls
    return _of_mesh("namesrvs", data_dir) or [f"http://127.0.0.1:{PORT_NAMESRV}"]


def _trust_mesh(root: Path) -> None:
    """Use the authority and the root key of a secure mesh in *root*, unless others are named.
    They apply to clients of this process only.
    """
    for variable, name in ((CA_FILE, "ca.crt"), (KEY_FILE, "root.key")):
        if (root / name).is_file():
            os.environ.setdefault(variable, str(root / name))


def _of_context(name: str) -> list[str]:
    """Return the proxies of the context *name*, "" for the current one, and use its namespace and
    credentials where no others are given.
    """
    known = read_contexts(contexts_file(os.environ))
    if not (name or known.current):
        return [ENDPOINT_DEFAULT]
    context = known.named(name or known.current)
    for variable, file in ((CA_FILE, context.ca_file), (KEY_FILE, context.key_file)):
        if file:
            os.environ.setdefault(variable, file)
    if context.namespace and not namespace():
        use_namespace(context.namespace)
    return list(context.endpoints)


def _of_mesh(role: str, data_dir: str) -> list[str]:
    return list(MeshFiles(data_dir or mesh_directory()).read_mesh().get(role, []))


def _urls(option: str, what: str, example: str) -> list[str]:
    urls = list(split_urls(option))
    for url in urls:
        try:
            Endpoints(url)
        except EndpointMalformed as error:
            shown, reason = error.fields["endpoint"], error.fields["reason"]
            raise CommandFailed(f"Not {what}", f"{shown} should look like {example}: {reason}.", exit_code=2) from error
    return urls


def administration(option: str) -> BlockingAdmin:
    """Return an Admin for the proxies of *option*.
    CommandFailed (exit 2) when one is no http URL.
    """
    return BlockingAdmin(endpoints(option), namespace=namespace(), policy=AT_TERMINAL)
