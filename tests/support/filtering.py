"""What a filter says of a message whose properties are decoded already: the reading of records left out, so that both can be compared."""

from collections.abc import Mapping

from tern_wire.filters import Filter


def matches_properties(wanted: Filter, properties: Mapping[str, str]) -> bool:
    """Whether a message with these *properties* (its tag is TAGS, its keys are KEYS) matches, exactly."""
    return wanted._holds([properties.get(name) for name in wanted._reader.names])
