"""The order service of examples/orders while the leading broker and a proxy die: each order billed once, in order per customer, none lost."""

import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx

from tern_client import BlockingAdmin
from tests.support.mesh.mesh import Mesh, eventually

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "orders"
ORDERS, CUSTOMERS = int(os.environ.get("TERNMQ_EXAMPLE_ORDERS", "160")), 8
WITHIN_S = 60 + ORDERS / 5


def item_of(order: int) -> str:
    """Every twentieth order is a vase, whose tax was forgotten."""
    return "vase" if order % 20 == 7 else ("cup", "plate")[order % 2]


@contextmanager
def process(name: str, environment: dict[str, str], *words: str) -> Iterator[None]:
    """A program in the example's folder; its output is shown when the block fails."""
    log = Path(environment["SHOP_DATABASE"].removeprefix("sqlite:///")).with_name(f"{name}.log")
    with (
        log.open("ab") as out,
        subprocess.Popen(
            [sys.executable, "-m", *words], cwd=FOLDER, env=environment, stdout=out, stderr=out
        ) as running,
    ):
        try:
            yield
        except BaseException:
            print(f"--- {name}\n{log.read_text()[-6_000:]}")
            raise
        finally:
            running.terminate()
            try:
                running.wait(30)
            finally:
                running.kill()


class Shop:
    """The service's HTTP port and database. Owner: one test."""

    def __init__(self, port: int, database: Path) -> None:
        self.url, self.database = f"http://127.0.0.1:{port}", database
        self.placed, self._lock = 0, threading.Lock()

    def rows(self, what: str) -> list[tuple[int, ...]]:
        """The result of a query."""
        with closing(sqlite3.connect(self.database, timeout=60)) as connection:
            return connection.execute(what).fetchall()

    def is_there(self) -> bool:
        """Whether it answers."""
        try:
            return httpx.get(f"{self.url}/openapi.json", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    def place_all(self, customer: int) -> None:
        """Place the orders of a customer one after the other; pay every third one. Repeat what fails for now."""
        with httpx.Client(timeout=60, trust_env=False) as client:
            for order in range(customer, ORDERS, CUSTOMERS):
                wanted = {"id": order, "customer": f"c{customer}", "item": item_of(order)}
                self._ask(client, f"{self.url}/orders", wanted)
                with self._lock:
                    self.placed += 1
                if order % 3 == 0:
                    self._ask(client, f"{self.url}/orders/{order}/payment")

    def _ask(self, client: httpx.Client, url: str, document: object = None) -> None:
        eventually(lambda: client.post(url, json=document).status_code == 200, within_s=WITHIN_S, what=f"200 at {url}")


def test_each_order_is_billed_once_and_in_order_while_a_leader_and_a_proxy_die(mesh: Mesh, tmp_path: Path) -> None:
    """Orders of 8 customers. Vases become dead letters, and are billed after the bug is mended; who paid is not reminded."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shop = Shop(port, tmp_path / "shop.db")
    endpoints = f"{mesh.endpoint},http://127.0.0.1:{mesh.port_base + 1}"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(FOLDER.parents[1] / "libs"), os.environ.get("PYTHONPATH", "")]),
        "TERNMQ_ENDPOINT": endpoints,
        "SHOP_DATABASE": f"sqlite:///{shop.database}",
        "SHOP_REMIND_AFTER": "2s",
    }
    vases = [order for order in range(ORDERS) if item_of(order) == "vase"]

    def kill() -> None:
        eventually(lambda: shop.placed >= ORDERS // 3, within_s=WITHIN_S, what="a third of the orders")
        mesh.kill(mesh.leader())
        eventually(lambda: shop.placed >= ORDERS * 2 // 3, within_s=WITHIN_S, what="two thirds of the orders")
        mesh.kill("proxy-0")

    def billed() -> int:
        return shop.rows("SELECT count(*) FROM orders WHERE number > 0")[0][0]

    with ExitStack() as running:
        running.enter_context(process("app", environment, "uvicorn", "shop:app", "--port", str(port)))
        eventually(shop.is_there, within_s=60, what="the service")
        with process("worker", environment, "tern_cli", "worker", "shop:worker"), ThreadPoolExecutor() as threads:
            killer = threads.submit(kill)
            for placing in [threads.submit(shop.place_all, customer) for customer in range(CUSTOMERS)]:
                placing.result()
            killer.result()
            eventually(lambda: billed() == ORDERS - len(vases), within_s=WITHIN_S, what="all but the vases billed")
        mended = {**environment, "SHOP_TAXES": json.dumps({"cup": 7, "plate": 7, "vase": 19})}
        running.enter_context(process("mended", mended, "tern_cli", "worker", "shop:worker"))
        with BlockingAdmin(endpoints.split(",")) as admin:

            def dead() -> int:
                page = admin.dead_letters("shop-billing")
                count = len(page["messages"])
                while page.get("next_cursor"):
                    page = admin.dead_letters("shop-billing", cursor=page["next_cursor"])
                    count += len(page["messages"])
                return count

            eventually(lambda: billed() + dead() == ORDERS, within_s=WITHIN_S, what="each vase billed or dead")
            assert dead() > 0
            admin.redrive("shop-billing", everything=True)
            eventually(lambda: billed() == ORDERS, within_s=WITHIN_S, what="the vases billed")
        unpaid = sum(1 for order in range(ORDERS) if order % 3)
        eventually(
            lambda: shop.rows("SELECT sum(reminders) FROM orders")[0][0] >= unpaid, within_s=WITHIN_S, what="reminders"
        )
    assert shop.rows("SELECT count(*), max(reminders) FROM orders WHERE id % 3 > 0") == [(unpaid, 1)]
    assert shop.rows("SELECT count(*) FROM ternmq_outbox") == [(0,)]
    numbers: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for order, number in shop.rows("SELECT id, number FROM orders ORDER BY number"):
        numbers[order % CUSTOMERS].append((order, number))
    assert sum(map(len, numbers.values())) == ORDERS
    for of_customer in numbers.values():
        assert [number for _, number in of_customer] == list(range(1, len(of_customer) + 1))
        in_order = [order for order, _ in of_customer if item_of(order) != "vase"]
        assert in_order == sorted(in_order)
