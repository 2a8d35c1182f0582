"""Which proxies a command talks to: --endpoint, TERNMQ_ENDPOINT, the mesh in .tern, or http://127.0.0.1:8080; in this order."""

from typing import Annotated

import typer

from tern_cli.failures import CommandFailed
from tern_cli.mesh_files import MeshFiles
from tern_wire.paths import PORT_NAMESRV, PORT_PROXY

Endpoint = Annotated[
    str,
    typer.Option(
        "--endpoint", envvar="TERNMQ_ENDPOINT", help="Proxies, separated by commas.  [default: the mesh in .tern]"
    ),
]


def endpoints(option: str, data_dir: str = ".tern") -> list[str]:
    """The URLs; CommandFailed (exit 2) when one is no http URL."""
    if option:
        urls = [url.strip() for url in option.split(",") if url.strip()]
        for url in urls:
            if not url.startswith(("http://", "https://")):
                raise CommandFailed(
                    "Not an endpoint", f"'{url}' should look like http://127.0.0.1:{PORT_PROXY}.", exit_code=2
                )
        return urls
    mesh = MeshFiles(data_dir).read_mesh()
    return list(mesh.get("proxies", [])) or [f"http://127.0.0.1:{PORT_PROXY}"]


def name_servers(data_dir: str = ".tern") -> list[str]:
    """The name servers of the mesh in *data_dir*, or the one at its usual port."""
    return list(MeshFiles(data_dir).read_mesh().get("namesrvs", [])) or [f"http://127.0.0.1:{PORT_NAMESRV}"]
