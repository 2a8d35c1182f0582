"""Replays: rows of an archive or of topics become messages of a topic again, exactly once.

    STATE/replays/TO-ID.plan.json    what is replayed, from where to where; never changes
    STATE/replays/TO-ID.note.json    how many batches are published, and their rows

A replay is a query of publications (`PUT .../staged`, `POST /v1/publications`): the plan names it,
and fixes which rows are in which batch. So a run that was killed is continued by the same command.
"""
