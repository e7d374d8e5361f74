"""Every limit that a client can meet, with its unit and its reason. Settings are in `headwater.settings`."""

KIB = 1024
MIB = 1024 * KIB
SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
DAY_US = 24 * 60 * MINUTE_US

# -- What a client may send -------------------------------------------------------------------------------------

APPEND_BYTES_MAX = 16 * MIB
"""The body of one append or create; what a phone can upload and a commit can carry."""
MESSAGES_PER_APPEND_MAX = 262_144
COMMAS_PER_APPEND_MAX = 1_048_576
"""The elements of one JSON array, and its commas, which are counted first because that is fast: cutting more of them
apart would hold the loop up for everybody."""
BATCH_BYTES_MAX = 32 * MIB
BATCH_FRAMES_MAX = 512
"""One append-batch: its body, and how many appends it may hold."""
SNAPSHOT_BYTES_MAX = 128 * MIB
"""One snapshot; it goes to a file of its own, never through the log."""
ATTRS_BYTES_MAX = 16 * KIB
"""A stream's attributes as JSON; they stay in memory."""
LISTING_MAX = 1_000
"""Streams on one page of a bucket's listing."""
BULK_BYTES_MAX = 32 * MIB
BULK_ROWS_MAX = 100_000
"""Appends to many streams in one request: its body, and how many there may be; they are judged and held in memory."""
DESCRIBE_STREAMS_MAX = 100_000
"""Streams that are described in one response, which is made in memory."""
SCAN_RANGES_MAX = 100_000
"""Ranges that are scanned, or records that are located, by one request; all of them are looked at as of one instant."""
RANGES_COMMAS_MAX = 524_288
"""The commas in a request to describe, locate or scan, counted before anything is made of it: that is fast, and the
elements of a full body would hold the loop up for seconds. The most that may be asked for has 400,000, beside names."""
URI_BYTES_MAX = 8 * KIB
"""The request target; names are short, so anything longer is a mistake."""
HEADERS_BYTES_MAX = 32 * KIB
"""All header lines of one request together."""
HEADERS_MAX = 100
"""Header lines of one request."""
NAME_BYTES_MAX = 122
"""A stream's name with its bucket, as UTF-8: fits a file name and an object key with room for our own suffixes."""
CONTENT_TYPE_BYTES_MAX = 255
PRODUCER_ID_BYTES_MAX = 255
STREAM_SEQ_BYTES_MAX = 255
"""Header values that stay in memory for the life of a stream."""
NUMBER_MAX = 2**53 - 1
"""Epochs and sequence numbers: what a JavaScript client can count exactly."""
TTL_SECONDS_MAX = 10**11
"""About three thousand years; keeps every deadline within 64 bits of microseconds."""

# -- What a server does at a time -------------------------------------------------------------------------------

SCANS_MAX = 64
"""Scans whose answers are made or sent; each has up to a window of 8 MiB in memory, and holds what it is going to read
however slowly its client does."""
BULK_APPENDS_MAX = 16
"""Appends to many streams on their way; each has its body in memory, and the rows that were read from it."""

# -- What a stream may hold -------------------------------------------------------------------------------------

PRODUCERS_PER_STREAM_MAX = 10_000
PRODUCER_IDLE_US = 7 * DAY_US
"""A producer silent for longer makes room for a new one when a stream has the most it may have."""
FORK_DEPTH_MAX = 1_000
"""Forks of forks; a read walks up the chain, so the chain is bounded."""

# -- The lake ---------------------------------------------------------------------------------------------------

STREAMS_PER_SEGMENT_MAX = 10_000
"""A publication names each of them, and is applied in one go."""
CONSUMERS_MAX = 1_000
CONSUMER_IDLE_US = 7 * DAY_US
"""A reader of the lake that was not heard of for longer no longer keeps anything."""

# -- Time -------------------------------------------------------------------------------------------------------

TOUCH_US_MAX = MINUTE_US
"""The coarsest a sliding lifetime is renewed; shorter lifetimes are renewed every tenth of themselves."""
PIN_DEADLINE_US = 30 * SECOND_US
"""How long an unfinished fork may hold its source."""
SEAL_DEADLINE_US = 10 * SECOND_US
"""How long an unfinished drop of a bucket may keep streams from being made in it."""
LONG_POLL_MS_MAX = 60_000
"""The longest wait that a client may ask for; proxies tend to cut connections that are silent for longer."""
CURSOR_INTERVAL_SECONDS = 20
CURSOR_EPOCH_SECONDS = 1_728_432_000
"""2024-10-09T00:00:00Z, from which cursors count their intervals."""
CURSOR_JITTER_SECONDS_MAX = 3_600
