"""The server's log on standard error: lines for people, or one JSON object per line for machines.

A record carries its facts in `extra`. An access record (logger `headwater.access`) has `method`, `path`, `status`,
`milliseconds`, `bytes` and `request_id`: members of the object in JSON, one readable line otherwise.
"""

import json
import logging
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

ACCESS = "headwater.access"

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}

log = logging.getLogger(__name__)


def facts_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return what the record was given in `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class JsonFormatter(logging.Formatter):
    """Time, level, logger and message, then the record's facts."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{seconds}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= facts_of(record)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class HumanFormatter(logging.Formatter):
    """A readable line; the facts follow the message as name=value."""

    def format(self, record: logging.LogRecord) -> str:
        facts = facts_of(record)
        if record.name == ACCESS and {"method", "path", "status"} <= facts.keys():
            text = _access_line(facts)
            return f"{self.formatTime(record)} {record.levelname} {text}"
        line = super().format(record)
        return f"{line} {_pairs(facts)}" if facts else line


def _access_line(facts: Mapping[str, Any]) -> str:
    """Write an access record for a person.

    >>> facts = {"method": "GET", "path": "/x", "status": 200, "milliseconds": 1.5, "bytes": 42}
    >>> _access_line(facts | {"request_id": "a"})
    'GET /x 200 1.5ms 42B request_id=a'
    """
    line = f"{facts['method']} {facts['path']} {facts['status']}"
    for name, unit in (("milliseconds", "ms"), ("bytes", "B")):
        if name in facts:
            line += f" {facts[name]}{unit}"
    rest = {
        name: value
        for name, value in facts.items()
        if name not in ("method", "path", "status", "milliseconds", "bytes")
    }
    return f"{line} {_pairs(rest)}" if rest else line


def _pairs(facts: Mapping[str, Any]) -> str:
    """Write facts as name=value, without those that are None; a nested object as one pair per member.

    >>> _pairs({"url": "http://h", "limits": {"hot": 1}, "why": "two words"})
    'url=http://h limits.hot=1 why="two words"'
    """
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{key}": item for key, item in value.items()}
        elif value is not None:
            flat[name] = value
    return " ".join(f"{name}={json.dumps(str(value)) if ' ' in str(value) else value}" for name, value in flat.items())


def set_up(form: str, level: str = "info") -> None:
    """Log to standard error; warnings and uncaught exceptions go through the log as well."""
    handler = logging.StreamHandler(sys.stderr)
    human = HumanFormatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonFormatter() if form == "json" else human)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught


def name_child(name: str) -> None:
    """Add the name of this process, a child of a supervisor, to the facts of every record."""
    make = logging.getLogRecordFactory()

    def make_named(*arguments: Any, **named: Any) -> logging.LogRecord:
        record = make(*arguments, **named)
        record.child = name
        return record

    logging.setLogRecordFactory(make_named)


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    log.critical("The server crashed.", exc_info=(kind, error, trace))
