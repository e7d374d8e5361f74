// The reference server, in memory, on a free port, which it prints.
import { DurableStreamTestServer } from "@durable-streams/server"

const server = new DurableStreamTestServer({ port: 0, host: "127.0.0.1", longPollTimeout: 2_000 })
console.log(await server.start())
