"""The parser of server-sent events as WHATWG HTML 9.2.6 says it, to the letter, for tests of what we send."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SentEvent:
    """One dispatched event."""

    name: str
    data: str
    last_event_id: str


@dataclass(slots=True)
class EventStream:
    """What an EventSource makes of the bytes it gets, in pieces of any size."""

    events: list[SentEvent] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    last_event_id: str = ""
    retry_ms: int = -1
    _left: str = ""
    _data: str = ""
    _name: str = ""
    _id: str = ""

    def feed(self, piece: bytes) -> list[SentEvent]:
        """The events that *piece* completes. Our streams end no line with CR, which would need a look at the next piece."""
        before = len(self.events)
        self._left += piece.decode()
        *lines, self._left = self._left.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        for line in lines:
            self._take(line)
        return self.events[before:]

    def _take(self, line: str) -> None:
        if not line:
            self._dispatch()
        elif line.startswith(":"):
            self.comments.append(line[1:])
        else:
            name, _, value = line.partition(":")
            self._field(name, value.removeprefix(" "))

    def _field(self, name: str, value: str) -> None:
        if name == "event":
            self._name = value
        elif name == "data":
            self._data += value + "\n"
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isascii() and value.isdecimal():
            self.retry_ms = int(value)

    def _dispatch(self) -> None:
        self.last_event_id = self._id
        data, name = self._data, self._name
        self._data = self._name = ""
        if data:
            self.events.append(SentEvent(name or "message", data.removesuffix("\n"), self._id))
