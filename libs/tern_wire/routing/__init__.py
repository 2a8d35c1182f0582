"""Which broker groups there are, what they host, and which of them owns a key."""
