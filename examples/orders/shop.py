"""An order service: README.md says what it shows, and how it runs."""

import contextlib
import json
import os
from collections.abc import AsyncIterator

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy import create_engine, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tern_client import AlreadyDelivered, NotScheduled, ReceivedMessage, TernError, Worker, connect_blocking
from tern_client.outbox import Inbox, Outbox, Relay

PRICES, BILLING = {"cup": 900, "plate": 1_400, "vase": 4_200}, "shop-billing"
TAXES: dict[str, int] = json.loads(os.environ.get("SHOP_TAXES", '{"cup": 7, "plate": 7}'))  # the vase was forgotten
REMIND_AFTER = os.environ.get("SHOP_REMIND_AFTER", "1h")


class Tables(DeclarativeBase):
    """Those of the shop, of its outbox and of its inbox."""


class Order(Tables):
    """One order. *number*: its place among its customer's bills; 0 before it is billed."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str] = mapped_column(index=True)
    total: Mapped[int]
    is_paid: Mapped[bool] = mapped_column(default=False)
    number: Mapped[int] = mapped_column(default=0)
    reminders: Mapped[int] = mapped_column(default=0)
    recall_handle: Mapped[str] = mapped_column(default="")


class Placed(BaseModel):
    """What a client orders, and what the message says."""

    id: int
    customer: str
    item: str


engine = create_engine(os.environ.get("SHOP_DATABASE", "sqlite:///shop.db"), connect_args={"timeout": 60})
outbox, inbox = Outbox(engine, metadata=Tables.metadata), Inbox(engine, metadata=Tables.metadata)
mesh = connect_blocking()  # TERNMQ_ENDPOINT, a context, or this machine
producer, admin, worker = mesh.producer(), mesh.admin(), Worker(mesh.settings.endpoints)


@contextlib.asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Make what is missing, and relay the outbox while the service runs."""
    Tables.metadata.create_all(engine)
    for topic, group in (("shop-prices", "shop-pricing"), ("shop-reminders", "shop-mail"), ("shop-orders", BILLING)):
        admin.create_topic(topic)
        admin.create_group(group)
    admin.alter_group(BILLING, fifo=True, max_attempts=5, retry={"policy": "custom", "delays": ["100ms"]})
    async with Relay(outbox, mesh.settings.endpoints):
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders")
def place(placed: Placed) -> dict[str, int]:
    """Take an order at the price of the moment. It may be repeated: an id is one order."""
    try:
        price = producer.request("shop-prices", placed.item, timeout="5s").decode()["price"]
    except TernError as error:
        raise HTTPException(503, f"no price now: {error.detail}") from error
    with Session(engine) as session, session.begin():
        if session.get(Order, placed.id) is None:
            session.add(Order(id=placed.id, customer=placed.customer, total=price))
            outbox.add(session, "shop-orders", placed, message_group=placed.customer)
    return {"id": placed.id, "price": price}


@app.post("/orders/{order_id}/payment")
def pay(order_id: int) -> None:
    """Note a payment, and cancel the reminder. One that is on its way finds the order paid."""
    with Session(engine) as session, session.begin():
        if (order := session.get(Order, order_id)) is None:
            raise HTTPException(404, f"there is no order {order_id}")
        order.is_paid, handle = True, order.recall_handle
    with contextlib.suppress(AlreadyDelivered, NotScheduled):
        if handle:
            admin.recall("shop-reminders", handle)


@worker.on("shop-prices", group="shop-pricing", concurrency=8)
async def price_of(item: str) -> dict[str, int]:
    """What a handler returns is the reply."""
    return {"price": PRICES[item]}


@worker.on("shop-orders", group=BILLING, concurrency=8, ordered=True)
def bill(message: ReceivedMessage) -> None:
    """Bill an order: once, and behind the earlier ones of its customer."""
    placed = message.decode(Placed)
    tax = TAXES[placed.item]  # a KeyError gives the message back; after five attempts it is a dead letter
    key = f"remind-{placed.id}"  # a repeat sends no second reminder
    reminder = producer.send("shop-reminders", {"id": placed.id}, delay=REMIND_AFTER, idempotency_key=key)
    with Session(engine) as session, session.begin():
        if inbox.once(session, message, group=BILLING):
            order = session.get_one(Order, placed.id)
            billed = select(func.count()).where(Order.customer == order.customer, Order.number > 0)
            order.number, order.total = (session.scalar(billed) or 0) + 1, order.total * (100 + tax) // 100
            order.recall_handle = reminder.recall_handle


@worker.on("shop-reminders", group="shop-mail", concurrency=2)
def remind(message: ReceivedMessage) -> None:
    """Remind who has not paid."""
    with Session(engine) as session, session.begin():
        if inbox.once(session, message, group="shop-mail"):
            order = session.get_one(Order, message.decode()["id"])
            order.reminders += not order.is_paid
