"""Write a project from the template in this folder, without touching existing files."""

import json
import re
from pathlib import Path

TEMPLATE = Path(__file__).with_name("template")
SUFFIX = ".template"
"""Keeps the files from being mistaken for modules of this package: they only run inside a pipeline."""
NAME_CHARACTERS_MAX = 100
_BUCKET = re.compile(r"[a-z0-9_-]{4,64}")


class ProjectRefused(Exception):
    """The project cannot be written; the error is one sentence."""


def write_project(folder: Path, url: str, bucket: str, results: str | None = None) -> list[Path]:
    """Write the project to a new or empty folder; return the files."""
    into = results or f"{bucket}-alerts"
    for one in (bucket, into):
        if not _BUCKET.fullmatch(one):
            raise ProjectRefused(
                f"{one!r} is not a valid bucket name: use 4 to 64 characters from a-z, 0-9, '_' and '-'."
            )
    if bucket == into:
        raise ProjectRefused(f"The pipeline would read its own results; use another bucket than {bucket!r} for them.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ProjectRefused(f"{folder} exists and is not empty; choose a new folder.")
    values = _values(folder.resolve(), url, bucket, into)
    written = []
    for part in sorted(TEMPLATE.rglob(f"*{SUFFIX}")):
        path = folder / part.relative_to(TEMPLATE).with_suffix("")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(filled(part.read_text(), values))
        written.append(path)
    (folder / "storage").mkdir()
    return written


def _values(folder: Path, url: str, bucket: str, results: str) -> dict[str, str]:
    name = re.sub(r"[^A-Za-z0-9_]+", "_", folder.name)[:NAME_CHARACTERS_MAX] or "pipeline"
    plain = {"title": folder.name, "url_plain": url, "bucket_plain": bucket, "results_plain": results}
    quoted = {
        "name": name,
        "storage": (folder / "storage").as_uri(),
        "url": url,
        "bucket": bucket,
        "results": results,
        "producer": f"{name}-alerts",
    }
    # A JSON string is also a YAML string and a Python string.
    return plain | {field: json.dumps(value) for field, value in quoted.items()}


def filled(text: str, values: dict[str, str]) -> str:
    """A template with its placeholders filled in.

    >>> filled("name: {{name}}", {"name": "orders"})
    'name: orders'
    """
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], text)
