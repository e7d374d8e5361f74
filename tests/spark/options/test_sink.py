"""The options of the sink: how they are parsed, and how invalid ones are refused."""

import pytest
from pyspark.sql.types import StringType, StructType

from headwater.protocol.limits import APPEND_BYTES_MAX, MESSAGES_PER_APPEND_MAX, NUMBER_MAX
from headwater.spark.link import LinkSettings
from headwater.spark.options.sink import APPEND_BYTES, APPEND_MESSAGES, SinkOptions, parse_sink
from headwater.spark.options.values import OptionRefused
from headwater.spark.sink.sink import batch_writer, stream_writer

URL = {"url": "http://127.0.0.1:1"}
LINK = LinkSettings("http://127.0.0.1:1")
SIMPLE = StructType().add("stream", StringType()).add("value", StringType())


def test_a_url_is_enough_for_a_batch() -> None:
    parsed = parse_sink(URL, streaming=False)
    assert parsed == SinkOptions(LINK)
    assert (parsed.append_bytes, parsed.append_messages) == (APPEND_BYTES, APPEND_MESSAGES)


def test_every_option_is_parsed_and_names_are_case_insensitive() -> None:
    given = {
        "url": "http://127.0.0.1:1",
        "BUCKET": "b",
        "stream": "s",
        "producerid": "job",
        "producerepoch": "4",
        "createstreams": "false",
        "contenttype": "text/plain",
        "close": "true",
        "maxappendbytes": "64k",
        "maxappendmessages": "10",
        "ordercolumn": "day, at",
        "target": "streams",
        "token": "t",
    }
    assert parse_sink(given, streaming=False) == SinkOptions(
        LINK._replace(token="t"), "streams", "b", "s", "job", 4, False, "text/plain", True, 65_536, 10, ("day", "at")
    )


def test_a_streaming_query_writes_under_its_name_by_default() -> None:
    named = {**URL, "queryname": "copy", "checkpointlocation": "/x"}
    assert parse_sink(named, streaming=True).producer_id == "copy"
    assert parse_sink({**named, "producerId": "other"}, streaming=True).producer_id == "other"


@pytest.mark.parametrize(
    "given, sentence",
    [
        ({"produceId": "x"}, r"There is no option 'produceid'; did you mean producerId\?"),
        ({"producerId": "x"}, r"The options producerId and producerEpoch go together: "),
        ({"producerEpoch": "1"}, r"The options producerId and producerEpoch go together: "),
        (
            {"producerId": "x", "producerEpoch": "-1"},
            r"The option producerEpoch must be a whole number of at least 0, ",
        ),
        ({"producerId": "x", "producerEpoch": str(NUMBER_MAX + 1)}, r"The option producerEpoch must be at most "),
        ({"producerId": "é" * 128, "producerEpoch": "1"}, r"The option producerId must be at most 255 bytes long\."),
        ({"bucket": "a/b"}, r"'a/b' is not a valid bucket name, "),
        (
            {"contentType": "json"},
            r"The option contentType must be a content type such as application/json .*, not 'json'\.",
        ),
        ({"maxAppendBytes": str(APPEND_BYTES_MAX + 1)}, r"The option maxAppendBytes must be at most 16777216, "),
        (
            {"maxAppendMessages": str(MESSAGES_PER_APPEND_MAX + 1)},
            r"The option maxAppendMessages must be at most 262144, ",
        ),
        ({"maxAppendMessages": "0"}, r"The option maxAppendMessages must be a whole number of at least 1, "),
        ({"close": "yes"}, r"The option close must be one of true, false, not 'yes'\."),
        ({"target": "table"}, r"The option target must be one of streams, snapshot, not 'table'\."),
        (
            {"target": "snapshot", "close": "true"},
            r"The option close has no effect with target=snapshot; leave it out\.",
        ),
        ({"path": "b/x"}, r"A write has no path; name the streams in a column or in the option stream, and call save"),
        ({"url": "host:1"}, r"Give the option url as http://host:port or https://host:port, not 'host:1'\."),
    ],
)
def test_an_invalid_option_is_refused_in_one_sentence(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionRefused, match=f"^{sentence}"):
        parse_sink({**URL, **given}, streaming=False)


def test_a_streaming_query_without_a_name_is_refused() -> None:
    with pytest.raises(OptionRefused, match=r"^Name the query with queryName, or give the option producerId; "):
        parse_sink(URL, streaming=True)


def test_a_streaming_query_has_its_own_epochs() -> None:
    with pytest.raises(OptionRefused, match=r"^The option producerEpoch is for batch writes only; "):
        parse_sink({**URL, "producerId": "x", "producerEpoch": "1"}, streaming=True)


def test_nothing_is_overwritten() -> None:
    with pytest.raises(OptionRefused, match=r"^Streams are append-only, so mode overwrite is not possible; "):
        batch_writer(URL, SIMPLE, overwrite=True)
    with pytest.raises(OptionRefused, match=r"^Streams are append-only, so output mode complete is not possible; "):
        stream_writer({**URL, "queryName": "q"}, SIMPLE, overwrite=True)
