"""What the server logs, for people or for machines."""

import json
import logging
import sys
import time

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and whatever else a record was given."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{seconds}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _OWN}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class HumanFormatter(logging.Formatter):
    """A line to read; what a record was given beside its message stands behind it."""

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        more = " ".join(f"{name}={value}" for name, value in vars(record).items() if name not in _OWN)
        return f"{line} {more}" if more else line


def set_up(form: str) -> None:
    """Log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    human = HumanFormatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonFormatter() if form == "json" else human)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
