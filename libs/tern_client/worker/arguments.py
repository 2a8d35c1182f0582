"""What a handler takes, read once from its annotation: messages, bodies, or lists of them.

    async def bill(message: ReceivedMessage)        one message
    async def bill(order: Order)                    its body as a value of any type of `decode`
    async def bill(messages: list[ReceivedMessage]) a batch
    def bill(...)                                   the same in a thread

The types of a body are those of `bodies/decoders.py`.
"""

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tern_client.bodies.decoders import Decoder, decoder_for
from tern_client.calls.models import ReceivedMessage
from tern_client.calls.pulling import PulledMessage
from tern_client.worker.outcomes import BodyRefused

Message = ReceivedMessage | PulledMessage


@dataclass(frozen=True, slots=True)
class Handler:
    """A user's function and what it takes. *decoder* None: the message itself."""

    call: Callable[[Any], Any]
    name: str
    is_async: bool
    is_batch: bool
    decoder: Decoder | None

    def one(self, message: Message) -> object:
        """Return what the handler takes for *message*; BodyRefused."""
        if self.decoder is None:
            return message
        try:
            return self.decoder(message.body, message.content_type, message.properties, message.message_id)
        except Exception as error:
            raise BodyRefused(str(error) or type(error).__name__) from error


def read_handler(function: Callable[[Any], Any], *, is_broadcast: bool) -> Handler:
    """Return what *function* takes. TypeError names the parameter, and lists what is allowed."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    code = function if inspect.isroutine(function) else getattr(function, "func", type(function).__call__)
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise TypeError(f"{name} is a generator; a handler is a function, or an async function, that returns")
    parameter = _parameter(function, name)
    annotation = _annotation(code, parameter, name)
    is_batch = typing.get_origin(annotation) is list
    element = typing.get_args(annotation)[0] if is_batch else annotation
    whole = PulledMessage if is_broadcast else ReceivedMessage
    try:
        decoder = None if element is whole else _decoder(element)
    except TypeError as error:
        raise TypeError(
            f"parameter {parameter.name!r} of {name} is annotated with {_shown(annotation)}; "
            f"{'with broadcast=True ' if is_broadcast else ''}a handler takes {whole.__name__}, bytes or the type of a "
            f"body, or a list of these{f': {error}' if str(error) else ''}"
        ) from error
    is_async = inspect.iscoroutinefunction(code)
    return Handler(call=function, name=name, is_async=is_async, is_batch=is_batch, decoder=decoder)


def _parameter(function: Callable[[Any], Any], name: str) -> inspect.Parameter:
    needed = [
        each
        for each in inspect.signature(function).parameters.values()
        if each.default is each.empty and each.kind not in {each.VAR_POSITIONAL, each.VAR_KEYWORD}
    ]
    if len(needed) != 1 or needed[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise TypeError(f"{name} takes {len(needed)} arguments; a handler takes one: the message, its body, or a list")
    return needed[0]


def _annotation(code: Any, parameter: inspect.Parameter, name: str) -> Any:
    try:
        hints = typing.get_type_hints(code)
    except NameError as error:
        raise TypeError(
            f"the annotation of parameter {parameter.name!r} of {name} cannot be read ({error}); "
            "import its type at the top of the module, not under TYPE_CHECKING"
        ) from error
    return hints.get(parameter.name, parameter.annotation)


def _decoder(annotation: object) -> Decoder:
    """Return the decoder of a body; TypeError for no annotation, for messages of the other kind,
    and for what no body can fill.
    """
    if annotation is inspect.Parameter.empty or annotation in {ReceivedMessage, PulledMessage}:
        raise TypeError
    return decoder_for(annotation)


def _shown(annotation: object) -> str:
    if annotation is inspect.Parameter.empty:
        return "nothing"
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
