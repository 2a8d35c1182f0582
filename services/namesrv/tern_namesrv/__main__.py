"""`python -m tern_namesrv`: one name server in the foreground until SIGTERM or SIGINT."""

import os
import sys

from tern_namesrv.config import PREFIX, NamesrvSettings
from tern_service import load_settings, setup_logs


def main() -> None:
    """Read the settings, listen, serve and stop cleanly.

    Exit code 78 when the settings are unusable.
    """
    settings = load_settings(NamesrvSettings, prefix=PREFIX, environ=os.environ, arguments=sys.argv[1:])
    setup_logs("namesrv", level=settings.log_level)
    # After the settings: a wrong option or --help does not wait for the web framework.
    from tern_namesrv.app import run  # noqa: PLC0415

    run(settings)


if __name__ == "__main__":
    main()
