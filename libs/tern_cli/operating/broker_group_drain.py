"""`ternmq broker-group drain`: empty a broker group before its removal from the mesh.

The write permission is withdrawn at all name servers, the topics are placed on other broker groups,
and older messages are read to the end.

Law: exit code 0 with --wait means that nothing in the group is still needed. The command may be
interrupted and repeated.
"""

import time
from dataclasses import replace
from typing import Annotated, Any

import typer

from tern_cli.commands.admin import duration_ms
from tern_cli.commands.mesh import DataDir
from tern_cli.endpoint import Endpoint, endpoints
from tern_cli.failures import CommandFailed
from tern_cli.operating.broker_group import BrokerGroup, tell_left
from tern_cli.operating.namesrv import NameServers, name_server_urls
from tern_cli.output import Format, Output, show_json
from tern_cli.progress import counting, waiting
from tern_cli.variables import DATA_DIR
from tern_cli.views.broker_group_view import failure_lines, in_short, left_lines, move_lines, moving_lines
from tern_cli.views.namesrv_view import permit
from tern_cli.views.topic_moves import ClusterAdmin, Move, TopicName, place_all
from tern_wire.errors import BrokerGroupNotFound

# Pause between two checks; it doubles each time, since draining takes seconds or minutes.
POLL_INTERVAL_S, POLL_INTERVAL_MAX_S = 0.5, 10.0


def drain_broker_group(
    name: BrokerGroup,
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until nothing in it is needed any more.")] = False,
    timeout: Annotated[str, typer.Option(help="Maximum time of --wait.")] = "1h",
    endpoint: Endpoint = "",
    namesrv: NameServers = None,
    data_dir: DataDir = DATA_DIR,
    output: Output = Format.TABLE,
) -> None:
    """Empty a broker group, so that it can be removed from the mesh.

    Withdraws its write permission, places its topics on the other writable broker
    groups, and shows the messages left to read. With --wait the command continues
    until everything is read and every topic has moved, which takes 10 minutes or
    more; only then is the exit code 0. Repeat the command at any time. `ternmq
    broker-group restore` undoes the withdrawal.

    [bold]Examples[/bold]

    ternmq broker-group drain broker-b
    ternmq broker-group drain broker-b --wait --timeout 30m
    ternmq broker-group drain broker-b --wait -o json
    """
    patience_ms = duration_ms("--timeout", timeout)
    with ClusterAdmin(endpoints(endpoint, data_dir)) as admins:
        others = _others(admins, name)
        permit(name_server_urls(namesrv, data_dir), name, writable=False, data_dir=data_dir)
        drain = _Drain(admins, name, others)
        drain.place()
        left = drain.follow(patience_ms / 1_000) if wait else admins.whole.broker_group(name)
    moves = list(drain.moves.values())
    if output is Format.JSON:
        show_json({**left, "moves": [move.document() for move in moves]})
    else:
        for line in move_lines(moves, f"ternmq broker-group drain {name} --wait"):
            typer.echo(line)
        tell_left(left, output, is_withdrawn=True)
        if left["is_drained"] and drain.is_over:
            typer.echo(f"Stop its processes: the mesh goes on without {name}.")
    if failures := failure_lines(moves):
        detail = f"Repeat `ternmq broker-group drain {name}`: finished moves stay."
        raise CommandFailed("Not every topic is placed", detail, lines=failures)


class _Drain:
    """Moves of topics from broker group *name* to *others*. Owner: one command."""

    def __init__(self, admins: ClusterAdmin, name: str, others: list[str]) -> None:
        self._admins, self._name, self._others = admins, name, others
        self.moves: dict[TopicName, Move] = {}

    @property
    def is_over(self) -> bool:
        """Return whether no topic is moving."""
        return all(move.is_over for move in self.moves.values())

    def place(self) -> None:
        """Place every topic elsewhere where possible, and complete moves whose time has come."""
        rows = self._admins.whole.broker_group_topics(self._name)
        named = {
            TopicName(row["namespace"], row["topic"])
            for row in rows
            if self._name in row["broker_groups"] or self._name in row["before"]
        }
        known = {topic for topic, move in self.moves.items() if not move.is_over}
        now_ms = time.time() * 1_000
        due = [topic for topic in sorted(named | known) if self._is_due(topic, now_ms)]
        with counting(len(due), f"topics from {self._name}") as step:
            for move in place_all(self._admins, due, self._wanted, step):
                before = self.moves.get(move.topic)
                # A move that is completed now was begun by this command as well.
                changed = move.changed or (before is not None and before.changed)
                self.moves[move.topic] = replace(move, changed=changed)

    def follow(self, patience_s: float) -> dict[str, Any]:
        """Place and check repeatedly until nothing is left and no topic moves.
        CommandFailed when that takes longer than *patience_s*.
        """
        give_up_s, interval_s = time.monotonic() + patience_s, POLL_INTERVAL_S
        with waiting(f"{self._name}: checking the remaining contents") as tell:
            while True:
                left = self._admins.whole.broker_group(self._name)
                if left["is_drained"] and self.is_over:
                    return left
                tell(in_short(left, sum(move.is_moving for move in self.moves.values())))
                if time.monotonic() + interval_s > give_up_s:
                    break
                time.sleep(interval_s)
                interval_s = min(2 * interval_s, POLL_INTERVAL_MAX_S)
                if left["placed"] or left["moving"] or not self.is_over:
                    self.place()
        raise CommandFailed(
            "The broker group is not drained yet",
            f"Repeat `ternmq broker-group drain {self._name} --wait`, with a longer --timeout perhaps. Nothing is lost.",
            lines=[*left_lines(left), *moving_lines(self.moves.values()), *failure_lines(self.moves.values())],
        )

    def _is_due(self, topic: TopicName, now_ms: float) -> bool:
        move = self.moves.get(topic)
        return move is None or bool(move.failure) or move.until_ms <= now_ms

    def _wanted(self, placed: dict[str, Any]) -> list[str]:
        """Return a topic's new broker groups: its present ones without *name*, or all others."""
        groups: list[str] = placed["broker_groups"]
        return [group for group in groups if group != self._name] or self._others


def _others(admins: ClusterAdmin, name: str) -> list[str]:
    """Return the other broker groups that are writable and have a leader.
    CommandFailed when there is none: some group must accept the messages.
    """
    known = admins.whole.cluster()["broker_groups"]
    if name not in known:
        raise BrokerGroupNotFound(broker_group=name, known=", ".join(sorted(known)) or "none")
    others = sorted(each for each, group in known.items() if each != name and group["writable"] and group["leader"])
    if not others:
        raise CommandFailed(
            "It is the last broker group",
            f"No other broker group may be written and has a leader, so no group could accept the messages for {name}. Start another one and run "
            "`ternmq broker-group join` with its name, or `ternmq broker-group restore`, first.",
        )
    return others
