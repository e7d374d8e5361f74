"""Many streams on one connection: what a response holds, and that it lets go of it however it ends."""

import asyncio
import json
import socket
import struct
from contextlib import ExitStack
from itertools import pairwise

from headwater.http.api.multi_tail import FETCHES_MAX, LEGS_PER_TURN
from headwater.http.server import Server
from headwater.node.reads.tails import WAITERS_MAX
from headwater.protocol.limits import TAIL_STREAMS_MAX
from headwater.settings import Settings
from headwater.streams.queries import Query
from headwater.streams.replies import Reply
from headwater.testing import running_server

from ...doubles.faulty_store import Fault
from ...node.lake.lakes import Bench, bench
from ..processes import eventually, resident_bytes
from ..sockets import Sse, Wire, refused, request
from .inside import against, wire_to
from .test_tail import CLOSED, JSON, TEXT, at, batches, body_of, follow, next_of, post

MIB = 1024 * 1024
NAMES = [f"tail/{number}" for number in range(200)]
FROM_THE_START = dict.fromkeys(NAMES, "-1")


def create(url: str, names: list[str] = NAMES, body: bytes = b"abc") -> None:
    with wire_to(url) as wire:
        for name in names:
            assert wire.ask("PUT", at(name), TEXT, body).status == 201


def wait_for_none(node: Bench) -> None:
    assert eventually(lambda: node.node.tails.count == 0)
    assert not node.node.tails.names


# -- Ends --------------------------------------------------------------------------------------------------------------


def test_a_client_that_closes_or_resets_its_connection_leaves_no_waiters() -> None:
    def work(url: str, node: Bench, server: Server) -> None:
        create(url)
        for abort in (False, True):
            with wire_to(url) as wire:
                batches(follow(wire, FROM_THE_START), len(NAMES))
                assert node.node.tails.count == len(NAMES)
                if abort:
                    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            wait_for_none(node)

    against(work)


def test_a_client_that_leaves_before_its_first_batch_leaves_no_waiters() -> None:
    def work(url: str, node: Bench, server: Server) -> None:
        create(url)
        for _ in range(20):
            with wire_to(url) as wire:
                wire.send(post(body_of(FROM_THE_START)))
        with wire_to(url) as wire:
            # It waits for the response before it.
            wire.send(request("GET", f"{at(NAMES[0])}?offset=now&live=long-poll") + post(body_of(FROM_THE_START)))
            assert eventually(lambda: node.node.tails.count == 1)
        wait_for_none(node)

    against(work)


def test_a_response_that_ends_by_itself_leaves_no_waiters() -> None:
    def work(url: str, node: Bench, server: Server) -> None:
        create(url)
        with wire_to(url) as wire:
            assert follow(wire, FROM_THE_START).rest()[-1].data == '{"reason":"again"}'
        wait_for_none(node)
        with wire_to(url) as wire, wire_to(url) as writer:
            sse = follow(wire, {NAMES[0]: "-1", NAMES[1]: "-1"})
            batches(sse, 2)
            writer.ask("POST", at(NAMES[0]), CLOSED)
            writer.ask("DELETE", at(NAMES[1]))
            assert [event.kind for event in sse.rest()] == ["batch", "refused", "end"]
            wait_for_none(node)

    against(work, sse_seconds=0.5)


def test_a_server_that_drains_leaves_no_waiters() -> None:
    left: list[tuple[Bench, Wire, Sse]] = []

    def work(url: str, node: Bench, server: Server) -> None:
        create(url)
        wire = Wire(url)
        sse = follow(wire, FROM_THE_START)
        batches(sse, len(NAMES))
        left.append((node, wire, sse))

    against(work)
    [(node, wire, sse)] = left
    with wire:
        assert [(event.kind, event.data) for event in sse.rest()] == [("end", '{"reason":"draining"}')]
    assert node.node.tails.count == 0


def test_a_client_that_stops_reading_is_dropped_and_leaves_no_waiters() -> None:
    def work(url: str, node: Bench, server: Server) -> None:
        create(url, NAMES[:20], b"x" * MIB)
        with wire_to(url, receive_buffer_bytes=4096) as wire:
            wire.send(post(body_of(dict.fromkeys(NAMES[:20], "-1"))))
            assert eventually(lambda: node.node.tails.count == 20)
            wait_for_none(node)

    against(work, slow_reader_seconds=1)


# -- Work --------------------------------------------------------------------------------------------------------------


def test_a_thousand_streams_begin_over_several_turns_of_the_event_loop() -> None:
    names = [f"tail/{number}" for number in range(TAIL_STREAMS_MAX)]

    async def run() -> None:
        begun = [0]
        async with bench() as node:
            for name in names:
                await node.create(name, b"abc")
            server = Server(Settings(port=0))
            url = await server.listen()
            server.serve(node.node)
            loop = asyncio.get_running_loop()

            def watch() -> None:
                begun.append(len(node.node.tails.names))
                if begun[-1] < len(names):
                    loop.call_soon(watch)

            watch()
            await loop.run_in_executor(None, read_first_batches, url, names)
            await server.drain()
        steps = [after - before for before, after in pairwise(begun)]
        assert sum(steps) == len(names)
        assert max(steps) <= LEGS_PER_TURN

    asyncio.run(run())


def read_first_batches(url: str, names: list[str]) -> None:
    with Wire(url) as wire:
        batches(follow(wire, dict.fromkeys(names, "-1")), len(names))


def test_readers_of_the_same_stream_share_what_they_get() -> None:
    def work(url: str, node: Bench, server: Server) -> None:
        create(url)
        reads: list[object] = []
        read = node.node.read

        def counted(query: Query) -> Reply | asyncio.Task[Reply]:
            reads.append(query)
            return read(query)

        with ExitStack() as wires, wire_to(url) as writer:
            open_ = [follow(wires.enter_context(wire_to(url)), {NAMES[0]: "-1", NAMES[1]: "now"}) for _ in range(30)]
            for sse in open_:
                batches(sse, 2)
            node.node.read = counted
            assert writer.ask("POST", at(NAMES[0]), TEXT, b"for all").status == 204
            assert {batches(sse, 1)[0]["text"] for sse in open_} == {"for all"}
            assert len(reads) == 1

    against(work)


# -- Memory ------------------------------------------------------------------------------------------------------------


def test_nothing_is_read_for_a_client_that_does_not_read_and_everything_once_it_does() -> None:
    def work(url: str, node: Bench, server: Server) -> None:
        names = NAMES[:30]
        create(url, names, b"x" * MIB)
        with wire_to(url, receive_buffer_bytes=4096) as wire, wire_to(url) as writer:
            before = server.context.sent_bytes
            wire.send(post(body_of(dict.fromkeys(names, "-1"))))
            assert eventually(lambda: server.context.sending.used > 0)
            assert writer.ask("POST", at(names[0]), TEXT, b"more").status == 204
            # What the kernel takes and one page more; all of them would be 30.
            assert server.context.sent_bytes - before < 12 * MIB
            sse = Sse(wire, wire.receive_head()[1])
            found = dict.fromkeys(names, "")
            while sum(map(len, found.values())) < len(names) * MIB + 4:
                batch = next_of(sse, "batch")
                found[batch["stream"]] += batch["text"]
                sse.raw = b""
            assert found.pop(names[0]) == "x" * MIB + "more"
            assert set(found.values()) == {"x" * MIB}

    against(work, slow_reader_seconds=100)


def test_appends_are_not_written_to_a_client_that_has_stopped_reading() -> None:
    def work(url: str, node: Bench, server: Server) -> None:
        names, piece = NAMES[:20], b"y" * 500_000
        create(url, names)
        with wire_to(url, receive_buffer_bytes=4096) as wire, wire_to(url) as writer:
            sse = follow(wire, dict.fromkeys(names, "now"))
            batches(sse, len(names))
            before = server.context.sent_bytes
            for _ in range(4):
                for name in names:
                    assert writer.ask("POST", at(name), TEXT, piece).status == 204
            assert server.context.sent_bytes - before < 12 * MIB
            found = dict.fromkeys(names, 0)
            while sum(found.values()) < len(names) * 4 * len(piece):
                batch = next_of(sse, "batch")
                found[batch["stream"]] += len(batch["text"])
                sse.raw = b""
            assert set(found.values()) == {4 * len(piece)}

    against(work, slow_reader_seconds=100)


def test_the_body_of_a_request_is_not_kept_while_its_response_lasts() -> None:
    def work(url: str, node: Bench, server: Server) -> None:
        create(url)
        with wire_to(url) as wire:
            wire.send(post(body_of(FROM_THE_START) + b" " * 500_000))
            batches(wire.receive_sse(), len(NAMES))
            assert server.context.receiving.used == 0

    against(work)


def test_two_hundred_clients_with_a_thousand_streams_each_are_bounded() -> None:
    names = [f"tail/{number}" for number in range(TAIL_STREAMS_MAX)]
    body = post(body_of(dict.fromkeys(names, "-1")))
    allowed = WAITERS_MAX // TAIL_STREAMS_MAX
    with running_server("--sse-seconds", "1000") as server, ExitStack() as wires:
        create(server.url, names)
        before = resident_bytes(server.pid)
        accepted: list[Wire] = []
        for number in range(200):
            wire = wires.enter_context(Wire(server.url, timeout_seconds=60))
            wire.send(body)
            if number < allowed:
                batches(wire.receive_sse(), len(names))
                accepted.append(wire)
            else:
                response = wire.receive()
                refused(response, 503, "waiters_too_many")
                assert response.headers["retry-after"] == "1"
        with Wire(server.url) as other:
            assert live_readers(other) == allowed * TAIL_STREAMS_MAX
            grown = resident_bytes(server.pid) - before
            assert grown < 100 * MIB, grown
            # An append still reaches all of them.
            assert other.ask("POST", at(names[7]), TEXT, b"more").status == 204
            for wire in accepted:
                assert b'"stream":"tail/7"' in next(wire.chunks())
            wires.close()
            assert eventually(lambda: live_readers(other) == 0)


def live_readers(wire: Wire) -> int:
    found = json.loads(wire.ask("GET", "/__headwater/status").body)["live_readers"]
    assert isinstance(found, int)
    return found


# -- The lake ----------------------------------------------------------------------------------------------------------


def test_history_that_cannot_be_read_holds_up_no_other_stream_and_comes_later() -> None:
    def work(url: str, node: Bench, server: Server) -> None:
        cold, hot = NAMES[:20], NAMES[20]
        create(url, cold, b"cold")
        with wire_to(url) as writer, wire_to(url) as wire:
            assert writer.ask("POST", "/__headwater/flush").status == 200
            create(url, [hot], b"hot")
            node.store.plan["read"] = Fault.TIME_OUT
            node.store.timeout_seconds = 0.05
            sse = follow(wire, dict.fromkeys([*cold, hot], "-1"))
            assert batches(sse, 1)[0]["text"] == "hot"
            for number in range(20):
                writer.ask("POST", at(hot), TEXT, b"%d" % number)
                assert batches(sse, 1)[0]["text"] == str(number)
                assert sum(node.lake.reads.in_use.values()) <= FETCHES_MAX
            node.store.heal()
            found = {batch["stream"]: batch["text"] for batch in batches(sse, len(cold))}
            assert found == dict.fromkeys(cold, "cold")
            writer.ask("POST", at(cold[3]), TEXT, b"warm")
            assert batches(sse, 1)[0]["text"] == "warm"
        wait_for_none(node)

    against(work)


def test_what_is_appended_while_history_is_fetched_follows_it() -> None:
    def work(url: str, node: Bench, server: Server) -> None:
        create(url, NAMES[:1], b"cold ")
        with wire_to(url) as writer, wire_to(url) as wire:
            assert writer.ask("POST", "/__headwater/flush").status == 200
            node.store.plan["read"] = Fault.TIME_OUT
            node.store.timeout_seconds = 0.2
            sse = follow(wire, {NAMES[0]: "-1"})
            assert writer.ask("POST", at(NAMES[0]), TEXT, b"warm").status == 204
            node.store.heal()
            found = ""
            while len(found) < len("cold warm"):
                found += batches(sse, 1)[0]["text"]
            assert found == "cold warm"

    against(work)


def test_damaged_history_is_refused_and_the_others_go_on() -> None:
    def work(url: str, node: Bench, server: Server) -> None:
        create(url, NAMES[:1])
        with wire_to(url) as writer, wire_to(url) as wire:
            assert writer.ask("POST", "/__headwater/flush").status == 200
            create(url, NAMES[1:2])
            for item in list(node.store.store.items("segments/")):
                node.store.lose(item.key)
            sse = follow(wire, {NAMES[0]: "-1", NAMES[1]: "-1"})
            assert batches(sse, 1)[0]["stream"] == NAMES[1]
            no = next_of(sse, "refused")
            assert (no["stream"], no["status"], no["code"]) == (NAMES[0], 500, "internal")

    against(work)


def test_a_large_message_waits_until_there_is_no_crowd() -> None:
    def work(url: str, node: Bench, server: Server) -> None:
        large, small = "tail/large", "tail/small"
        with wire_to(url) as wire, wire_to(url) as writer, wire_to(url, receive_buffer_bytes=4096) as lazy:
            message = json.dumps("z" * (8 * MIB)).encode()
            assert writer.ask("PUT", at(large), JSON, message).status == 201
            assert writer.ask("PUT", at(small), JSON, b"1").status == 201
            lazy.send(request("GET", f"{at(large)}?offset=-1"))
            assert eventually(lambda: server.context.sending.full)
            sse = follow(wire, {large: "-1", small: "-1"})
            assert batches(sse, 1)[0]["stream"] == small
            assert wire.silent_for(1.2)
            lazy.close()
            assert batches(sse, 1)[0]["items"] == ["z" * (8 * MIB)]

    against(work, sending_bytes_max=MIB)
