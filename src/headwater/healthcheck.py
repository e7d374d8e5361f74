"""The health check of the container: `python -m headwater.healthcheck` ends with 0 while the server works.

It asks for /healthz on the port of HEADWATER_PORT. Whether that speaks TLS is found out, since a flag may have turned
it on. The certificate is not verified: it is for another name, and this is the machine itself.
"""

import os
import ssl
import sys
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection

TIMEOUT_SECONDS = 2.0
_EVERYWHERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""Where to ask a server that listens on all addresses."""


def is_healthy(environment: Mapping[str, str]) -> bool:
    """Whether the server that these variables describe answers."""
    given = environment.get("HEADWATER_HOST", "127.0.0.1")
    host, port = _EVERYWHERE.get(given, given), int(environment.get("HEADWATER_PORT", "4437"))
    with_tls = bool(environment.get("HEADWATER_TLS_CERT"))
    return any(_answers(host, port, with_tls=one) for one in (with_tls, not with_tls))


def _answers(host: str, port: int, *, with_tls: bool) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if with_tls:
        connection: HTTPConnection = HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=context)
    else:
        connection = HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/healthz", headers={"Host": "localhost"})
        return connection.getresponse().status == 200
    except ssl.SSLError as error:
        # A server that takes only clients with certificates refuses this one by an alert, and works.
        return "CERTIFICATE_REQUIRED" in (error.reason or "")
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(not is_healthy(os.environ))
