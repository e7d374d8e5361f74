"""Shapes of header values and query parameters, as JSON Schema; the OpenAPI document and its tests use them."""

from typing import Any

from headwater.protocol.limits import NUMBER_MAX

Shape = dict[str, Any]

_POSITION = "[0-9]{16}_[0-9]{16}|[0-9]{20}"
_PLACE = "[0-9]{16}_[0-9]{16}|[0-9]{1,20}"

TEXT: Shape = {"type": "string"}
COUNT: Shape = {"type": "integer", "minimum": 0}
NUMBER: Shape = {"type": "integer", "minimum": 0, "maximum": NUMBER_MAX}
"""A number that a JavaScript client can represent exactly."""
POSITIVE: Shape = {"type": "integer", "minimum": 1, "maximum": NUMBER_MAX}
TRUE: Shape = {"type": "string", "enum": ["true"]}
FLAG: Shape = {"type": "string", "enum": ["true", "false"]}
OFFSET: Shape = {"type": "string", "pattern": f"^({_POSITION})$"}
OFFSET_OR_START: Shape = {"type": "string", "pattern": f"^(-1|{_POSITION})$"}
PLACE: Shape = {"type": "string", "pattern": f"^({_PLACE})$"}
"""An offset below a bucket, where any decimal is one."""
ANY_OFFSET: Shape = {"type": "string", "pattern": f"^(-1|now|{_POSITION})$"}
RECORD: Shape = {"type": "string", "pattern": "^(now|0|[1-9][0-9]{0,18})$"}
DIGITS: Shape = {"type": "string", "pattern": "^[0-9]+$"}
ETAG: Shape = {"type": "string", "pattern": '^".+"$'}


def text(length_max: int) -> Shape:
    """A string that is neither empty nor longer than this."""
    return {"type": "string", "minLength": 1, "maxLength": length_max}


def whole(minimum: int, maximum: int) -> Shape:
    """An integer within bounds."""
    return {"type": "integer", "minimum": minimum, "maximum": maximum}


def one_of(*values: str) -> Shape:
    """One of a few words."""
    return {"type": "string", "enum": list(values)}


def several(shape: Shape, most: int) -> Shape:
    """From one to so many values of a shape."""
    return {"type": "array", "items": shape, "minItems": 1, "maxItems": most}
