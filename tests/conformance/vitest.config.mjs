import { defineConfig } from "vitest/config"

// A few tests sit out the server's whole long-poll time, so one test may take far longer than vitest's usual 5 s.
export default defineConfig({ test: { include: ["conformance.test.mjs"], testTimeout: 60_000 } })
