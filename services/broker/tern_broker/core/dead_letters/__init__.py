"""Messages that have failed for the last time, decided purely: how they are buried and delivered again."""
