"""Entry point of `python -m tern_cli` and of the console script `ternmq`."""

from tern_cli.app import app


def main() -> None:
    """Run the command line and end the process with its exit code."""
    app()


if __name__ == "__main__":
    main()
