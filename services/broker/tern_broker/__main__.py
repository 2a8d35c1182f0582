"""`python -m tern_broker`: one broker node in the foreground until SIGTERM or SIGINT."""

import os
import sys

from tern_broker.config import PREFIX, BrokerConfig
from tern_service import load_settings, setup_logs


def main() -> None:
    """Read the settings, recover, join the group, serve. Exit codes: 78 unusable settings or
    directory, 74 the disk failed.
    """
    config = load_settings(BrokerConfig, prefix=PREFIX, environ=os.environ, arguments=sys.argv[1:])
    setup_logs("broker", level=config.log_level)
    # After the settings: --help and a mistyped option need not wait for numpy.
    from tern_broker.run import run  # noqa: PLC0415

    run(config)


if __name__ == "__main__":
    main()
