"""Messages over HTTP: sent, received, settled, and read by offset."""
