"""Work that nobody asks for: saving, trimming, scrubbing, firing timers, burying the dead, sharing room."""
