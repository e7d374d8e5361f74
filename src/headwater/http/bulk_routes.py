"""What the URL table does for appends to many streams at once."""

from headwater.http.addresses import Address
from headwater.http.exchanges import Exchange
from headwater.http.requests import Request
from headwater.protocol.refusals import Code


def append(request: Request, address: Address, exchange: Exchange) -> None:
    exchange.refuse(Code.NOT_IMPLEMENTED, "This is not built yet.")
