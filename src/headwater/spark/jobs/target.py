"""The target of a job's rows: the options of the sink, most of which the job sets itself."""

from collections.abc import Mapping

from headwater.spark.jobs.report import JobFailed
from headwater.spark.options.sink import SinkOptions, parse_sink
from headwater.spark.options.values import OptionRefused

OWN_OPTIONS = frozenset(
    ("bucket", "close", "contenttype", "ordercolumn", "producerepoch", "producerid", "stream", "target", "url")
)
"""Options of the sink, in lower case, that jobs set themselves."""


def check_sink_options(given: Mapping[str, str], options: Mapping[str, str], *, streaming: bool = False) -> SinkOptions:
    """The options of the sink, parsed; JobFailed if one is invalid, or if the user has given one of the job's own."""
    for name in given:
        if name.lower() in OWN_OPTIONS:
            raise JobFailed(f"The job sets the sink option {name} itself; remove it.")
    try:
        return parse_sink(options, streaming=streaming)
    except OptionRefused as refused:
        raise JobFailed(str(refused)) from refused
