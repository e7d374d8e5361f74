"""The options of the source: how they are parsed, and how invalid ones are refused."""

import pickle
from typing import Any

import pytest

from headwater.spark.link import LinkSettings, parse_link
from headwater.spark.options.source import LogPosition, Selection, SourceOptions, StreamOffsets, parse_source
from headwater.spark.options.values import OptionRefused, OptionValues

URL = "http://127.0.0.1:4437"


def parse(**options: str) -> SourceOptions:
    return parse_source({"url": URL, **{name.replace("__", "."): value for name, value in options.items()}})


def refused(**options: str) -> str:
    with pytest.raises(OptionRefused) as caught:
        parse(**options)
    return str(caught.value)


# -- Which streams -----------------------------------------------------------------------------------------------------


def test_a_bucket_alone_means_all_of_its_streams() -> None:
    selection = parse(bucket="team").selection
    assert selection == Selection("team/", None, None, 5)
    assert selection.has("team/notes") and not selection.has("team-a/notes")


def test_a_prefix_is_of_full_names_unless_a_bucket_is_given() -> None:
    assert parse(prefix="team/no").selection.prefix == "team/no"
    assert parse(prefix="no", bucket="team").selection.prefix == "team/no"


def test_streams_are_full_names_or_names_in_a_bucket() -> None:
    assert parse(streams="team/a, team/b,c").selection.names == frozenset({"team/a", "team/b", "_default/c"})
    assert parse(streams="a,b/c", bucket="team").selection.names == frozenset({"team/a", "team/b/c"})


def test_streams_with_commas_in_their_names_come_in_a_json_list() -> None:
    assert parse(streams='["team/a,b", "c"]').selection.names == frozenset({"team/a,b", "_default/c"})


def test_a_pattern_matches_the_full_name_or_the_name_in_the_bucket() -> None:
    everywhere = parse(streamsPattern="team/(a|b)").selection
    assert everywhere.has("team/a") and not everywhere.has("team/ab")
    inside = parse(streamsPattern="run-[0-9]+", bucket="team").selection
    assert inside.has("team/run-7") and not inside.has("team/run-7x") and not inside.has("other/run-7")


@pytest.mark.parametrize(
    ("options", "is_selected"),
    [
        ({"streamsPattern": ".*"}, False),
        ({"streamsPattern": "_sink/.*"}, False),
        ({"prefix": "_s"}, False),
        ({"prefix": "_sink"}, False),
        ({"prefix": "_sink/"}, True),
        ({"bucket": "_sink"}, True),
        ({"bucket": "_sink", "streamsPattern": ".*"}, True),
        ({"streams": "_sink/job"}, True),
    ],
)
def test_a_ledger_of_the_sink_is_selected_only_by_its_bucket_or_name(
    options: dict[str, str], is_selected: bool
) -> None:
    selection = parse(**options).selection
    assert selection.has("_sink/job") is is_selected
    for first, last in (("_sink/job", "_sink/job"), ("_a/x", "a/x"), ("_sink/a", "z/z")):
        assert selection.checks_names(first, last) or is_selected
    if "streamsPattern" not in options:
        assert not selection.checks_names("a/x", "z/z")
        assert not selection.checks_names("_default/x", "_default/y")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "Say which streams"),
        ({"prefix": "a", "streams": "b/c"}, "prefix and streams exclude each other"),
        ({"streamsPattern": "a", "streams": "b/c"}, "streamsPattern and streams exclude each other"),
        ({"bucket": "a/b"}, "is not a valid bucket name"),
        ({"streamsPattern": "("}, "is not a valid regular expression"),
        ({"streams": "a,,b"}, "names separated by commas"),
        ({"streams": "[1]"}, "names separated by commas"),
        ({"streams": "[a"}, "not a JSON list"),
    ],
)
def test_an_invalid_selection_is_refused(options: dict[str, str], sentence: str) -> None:
    assert sentence in refused(**options)


# -- Where to start and to end -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "boundary"),
    [
        ("earliest", "earliest"),
        ("-1", "earliest"),
        ("Latest", "latest"),
        ("now", "latest"),
        ('{"shards": {"0": 17}}', LogPosition(17)),
        (
            '{"team/a": "0000000000000000_0000000000000050", "b": "7", "c": -1, "d": "now"}',
            {"team/a": 5, "_default/b": 7, "_default/c": "earliest"},
        ),
    ],
)
def test_boundaries_are_words_offsets_or_positions(text: str, boundary: Any) -> None:
    found = parse(prefix="", streamsPattern=".*", startingOffsets=text).starting
    if isinstance(boundary, dict):
        assert isinstance(found, StreamOffsets) and found.streams == {**boundary, "_default/d": "latest"}
    else:
        assert found == boundary


@pytest.mark.parametrize(
    "text", ["soon", "{}", "[1]", '{"a": true}', '{"a": 1.5}', '{"a": -2}', '{"a": null}', '{"a": 9223372036854775808}']
)
def test_an_invalid_boundary_is_refused(text: str) -> None:
    assert "The option startingOffsets must be earliest, latest" in refused(streams="a", startingOffsets=text)


def test_positions_are_of_the_one_shard() -> None:
    assert "shard 0" in refused(bucket="team", startingOffsets='{"shards": {"1": 5}}')


def test_times_are_milliseconds_or_iso() -> None:
    parsed = parse(bucket="team", startingTimestamp="1700000000123", endingTimestamp="2023-11-14T22:13:21.5Z")
    assert (parsed.since, parsed.until) == (1_700_000_000_123_000, 1_700_000_001_500_000)
    assert parse(bucket="team", startingTimestamp="2023-11-14T23:13:20+01:00").since == 1_700_000_000_000_000
    assert parse(bucket="team", startingTimestamp="2023-11-14").since == 1_699_920_000_000_000
    assert "milliseconds since 1970" in refused(bucket="team", startingTimestamp="yesterday")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startingOffsets": "earliest", "startingTimestamp": "1"}, "startingOffsets and startingTimestamp exclude"),
        ({"endingOffsets": "latest", "endingTimestamp": "1"}, "endingOffsets and endingTimestamp exclude"),
        ({"startingTimestamp": "5", "endingTimestamp": "5"}, "must be before"),
        ({"endingOffsets": "earliest"}, "has no rows"),
        ({"startingOffsets": '{"x": 1}', "via": "lake"}, "need via=live"),
        ({"startingOffsets": '{"shards": {"0": 1}}', "via": "live"}, "need via=lake"),
        ({"startingOffsets": '{"shards": {"0": 1}}', "endingOffsets": '{"x": 1}'}, "cannot be mixed"),
        ({"onTrimmed": "bootstrap", "via": "lake"}, "has no snapshots"),
        ({"onTrimmed": "bootstrap", "startingOffsets": '{"shards": {"0": 1}}'}, "has no snapshots"),
        ({"lake": "/somewhere", "via": "live"}, "exclude each other"),
    ],
)
def test_contradictions_are_refused(options: dict[str, str], sentence: str) -> None:
    assert sentence in refused(bucket="team", **options)


def test_offsets_are_only_for_selected_streams() -> None:
    assert "An offset is given for the stream 'team/y'" in refused(
        bucket="team", streams="x", startingOffsets='{"y": 1}'
    )


def test_streaming_options_are_refused_for_a_batch_and_batch_options_for_a_stream() -> None:
    for option in ("maxBytesPerTrigger", "maxRecordsPerTrigger", "consumerName", "consumerSilence"):
        with pytest.raises(OptionRefused, match=option):
            parse(bucket="team", **{option: "5d" if option == "consumerSilence" else "5"}).check_batch()
    with pytest.raises(OptionRefused, match="no rows"):
        parse(bucket="team", startingOffsets="latest").check_batch()
    with pytest.raises(OptionRefused, match="endingOffsets"):
        parse(bucket="team", endingOffsets="latest").check_stream()
    with pytest.raises(OptionRefused, match="pushdown"):
        parse(bucket="team", pushdown="true").check_stream()
    parse(bucket="team").check_batch()
    parse(bucket="team").check_stream()


# -- The rest ----------------------------------------------------------------------------------------------------------


def test_everything_has_a_default() -> None:
    parsed = parse(bucket="team")
    assert parsed == SourceOptions(LinkSettings(URL), Selection("team/", None, None, 5))
    assert parsed.fail_on_data_loss and parsed.on_trimmed == "fail" and not parsed.bootstraps


def test_every_option_is_parsed() -> None:
    parsed = parse(
        bucket="team",
        via="LIVE",
        maxBytesPerTrigger="64m",
        maxRecordsPerTrigger="1000",
        minPartitions="4",
        maxBytesPerPartition="1 MiB",
        failOnDataLoss="FALSE",
        columns="stream, offset",
        value="variant",
        pushdown="true",
        flushInterval="500ms",
        consumerName="nightly-1",
        consumerSilence="2h",
    )
    assert parsed.via == "live"
    assert (parsed.trigger_bytes_max, parsed.trigger_records_max) == (64 * 1024 * 1024, 1000)
    assert (parsed.partitions_min, parsed.partition_bytes) == (4, 1024 * 1024)
    assert (parsed.fail_on_data_loss, parsed.on_trimmed) == (False, "skip")
    assert (parsed.columns, parsed.value, parsed.pushdown) == (("stream", "offset"), "variant", True)
    assert (parsed.flush_interval_seconds, parsed.consumer_name) == (0.5, "nightly-1")
    assert parsed.consumer_silence_seconds == 7200
    assert parse(bucket="team", failOnDataLoss="false", onTrimmed="fail").on_trimmed == "fail"
    assert parse(bucket="team", onTrimmed="bootstrap").bootstraps


def test_earlier_names_of_options_are_accepted() -> None:
    parsed = parse(bucket="team", readerName="nightly", readerSilence="2h")
    assert (parsed.consumer_name, parsed.consumer_silence_seconds) == ("nightly", 7200)
    assert parse(bucket="team", readerName="then", consumerName="now").consumer_name == "now"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"vai": "live"}, "There is no option 'vai'; did you mean via?"),
        ({"startingOffset": "earliest"}, "did you mean startingOffsets?"),
        ({"zzz": "1"}, "There is no option 'zzz'"),
        ({"via": "air"}, "one of auto, lake, live"),
        ({"onTrimmed": "cry"}, "one of fail, skip, bootstrap"),
        ({"value": "json"}, "one of string, variant"),
        ({"failOnDataLoss": "yes"}, "one of true, false"),
        ({"minPartitions": "0"}, "a whole number of at least 1"),
        ({"maxRecordsPerTrigger": "many"}, "a whole number of at least 1"),
        ({"maxBytesPerTrigger": "0"}, "a number of bytes"),
        ({"maxBytesPerTrigger": "5x"}, "a number of bytes"),
        ({"flushInterval": "10"}, "a duration such as"),
        ({"consumerName": "a/b"}, "letters, digits"),
        ({"consumerName": ".."}, "not only one or two dots"),
        ({"consumerSilence": "week"}, "a duration such as"),
        ({"consumerSilence": "59s"}, "The option consumerSilence must be from 60s to 35d, not 59 seconds."),
        ({"consumerSilence": "36d"}, "The option consumerSilence must be from 60s to 35d, not 3110400 seconds."),
        ({"url": "http://h:1/?x=1"}, "The option url is wrong: 'http://h:1/?x=1' has a query or a fragment"),
        ({"url": "http://h:abc"}, "is not the URL of a server"),
        ({"columns": "stream,nope"}, "There is no column 'nope'"),
        ({"columns": "stream,stream"}, "each column only once"),
        ({"columns": "stream,value"}, "needs the option value=string"),
        ({"columns": "kind"}, "needs the option onTrimmed=bootstrap"),
    ],
)
def test_an_invalid_option_is_refused_in_one_sentence(options: dict[str, str], sentence: str) -> None:
    assert sentence in refused(bucket="team", **options)


def test_option_names_are_case_insensitive() -> None:
    assert parse_source({"URL": URL, "BUCKET": "team", "STARTINGoffsets": "earliest"}).starting == "earliest"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("10s", 10),
        ("1.5 seconds", 1.5),
        ("2m", 120),
        ("3 min", 180),
        ("1h", 3600),
        ("7 days", 604_800),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert OptionValues({"x": text}).duration_seconds("x") == seconds


def test_options_travel_to_executors() -> None:
    parsed = parse(bucket="team", streams="a,b", startingOffsets='{"a": 5}', header__x="1")
    assert pickle.loads(pickle.dumps(parsed)) == parsed


# -- The link ----------------------------------------------------------------------------------------------------------


def test_the_link_takes_tokens_headers_and_certificates() -> None:
    settings = parse_link(
        {
            "url": "https://streams.example/",
            "tokenFile": "/run/token",
            "header.X-Team": "blue",
            "tls.ca": "ca.pem",
            "tls.cert": "me.pem",
            "tls.key": "me.key",
            "retries": "0",
            "retryIntervalMs": "250",
            "requestTimeoutMs": "5000",
            "columns": "an option of the source",
        }
    )
    assert settings == LinkSettings(
        url="https://streams.example",
        token_file="/run/token",
        headers=(("x-team", "blue"),),
        tls_ca="ca.pem",
        tls_cert="me.pem",
        tls_key="me.key",
        retries=0,
        retry_interval_seconds=0.25,
        timeout_seconds=5.0,
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "Give the option url"),
        ({"url": "streams.example:80"}, "Give the option url"),
        ({"url": URL, "token": "a", "tokenFile": "b"}, "exclude each other"),
        ({"url": URL, "tls.key": "k"}, "needs tls.cert"),
        ({"url": URL, "retries": "-1"}, "a whole number"),
    ],
)
def test_an_invalid_link_is_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionRefused, match=sentence):
        parse_link(options)
