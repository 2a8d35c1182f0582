"""Commands that `ternmq up` suggests. They work as printed, from any folder.

Pure: folder and environment are arguments.
"""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from tern_cli.variables import DATA_DIR, DATA_DIR_VARIABLE, ENDPOINT_DEFAULT, ENDPOINT_VARIABLE


def try_it(endpoint: str, root: Path, *, folder: Path, environ: Mapping[str, str]) -> list[str]:
    """Return commands for the mesh in *root* (absolute) at *endpoint*, first the needed exports.
    *folder* and *environ* are those of the shell in which the commands will be typed.
    """
    exports: list[str] = []
    if folder / (environ.get(DATA_DIR_VARIABLE) or DATA_DIR) != root:
        exports.append(f"{DATA_DIR_VARIABLE}={shlex.quote(str(root))}")
    if (environ.get(ENDPOINT_VARIABLE) or ENDPOINT_DEFAULT) != endpoint:
        exports.append(f"{ENDPOINT_VARIABLE}={shlex.quote(endpoint)}")
    exported = [f"export {' '.join(exports)}"] if exports else []
    if endpoint.startswith("https://"):
        # The mesh's root key, which is in its directory, administers; it may neither send nor
        # receive.
        return [
            *exported,
            "ternmq topic create demo",
            "ternmq group create readers",
            "ternmq key create app --out app.key",
            "ternmq acl grant app ALL --topic demo --group readers",
            "ternmq --key-file app.key send demo hello",
            "ternmq --key-file app.key recv demo readers --wait 5s",
            "ternmq status",
        ]
    return [
        *exported,
        "ternmq topic create demo",
        f"curl -d hello '{endpoint}/v1/topics/demo/messages'",
        "ternmq group create readers",
        "ternmq recv demo readers --wait 5s",
        "ternmq status",
    ]


def with_data_dir(command: str, root: Path) -> str:
    """Return *command* of `ternmq` with the --data-dir that this folder and environment require."""
    usual = Path.cwd() / (os.environ.get(DATA_DIR_VARIABLE) or DATA_DIR)
    return command if usual == root else f"{command} --data-dir {shlex.quote(str(root))}"
