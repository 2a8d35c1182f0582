"""Messages that wait for their delivery time, over HTTP: listed, recalled."""
