"""The certificates of a connection with TLS."""

import ssl


def tls_context(url: str, ca: str | None, cert: str | None, key: str | None) -> ssl.SSLContext | bool:
    """What to trust and to present, in the form that the HTTP client takes; OSError if a file cannot be read."""
    if url.startswith("http://"):
        # Reading the certificates of this machine takes a tenth of a second, and every task makes a connection.
        return False
    if ca is None and cert is None:
        return True
    context = ssl.create_default_context(cafile=ca)
    if cert is not None:
        context.load_cert_chain(cert, key)
    return context
