"""Messages that have failed for the last time, decided purely: burial and redelivery."""
