"""`python new_key.py NAME`: a principal of the deployment with its grants, and a key for it in /secrets. The one-shot services of the
profiles run it before what needs the key; where one is it changes nothing but the grants.

    /secrets/ca.crt      the authority that the proxies' certificates are of
    /secrets/client.key  the key, for TERNMQ_KEY_FILE; readable for its owner alone, and printed nowhere
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

CLUSTER, SECRETS = Path("/cluster"), Path("/secrets")
# What each may do: as little as its work needs.
GRANTS = {
    "flights": ("ALL", "--topic", "flights*", "--group", "flights*"),
    "load": ("ALL", "--topic", "load-*", "--group", "load-*"),
    "observe": ("DESCRIBE", "--cluster"),
}


def main() -> int:
    """0 when the key is there; otherwise the exit code of the command that failed."""
    name = sys.argv[1]
    if code := ternmq("acl", "grant", name, *GRANTS[name]):
        return code
    shutil.copyfile(CLUSTER / "ca.crt", SECRETS / "ca.crt")
    key = SECRETS / "client.key"
    return 0 if key.exists() else ternmq("key", "create", name, "--out", str(key))


def ternmq(*arguments: str) -> int:
    """The exit code of `ternmq ...`, which says itself what is wrong."""
    command = [sys.executable, "-P", "-m", "tern_cli", *arguments]
    return subprocess.run(command, env=dict(os.environ), check=False).returncode  # noqa: S603 - our own program


if __name__ == "__main__":
    sys.exit(main())
