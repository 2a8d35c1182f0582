"""`python new_key.py NAME`: create a principal of the deployment with its grants, and its key.

The one-shot services of the profiles run this before the services that need the key. If the key
exists, only the grants change.

    /secrets/ca.crt      the authority of the proxies' certificates
    /secrets/client.key  the key, for TERNMQ_KEY_FILE; readable for its owner alone, never printed
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

CLUSTER, SECRETS = Path("/cluster"), Path("/secrets")
# The grants of each principal, the minimum for its work.
GRANTS = {
    "flights": ("ALL", "--topic", "flights*", "--group", "flights*"),
    "load": ("ALL", "--topic", "load-*", "--group", "load-*"),
    "observe": ("DESCRIBE", "--cluster"),
}


def main() -> int:
    """Return 0 when the key exists; otherwise the exit code of the failed command."""
    name = sys.argv[1]
    if code := ternmq("acl", "grant", name, *GRANTS[name]):
        return code
    shutil.copyfile(CLUSTER / "ca.crt", SECRETS / "ca.crt")
    key = SECRETS / "client.key"
    return 0 if key.exists() else ternmq("key", "create", name, "--out", str(key))


def ternmq(*arguments: str) -> int:
    """Return the exit code of `ternmq ...`, which prints its own errors."""
    command = [sys.executable, "-P", "-m", "tern_cli", *arguments]
    return subprocess.run(command, env=dict(os.environ), check=False).returncode  # noqa: S603 - our own program


if __name__ == "__main__":
    sys.exit(main())
