"""The rows of the overall table."""

REDBOX = "redbox"
PLAIN = "plain Redis Streams"
COALESCED = "the same, the puts of one turn in one pipeline"
XDEL = "the same, XDEL after XACK"
FASTSTREAM_BATCH = "FastStream, batch subscriber"
FASTSTREAM = "FastStream, per message"
BULLMQ = "BullMQ (Python), pooled client"
DRAMATIQ = "dramatiq, 32 threads"
TASKIQ = "taskiq-redis, streams"
SAQ = "SAQ"
ARQ = "arq"
STREAQ = "streaQ"
VALKEY = "redbox on the embedded Valkey"
ROWS = (
    *(REDBOX, PLAIN, COALESCED, XDEL, FASTSTREAM_BATCH, FASTSTREAM),
    *(BULLMQ, DRAMATIQ, TASKIQ, SAQ, ARQ, STREAQ, VALKEY),
)
