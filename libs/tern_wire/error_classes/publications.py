"""Errors of staged batches and their publication; part of the table in errors.py."""

from tern_wire.tern_error import TernError


class StageUnknown(TernError):
    code, status, title = "stage-unknown", 409, "A stage of the batch is not there as it was announced"
    fix = (
        "Stage {partition}/{attempt} of batch {batch} of query '{query}' has {actual} rows here, {expected} were announced: its time was over, it "
        "was given up, or its chunks went to another broker group. Nothing was published; write the batch again."
    )


class StageChunkDiffers(TernError):
    code, status, title = "stage-chunk-differs", 409, "The chunk is staged with other messages"
    fix = "Chunk {chunk} of stage {partition}/{attempt} is staged with other messages. Write the partition again under a new attempt."


class StageMoved(TernError):
    code, status, title = "stage-moved", 409, "Messages of the batch belong elsewhere by now"
    fix = (
        "A message group of topic '{topic}' has another queue or broker group than when it was staged. Nothing was published; write the batch "
        "again."
    )


class BatchPublished(TernError):
    code, status, title = "batch-published", 409, "The batch is published"
    fix = "Query '{query}' has published batch {last}, so batch {batch} takes no more messages. Do not write it again."


class PublicationHistoryLost(TernError):
    code, status, title = "publication-history-lost", 409, "Nothing is known of the query"
    fix = (
        "Batch {batch} is not the first of query '{query}', and nothing is known of those before: it may have been "
        "published already (a new mesh, another broker group, or 30 days of silence). If it was not, set acceptLostHistory=true for one run."
    )


class PublicationNotFound(TernError):
    code, status, title = "publication-not-found", 404, "There is no such query"
    fix = "Nothing is known of query '{query}': it has staged and published nothing, or not for 30 days."


class StagesFull(TernError):
    code, status, retryable, title = "stages-full", 503, True, "Too many messages are staged"
    fix = (
        "{what}: {actual}, at most {limit}. Smaller batches (Spark: maxRowsPerTrigger of the source) need less. `ternmq publication ls` "
        "lists what is staged, `rm` drops what nobody will publish."
    )


class BatchTooManyRows(TernError):
    code, status, title = "batch-too-many-rows", 413, "The batch has too many messages for one publication"
    fix = "Batch {batch} of query '{query}' has more than {limit} messages. Write smaller ones: for a stream set maxRowsPerTrigger of its source."


class QueryElsewhere(TernError):
    code, status, title = "query-elsewhere", 409, "A message does not belong where its query publishes"
    fix = (
        "Query '{query}' publishes in broker group '{broker_group}', and {what} belongs to '{known}'. A batch is published by one broker group: "
        "place the topic there alone (PUT /v1/topics/ and the name, then /placement), leave message groups and queues out, or write with delivery=at_least_once."
    )
