"""The options that say how to reach the server; the source and the sink share them."""

from collections.abc import Mapping

from headwater.client.settings import bearer
from headwater.client.urls import checked_urls, join_urls
from headwater.spark.link import LinkSettings
from headwater.spark.options.values import OptionRefused, OptionValues, or_default

_DEFAULTS = LinkSettings("")


def parse_link(options: Mapping[str, str] | OptionValues) -> LinkSettings:
    """The server's URL, credentials and retry settings."""
    values = options if isinstance(options, OptionValues) else OptionValues(options)
    url = values.text("url")
    if url is None or not url.startswith(("http://", "https://")):
        raise OptionRefused(f"Give the option url as http://host:port or https://host:port, not {url!r}.")
    token, token_file = values.text("token"), values.text("tokenFile")
    if token is not None and token_file is not None:
        raise OptionRefused("The options token and tokenFile exclude each other; choose one.")
    if token is not None:
        try:
            bearer(token)
        except ValueError:
            raise OptionRefused("The option token must be one word of printable ASCII, without 'Bearer'.") from None
    cert, key = values.text("tls.cert"), values.text("tls.key")
    if key is not None and cert is None:
        raise OptionRefused("The option tls.key needs tls.cert, the certificate for the key.")
    try:
        urls, sent = checked_urls(url, values.with_prefix("header."))
    except ValueError as error:
        raise OptionRefused(f"The option url is wrong: {error}") from None
    retry_ms, timeout_ms = values.number("retryIntervalMs"), values.number("requestTimeoutMs", 1)
    return LinkSettings(
        url=join_urls([one.rstrip("/") for one in urls]),
        token=token,
        token_file=token_file,
        headers=tuple(sorted(sent.items())),
        tls_ca=values.text("tls.ca"),
        tls_cert=cert,
        tls_key=key,
        retries=or_default(values.number("retries"), _DEFAULTS.retries),
        retry_interval_seconds=_DEFAULTS.retry_interval_seconds if retry_ms is None else retry_ms / 1000,
        timeout_seconds=_DEFAULTS.timeout_seconds if timeout_ms is None else timeout_ms / 1000,
    )
