// Starts the reference server: node server.mjs PORT [DATA_DIR]; without a directory it keeps everything in memory.
import { DurableStreamTestServer } from "@durable-streams/server"

const [port, dataDir] = process.argv.slice(2)
const server = new DurableStreamTestServer({ host: "127.0.0.1", port: Number(port), dataDir })
console.log(await server.start())
process.on("SIGTERM", () => process.exit(0))
