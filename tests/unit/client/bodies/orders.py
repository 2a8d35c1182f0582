"""The types of the tests of bodies: one of each kind that a program may use."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import TypedDict
from uuid import UUID

import msgspec
import pydantic
from pydantic.dataclasses import dataclass as pydantic_dataclass


class State(StrEnum):
    """How far an order is."""

    NEW = "new"
    PAID = "paid"


@dataclass
class Item:
    """A plain dataclass."""

    name: str
    count: int = 1


@dataclass
class Order:
    """A plain dataclass with another one inside."""

    id: int
    items: list[Item] = field(default_factory=list)
    at: datetime | None = None


class StructOrder(msgspec.Struct):
    """A msgspec Struct."""

    id: UUID
    price: Decimal
    state: State = State.NEW
    raw: bytes = b""


class ModelOrder(pydantic.BaseModel):
    """A pydantic model with a rule of its own."""

    id: int = pydantic.Field(gt=0)
    at: datetime | None = None


@pydantic_dataclass
class PydanticOrder:
    """A dataclass of pydantic."""

    id: int


@dataclass
class Mixed:
    """A plain dataclass with a model inside."""

    model: ModelOrder


class RowOrder(TypedDict):
    """A dict with known keys."""

    id: int


class Foreign:
    """A class that says nothing of its fields."""


AT = datetime(2026, 1, 31, 12, 30, 15, 250_000, tzinfo=UTC)
