"""Names of streams for a shell that completes them, if the server answers fast enough."""

import os
from itertools import islice

import click
import httpx2

from headwater.cli.contexts.choosing import choose
from headwater.client import Client, ClientError, RetryPolicy
from headwater.protocol.names import DEFAULT_BUCKET

NAMES_MAX = 100
ANSWER_SECONDS_MAX = 1.0


def complete_name(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the streams whose names begin like this; none after a failure: an error would disturb the typing."""
    given = context.params
    bucket, slash, prefix = incomplete.partition("/")
    if not slash:
        bucket, prefix = DEFAULT_BUCKET, incomplete
    try:
        url = given.get("url") or os.environ.get("HEADWATER_URL") or None
        at = choose(url, given.get("context_name"), given.get("token_file"), given.get("headers") or {})
        with (
            httpx2.Client(verify=at.verification) as http,
            Client(
                at.url,
                headers=at.headers,
                token=at.credential,
                retry=RetryPolicy(attempts_max=1),
                timeout_seconds=ANSWER_SECONDS_MAX,
                http=http,
            ) as client,
            client.bucket(bucket).streams(prefix=prefix, page_streams_max=NAMES_MAX) as streams,
        ):
            names = [one.name for one in islice(streams, NAMES_MAX)]
    except (ClientError, ValueError, click.ClickException):
        return []
    return [f"{bucket}/{name}" if slash else name for name in names]


NAME = click.argument("name", shell_complete=complete_name)
