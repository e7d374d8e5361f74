"""Every limit that a client can meet, with its unit and its reason. Settings are in `headwater.settings`."""

KIB = 1024
MIB = 1024 * KIB
SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
DAY_US = 24 * 60 * MINUTE_US

# -- What a client may send -------------------------------------------------------------------------------------

APPEND_BYTES_MAX = 16 * MIB
"""The body of one append or create: small enough to upload from a phone and to fit into one commit."""
MESSAGES_PER_APPEND_MAX = 262_144
COMMAS_PER_APPEND_MAX = 1_048_576
"""The elements of one JSON array, and its commas, which are counted first because that is fast. Splitting larger
arrays would block the event loop for all other clients."""
JSON_DEPTH_MAX = 512
"""Levels of arrays and objects in one JSON message: every client can parse that, and what a Python interpreter allows
varies."""
BATCH_BYTES_MAX = 32 * MIB
BATCH_FRAMES_MAX = 512
"""One append-batch: its body, and how many appends it may contain."""
SNAPSHOT_BYTES_MAX = 128 * MIB
"""One snapshot; it is stored in its own file and never passes through the log."""
ATTRS_BYTES_MAX = 16 * KIB
"""A stream's attributes as JSON; they are kept in memory."""
LISTING_MAX = 1_000
"""Streams, or buckets, on one page of a listing."""
BULK_BYTES_MAX = 32 * MIB
BULK_ROWS_MAX = 100_000
"""Appends to many streams in one request: its body, and its number of rows; all of them are held in memory."""
DESCRIBE_STREAMS_MAX = 100_000
"""Streams described in one response, which is built in memory."""
SCAN_RANGES_MAX = 100_000
"""Ranges scanned, or records located, by one request; all of them as of one instant."""
RANGES_COMMAS_MAX = 524_288
"""Commas in a describe, locate or scan request, counted before the body is decoded: counting is fast, decoding a body
full of tiny elements would block the event loop for seconds. The largest valid request has 400,000."""
TAIL_STREAMS_MAX = 1_000
TAIL_URL_STREAMS_MAX = 50
"""Streams followed on one connection, named in the body or in the URL; a batch for each is sent when it begins."""
TAIL_BYTES_MAX = MIB
"""The body that names them: names of the greatest length, even if every character is escaped, take 0.9 MiB."""
URI_BYTES_MAX = 8 * KIB
"""The request target; names are short, so a longer one is a mistake."""
HEADERS_BYTES_MAX = 32 * KIB
"""All header lines of one request together."""
HEADERS_MAX = 100
"""Header lines of one request."""
NAME_BYTES_MAX = 122
"""A stream's name with its bucket, as UTF-8: fits into a file name and an object key, with room for suffixes."""
CONTENT_TYPE_BYTES_MAX = 255
PRODUCER_ID_BYTES_MAX = 255
STREAM_SEQ_BYTES_MAX = 255
"""Header values that are kept in memory as long as the stream exists."""
NUMBER_MAX = 2**53 - 1
"""Epochs and sequence numbers: the largest integer that JavaScript represents exactly."""
TTL_SECONDS_MAX = 10**11
"""About three thousand years; keeps every deadline within 64 bits of microseconds."""

# -- What a server does at once ---------------------------------------------------------------------------------

SCANS_MAX = 64
"""Scans in progress; each has a window of up to 8 MiB in memory and pins what it has yet to send, however slowly its
client reads."""
BULK_APPENDS_MAX = 16
"""Bulk appends in progress; each holds its body in memory, and the rows decoded from it."""
BULK_WAITING_MAX = 256
BULK_WAIT_SECONDS_MAX = 30.0
"""Bulk appends that wait for one of these to end, before their bodies are read, and for how long; each costs what has
arrived of its body with its head."""
DESCRIPTORS_RESERVE = 128
"""File descriptors for the journal, images and the lake. The others are for connections, and for the snapshots that
they transfer, one each."""
RESERVED_CONNECTIONS = 256
"""Connections beyond the maximum that may ask how the server is; a new one takes the place of the oldest."""

PAGE_MESSAGES_MAX = 16_384
"""Messages in one page or SSE event, however small they are: making it takes the event loop a few milliseconds."""

# -- What a stream may hold -------------------------------------------------------------------------------------

PRODUCERS_PER_STREAM_MAX = 10_000
PRODUCER_IDLE_US = 7 * DAY_US
"""When a stream has the most producers it may have, one that was idle for longer is evicted for a new one."""
PRODUCERS_FINISHED_MAX = 10_000
"""Finished producers that a server knows, so that streams forget them at their next new producer."""
FORK_DEPTH_MAX = 1_000
"""Forks of forks: a read walks up the chain, so its length is bounded."""

# -- The lake ---------------------------------------------------------------------------------------------------

STREAMS_PER_SEGMENT_MAX = 10_000
"""A publication names each of them and is applied in one step."""
CONSUMERS_MAX = 1_000
CONSUMER_IDLE_US = 7 * DAY_US
"""A consumer of the lake that was silent for longer no longer holds anything back, unless it asked for another time."""
SILENCE_SECONDS_MIN = 60
"""The shortest time that a consumer may ask for: it outlasts a restart of the server and the retries of a client."""
SILENCE_SECONDS_MAX = 35 * 86_400
"""The longest: a job that runs once a month, with some days to spare. A consumer that never comes back keeps dead rows
for as long."""
LEASES_MAX = 1_000
LEASE_SECONDS_MAX = 3_600
"""How long a lease on the lake's objects may last without a renewal: a reader that was killed delays their deletion for
no longer."""

# -- Time -------------------------------------------------------------------------------------------------------

TOUCH_US_MAX = MINUTE_US
"""The longest interval between renewals of a sliding lifetime; it is a tenth of the TTL for shorter ones."""
PIN_DEADLINE_US = 30 * SECOND_US
"""How long an unfinished fork may pin its source."""
SEAL_DEADLINE_US = 10 * SECOND_US
"""How long an unfinished drop of a bucket may block the creation of streams in it."""
SNAPSHOT_UPLOAD_US_MAX = 60 * MINUTE_US
"""How long a snapshot may take from the first byte of its upload until it is published; for 128 MiB that is 37 KB/s.
What an interrupted upload has stored is deleted later than that."""
LONG_POLL_MS_MAX = 60_000
"""The longest wait that a client may ask for; proxies tend to cut connections that are silent for longer."""
CURSOR_INTERVAL_SECONDS = 20
CURSOR_EPOCH_SECONDS = 1_728_432_000
"""2024-10-09T00:00:00Z, where cursor intervals begin."""
CURSOR_JITTER_SECONDS_MAX = 3_600
