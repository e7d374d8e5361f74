// @durable-streams/aisdk-transport and @durable-streams/tanstack-ai-transport: an answer is written while it is read, and
// read again by another client that begins in the middle.
import { createDurableChatTransport, toDurableStreamResponse } from "@durable-streams/aisdk-transport"
import { serve } from "@hono/node-server"
import { Hono } from "hono"
import {
  durableStreamConnection,
  materializeSnapshotFromDurableStream,
  toDurableChatSessionResponse,
} from "@durable-streams/tanstack-ai-transport"
import { setTimeout } from "node:timers/promises"
import { until } from "./waiting.mjs"

const base = `${process.argv[2]}/v1/stream/chats`
const results = {}
const words = "A stream only grows, so you can leave and come back.".split(" ")
const answers = new Map()
let asked = 0

async function* aiChunks() {
  yield { type: "start", messageId: "m1" }
  yield { type: "text-start", id: "t1" }
  for (const word of words) {
    await setTimeout(10)
    yield { type: "text-delta", id: "t1", delta: `${word} ` }
  }
  yield { type: "text-end", id: "t1" }
  yield { type: "finish" }
}

async function* tanstackChunks() {
  yield { type: "TEXT_MESSAGE_START", messageId: "m2", role: "assistant" }
  for (const word of words) {
    await setTimeout(10)
    yield { type: "TEXT_MESSAGE_CONTENT", messageId: "m2", delta: `${word} `, content: "left out" }
  }
  yield { type: "TEXT_MESSAGE_END", messageId: "m2" }
}

const app = new Hono()
app.post("/ai/:mode", async (context) => {
  const writeUrl = `${base}/answer-${asked++}`
  answers.set((await context.req.json()).id, writeUrl)
  return toDurableStreamResponse({ source: aiChunks(), stream: { writeUrl }, mode: context.req.param("mode") })
})
app.get("/ai/:mode/:id/stream", (context) => {
  const streamUrl = answers.get(context.req.param("id"))
  return streamUrl ? context.json({ streamUrl }, 200, { Location: streamUrl }) : context.body(null, 204)
})
app.post("/tanstack", async (context) => {
  const { messages } = await context.req.json()
  const stream = { writeUrl: `${base}/session` }
  return toDurableChatSessionResponse({ stream, newMessages: messages, responseStream: tanstackChunks(), mode: "await" })
})
const server = await new Promise((started) => {
  const one = serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, (address) => started({ one, ...address }))
})
const backend = `http://127.0.0.1:${server.port}`

// The AI SDK.
const collected = async (readable) => (await Array.fromAsync(readable)).map(({ type, delta }) => [type, delta])
for (const mode of ["immediate", "await"]) {
  const transport = createDurableChatTransport({ api: `${backend}/ai/${mode}` })
  const message = { id: "u1", role: "user", parts: [{ type: "text", text: "What is a stream?" }] }
  const sent = await transport.sendMessages({ chatId: `c-${mode}`, messages: [message], trigger: "submit-message" })
  const other = await transport.reconnectToStream({ chatId: `c-${mode}` })
  const [first, second] = await Promise.all([collected(sent), collected(other)])
  const whole = await collected(await transport.reconnectToStream({ chatId: `c-${mode}` }))
  results[mode] = { first, sameForOthers: JSON.stringify([first, first]) === JSON.stringify([second, whole]) }
}
results.unknownChat = await createDurableChatTransport({ api: `${backend}/ai/await` }).reconnectToStream({ chatId: "none" })

// TanStack AI: a session with two clients, the second of which begins with a snapshot.
const connection = () => durableStreamConnection({ sendUrl: `${backend}/tanstack`, readUrl: `${base}/session` })
const question = (id) => ({ id, role: "user", parts: [{ type: "text", content: `Question ${id}` }] })
const text = ({ role, parts }) => [role, parts.map((part) => part.content ?? part.text).join("")]
await connection().send([question("u1")])
const snapshot = await materializeSnapshotFromDurableStream({ readUrl: `${base}/session` })
results.snapshot = snapshot.messages.map(text)

const stop = new AbortController()
const chunks = []
const reading = (async () => {
  const resumed = { sendUrl: `${backend}/tanstack`, readUrl: `${base}/session`, initialOffset: snapshot.offset }
  for await (const chunk of durableStreamConnection(resumed).subscribe(stop.signal)) chunks.push(chunk)
})().catch(() => {})
const late = []
const readingLate = (async () => {
  for await (const chunk of connection().subscribe(stop.signal)) late.push(chunk)
})().catch(() => {})
await until(() => late.length === 1, "the snapshot of the late reader")
await connection().send([question("u2")])
const ends = (seen) => seen.filter(({ type }) => type === "TEXT_MESSAGE_END").length
await until(() => ends(chunks) === 2 && ends(late) === 2, "question and answer")
stop.abort()
await Promise.all([reading, readingLate])
const facts = ({ type, messageId, role, delta, content, messages }) => ({
  ...{ type, messageId, role, delta, content },
  messages: messages?.map(text),
})
results.chunks = chunks.map(facts)
results.late = late.map(facts)
results.session = (await materializeSnapshotFromDurableStream({ readUrl: `${base}/session` })).messages.map(text)

console.log(JSON.stringify(results))
process.exit(0)
