"""Resumable LLM tokens: an agent writes tokens as it produces them, and readers come and go without missing any.

    python examples/llm_tokens.py demo                 # both sides in one process, with a reader that disconnects
    python examples/llm_tokens.py agent chats/42       # writes; if it is killed, a second run continues the answer
    python examples/llm_tokens.py watch chats/42       # prints all tokens so far and each new one, until the end
    python examples/llm_tokens.py watch chats/42 --offset OFFSET

The agent is simulated: it "thinks" one word at a time. `--url` or HEADWATER_URL is the URL of the server.
"""

import argparse
import asyncio
import os
import secrets
import sys

try:
    from headwater.client import START, AsyncClient, AsyncStream, ClientError, Conflict, RetryPolicy
except ModuleNotFoundError as missing:
    sys.exit(
        f"Error: {missing.name} is not installed for {sys.executable}; in a checkout, run this example with "
        ".venv/bin/python (scripts/serve creates it), elsewhere after `pip install headwater`."
    )

ANSWER = (
    "A stream is a list that only grows. Each reader keeps an offset, and with the offset it can leave at any word and "
    "come back later, on another device, without asking for the words that it has already seen."
)
TOKENS = [word + " " for word in ANSWER.split()]
TTL_SECONDS = 24 * 60 * 60


async def agent(stream: AsyncStream, pause_seconds: float) -> bool:
    """Write each token exactly once, and close the stream with the last; return False if that was done before."""
    try:
        await stream.create("application/json", ttl_seconds=TTL_SECONDS)
    except Conflict:
        if (await stream.head()).closed:
            return False
        raise
    # After a crash, continue after the last durable token; the next epoch fences off the earlier process.
    written = (await stream.head()).record_next or 0
    async with stream.producer("agent", auto_claim=True, linger_ms=0) as producer:
        for token in TOKENS[written:]:
            await asyncio.sleep(pause_seconds)
            await producer.append_json({"token": token})
        await producer.close_stream()
    return True


async def watch(stream: AsyncStream, offset: str = START, leave_after: int | None = None) -> str:
    """Print tokens from `offset` on, until the stream closes or `leave_after` were printed; return where to resume."""
    seen = 0
    async with stream.follow(offset) as follower:
        async for chunk in follower:
            for message in chunk.json():
                print(message["token"], end="", flush=True)
                seen += 1
            # The offset belongs to the whole chunk, so it is kept once all of the chunk is shown.
            offset = chunk.next_offset
            if leave_after is not None and seen >= leave_after:
                break
    return offset


async def demo(stream: AsyncStream, pause_seconds: float) -> None:
    """Show a reader that disconnects and comes back, while the agent keeps writing."""
    await stream.create("application/json", ttl_seconds=TTL_SECONDS)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(agent(stream, pause_seconds))
        offset = await watch(stream, leave_after=5)
        print(f"\n-- the reader disconnects; it keeps the offset {offset}")
        await asyncio.sleep(5 * pause_seconds)
        print("-- it reconnects and resumes")
        await watch(stream, offset)
    print("\n-- the stream is closed")


async def main(arguments: argparse.Namespace) -> None:
    # A demo gets its own stream each time; an agent and its readers agree on a name.
    name = arguments.stream or ("llm-tokens" if arguments.what != "demo" else f"llm-tokens-{secrets.token_hex(4)}")
    async with AsyncClient(arguments.url, retry=RetryPolicy(attempts_max=4)) as client:
        stream = client.stream(name)
        match arguments.what:
            case "agent":
                if not await agent(stream, arguments.pause):
                    sys.exit(f"Error: {name} already holds a complete answer; choose another name, or watch it.")
            case "watch":
                await stream.head()  # a wrong name or URL fails at once; a follower would wait for the server
                offset = await watch(stream, arguments.offset)
                print(f"\n-- resume at {offset}", file=sys.stderr)
            case "demo":
                await demo(stream, arguments.pause)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["demo", "agent", "watch"])
    parser.add_argument("stream", nargs="?")
    parser.add_argument("--url", default=os.environ.get("HEADWATER_URL", "http://127.0.0.1:4437"))
    parser.add_argument("--offset", default=START)
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between two tokens")
    try:
        asyncio.run(main(parser.parse_args()))
    except* ClientError as failures:
        sys.exit(f"Error: {failures.exceptions[0]}")
