"""The origin of a job's rows: a server and a selection of its streams."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from headwater.spark.failures import NO_RIGHT
from headwater.spark.jobs.report import JobFailed, failing_job
from headwater.spark.link import Link, LinkSettings, parse_link
from headwater.spark.options.source import Selection, SourceOptions, parse_source
from headwater.spark.options.values import OptionValues


@dataclass(frozen=True, slots=True)
class Origin:
    """Streams of a server, selected as by the options of the source; `options` are more of those."""

    url: str
    bucket: str | None = None
    prefix: str | None = None
    streams: Sequence[str] = ()
    pattern: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def source_options(self, **more: str) -> dict[str, str]:
        """The options that make the source read these streams.

        >>> Origin("http://h:1", bucket="b", streams=["x,1"]).source_options(via="lake")
        {'url': 'http://h:1', 'bucket': 'b', 'streams': '["x,1"]', 'via': 'lake'}
        """
        chosen = {
            "url": self.url,
            "bucket": self.bucket,
            "prefix": self.prefix,
            "streams": json.dumps(list(self.streams)) if self.streams else None,
            "streamsPattern": self.pattern,
        }
        return {**{name: value for name, value in chosen.items() if value is not None}, **more, **self.options}

    @failing_job()
    def parsed(self, **more: str) -> SourceOptions:
        """The same options as the source parses them; JobFailed if it rejects one."""
        return parse_source(self.source_options(**more))

    @contextmanager
    def link(self) -> Iterator[Link]:
        """A link to the server; JobFailed if the server does not answer or refuses a request."""
        with failing_job(), Link(self.parsed().link) as link:
            yield link


def describe_selected(link: Link, selection: Selection) -> Iterator[pa.Table]:
    """The server's description of the selected streams, a page at a time."""
    pages: Iterable[pa.Table] = link.describe_all(selection.prefix)
    if selection.names is not None:
        pages = [link.describe(sorted(selection.names))]
    for page in pages:
        yield page.filter(pa.array(map(selection.has, page["stream"].to_pylist()), pa.bool_()))


def find_lake(link: Link) -> str | None:
    """The URL of a server's lake; None if it has none, and JobFailed if it shows it to others only."""
    log = link.log()
    if log.has_lake and log.lake_url is None:
        raise JobFailed(
            f"The server at {link.settings.url} shows its lake only to those with the grant 'pipeline *'; {NO_RIGHT}."
        )
    return log.lake_url


@failing_job()
def link_settings(url: str, options: Mapping[str, str]) -> LinkSettings:
    """How to reach a server, from options of the source about nothing else; JobFailed for any other option."""
    given = OptionValues({"url": url, **options})
    found = parse_link(given)
    given.refuse_unknown()
    return found
