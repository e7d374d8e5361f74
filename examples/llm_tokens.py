"""Resumable LLM tokens: an agent writes as it thinks, readers come and go, nothing is lost or doubled.

    python examples/llm_tokens.py demo                 # both sides in one process, with a reader that drops out
    python examples/llm_tokens.py agent chats/42       # writes; killed and started again, it goes on where it was
    python examples/llm_tokens.py watch chats/42       # prints what there is and what comes, until the end
    python examples/llm_tokens.py watch chats/42 --offset 0000000000000000_0000000000000058

The agent is simulated: it "thinks" one word at a time. `--url` or HEADWATER_URL says where the server is.
"""

import argparse
import asyncio
import os
import sys

from headwater.client import START, AsyncClient, AsyncStream

ANSWER = (
    "A stream is a list that only grows. Whoever reads it keeps an offset, and with the offset they can leave at any "
    "word and come back later, on another device, without asking for the words that they have already seen."
)
TOKENS = [word + " " for word in ANSWER.split()]
TTL_SECONDS = 24 * 60 * 60


async def agent(stream: AsyncStream, pause_seconds: float) -> None:
    """Write one token after the other, each once, and close the stream behind the last."""
    await stream.create("application/json", ttl_seconds=TTL_SECONDS)
    found = await stream.head()
    if found.closed:
        return
    # An agent that was killed goes on behind the last token that is durable. The next epoch shuts the old one out.
    written = found.record_next or 0
    async with stream.producer("agent", auto_claim=True, linger_ms=0) as producer:
        for token in TOKENS[written:]:
            await asyncio.sleep(pause_seconds)
            await producer.append_json({"token": token})
        await producer.close_stream()


async def watch(stream: AsyncStream, offset: str = START, leave_after: int | None = None) -> str:
    """Print tokens from `offset` on, until the stream is closed or so many came; return where to go on."""
    seen = 0
    async with stream.follow(offset) as follower:
        async for chunk in follower:
            for message in chunk.json():
                print(message["token"], end="", flush=True)
                seen += 1
            # The offset goes with the whole chunk, so it is kept when all of the chunk is shown.
            offset = chunk.next_offset
            if leave_after is not None and seen >= leave_after:
                break
    return offset


async def demo(stream: AsyncStream, pause_seconds: float) -> None:
    """A reader that leaves in the middle and comes back, while the agent goes on."""
    await stream.create("application/json", ttl_seconds=TTL_SECONDS)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(agent(stream, pause_seconds))
        offset = await watch(stream, leave_after=5)
        print(f"\n-- the reader is gone; it keeps {offset}")
        await asyncio.sleep(5 * pause_seconds)
        print("-- and is back")
        await watch(stream, offset)
    print("\n-- the stream is closed")


async def main(arguments: argparse.Namespace) -> None:
    async with AsyncClient(f"{arguments.url}/v1/stream") as client:
        stream = client.stream(arguments.stream)
        match arguments.what:
            case "agent":
                await agent(stream, arguments.pause)
            case "watch":
                offset = await watch(stream, arguments.offset)
                print(f"\n-- go on at {offset}", file=sys.stderr)
            case "demo":
                await demo(stream, arguments.pause)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["demo", "agent", "watch"])
    parser.add_argument("stream", nargs="?", default="llm-tokens")
    parser.add_argument("--url", default=os.environ.get("HEADWATER_URL", "http://127.0.0.1:4437"))
    parser.add_argument("--offset", default=START)
    parser.add_argument("--pause", type=float, default=0.1, help="seconds from one token to the next")
    asyncio.run(main(parser.parse_args()))
