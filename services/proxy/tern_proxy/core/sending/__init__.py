"""Messages on their way in, decided purely: read from a request, checked against their topic, encoded, answered."""
