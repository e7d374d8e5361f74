"""What is said of one method of one resource; `operations` and `own_operations` say it of all of them."""

from typing import NamedTuple

ANY = "*/*"


class Gives(NamedTuple):
    """A response that is no refusal: what it means, its headers, and the schema of its body by media type."""

    meaning: str
    headers: str = ""
    content: dict[str, str] | None = None


class Takes(NamedTuple):
    """A request's body: the schema by media type."""

    content: dict[str, str]
    required: bool = False


class Operation(NamedTuple):
    """One method of one resource."""

    summary: str
    gives: dict[int, Gives]
    refuses: str
    query: str = ""
    headers: str = ""
    body: Takes | None = None
