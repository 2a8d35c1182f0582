"""The administration of a mesh for jobs: groups, durations, and an Admin of the job's arguments."""

import argparse
from argparse import Namespace

from tern_client import BlockingAdmin
from tern_wire.times import parse_duration_ms, parse_time_ms


def open_admin(options: Namespace) -> BlockingAdmin:
    """Return an Admin for the endpoint and the credentials of *options*."""
    urls = [url.strip() for url in options.endpoint.split(",") if url.strip()]
    return BlockingAdmin(urls, key_file=options.key_file, ca_file=options.ca_file)


def chosen_groups(admin: BlockingAdmin, text: str) -> list[str]:
    """Return the groups of *text*, separated by commas; "" for all groups of the mesh."""
    given = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    return given or sorted(str(found["group"]) for found in admin.groups())


def duration_argument(text: str) -> int:
    """Return the milliseconds of an argument such as `5m`, as argparse calls it."""
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def time_argument(text: str) -> int:
    """Return the milliseconds since 1970 of an argument such as `2026-01-31T12:00:00Z`."""
    try:
        return parse_time_ms(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
