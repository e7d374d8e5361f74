// The official suite, pointed at the server that SERVER_URL names. LONG_POLL_MS must be that server's long-poll time:
// the suite waits a second longer than it to see a long-poll end.
import { runConformanceTests } from "@durable-streams/server-conformance-tests"

const { SERVER_URL, LONG_POLL_MS } = process.env
if (!SERVER_URL || !LONG_POLL_MS) throw new Error("Set SERVER_URL and LONG_POLL_MS.")

runConformanceTests({ baseUrl: SERVER_URL, longPollTimeoutMs: Number(LONG_POLL_MS) })
