"""The origin of a job's rows: a server, and which of its streams."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from headwater.spark.jobs.report import JobFailed
from headwater.spark.link import Link, LinkFailed, LinkRefused
from headwater.spark.options.source import SourceOptions, parse_source
from headwater.spark.options.values import OptionRefused


@dataclass(frozen=True, slots=True)
class Origin:
    """Streams of a server, named as the source's options name them; `options` are further options of the source."""

    url: str
    bucket: str | None = None
    prefix: str | None = None
    streams: Sequence[str] = ()
    pattern: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def source_options(self, **more: str) -> dict[str, str]:
        """The options with which the source reads these streams.

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

    def parsed(self, **more: str) -> SourceOptions:
        """The same options as the source understands them; JobFailed if it does not."""
        try:
            return parse_source(self.source_options(**more))
        except OptionRefused as refused:
            raise JobFailed(str(refused)) from refused

    @contextmanager
    def link(self) -> Iterator[Link]:
        """A link to the server; JobFailed when it does not answer, or says no."""
        try:
            with Link(self.parsed().link) as link:
                yield link
        except (LinkFailed, LinkRefused) as failure:
            raise JobFailed(str(failure)) from failure
