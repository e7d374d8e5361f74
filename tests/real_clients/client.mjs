// @durable-streams/client: append, read, producers, long-poll, SSE, resume.
import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client"
import { failure, until } from "./waiting.mjs"

const base = `${process.argv[2]}/v1/stream/real-clients`
const results = {}
const JSON_TYPE = "application/json"
const made = (name, contentType, more = {}) => DurableStream.create({ url: `${base}/${name}`, contentType, ...more })
const read = async (name, options = {}) => stream({ url: `${base}/${name}`, live: false, ...options })

// Append and read: values, text, bytes; what HEAD says; what is refused.
const notes = await made("notes", JSON_TYPE)
await Promise.all([1, { two: [2] }, "drei", null, [4, 5]].map((value) => notes.append(JSON.stringify(value))))
results.values = await (await read("notes")).json()
results.again = (await failure(made("notes", JSON_TYPE))) + " / " + (await failure(made("notes", "text/plain")))
const text = await made("text", "text/plain", { body: "eins " })
await text.append("zwei\r\ndrei ")
await text.append("ünf")
results.text = await (await read("text")).text()
const bytes = await made("bytes", "application/octet-stream")
await bytes.append(Uint8Array.from({ length: 256 }, (_, byte) => byte))
results.bytes = Buffer.from(await (await read("bytes")).body()).toString("hex")
const { exists, contentType, streamClosed } = await notes.head()
results.head = { exists, contentType, streamClosed }
results.missing = await failure(read("missing"))
results.appendToMissing = await failure(new DurableStream({ url: `${base}/missing`, contentType: JSON_TYPE }).append("1"))
results.deleted = [await failure((await made("gone", "text/plain")).delete()), await failure(read("gone"))]

// Resume: what was read before an offset is not read after it, and `now` skips all of it.
const first = await read("notes")
await first.json()
results.nothingNew = await (await read("notes", { offset: first.offset })).json()
await notes.append(JSON.stringify("sechs"))
results.resumed = await (await read("notes", { offset: first.offset })).json()
results.now = await (await read("notes", { offset: "now" })).json()

// Follow: existing and new messages, in both live modes, until the stream is closed.
for (const live of ["long-poll", "sse"]) {
  const followed = await made(`followed-${live}`, JSON_TYPE)
  await followed.append(JSON.stringify(0))
  const received = []
  const offsets = []
  let half
  const session = await stream({ url: followed.url, live })
  session.subscribeJson(async (batch) => {
    received.push(...batch.items)
    offsets.push(batch.offset)
    if (batch.items.includes(2)) half = batch.offset
  })
  await until(() => received.length === 1, "the message that was there")
  for (let number = 1; number < 5; number++) {
    await followed.append(JSON.stringify(number))
    await until(() => received.length === number + 1, `message ${number}`)
  }
  await followed.close({ body: JSON.stringify(5) })
  await session.closed
  results[live] = { received, rising: offsets.every((offset, at) => at === 0 || offset >= offsets[at - 1]) }
  results[live].rest = await (await stream({ url: followed.url, live, offset: half })).json()
  results[live].closed = await failure(followed.append("6"))
  results[live].closedAgain = await failure(followed.close())
}
for (const [name, type, body] of [["lines", "text/plain", "a\nb\n\nc"], ["binary", "image/png", "\u0000\u0001ÿ"]]) {
  const followed = await made(name, type)
  const session = await stream({ url: followed.url, live: "sse" })
  const whole = Array.fromAsync(session.bodyStream())
  await followed.append(body)
  await followed.append(body)
  await followed.close()
  results[name] = Buffer.concat(await whole).toString("hex")
}

// Producers: everything once and in order, a fence, a claim.
const ledger = await made("ledger", JSON_TYPE)
const errors = []
const onError = (error) => errors.push(error.name)
const old = new IdempotentProducer(ledger, "till", { lingerMs: 1, maxBatchBytes: 200, onError })
for (let sale = 0; sale < 300; sale++) old.append(JSON.stringify({ sale }))
await old.flush()
const next = new IdempotentProducer(ledger, "till", { epoch: 1, lingerMs: 0, onError })
next.append(JSON.stringify({ sale: 300 }))
await next.flush()
old.append(JSON.stringify({ sale: "late" }))
await old.flush()
const claiming = new IdempotentProducer(ledger, "till", { epoch: 0, autoClaim: true, lingerMs: 0, onError })
claiming.append(JSON.stringify({ sale: 301 }))
await claiming.flush()
await claiming.close(JSON.stringify({ sale: 302 }))
results.sales = (await (await read("ledger")).json()).map(({ sale }) => sale)
results.errors = errors
results.epoch = claiming.epoch

// A writer's own order.
const ordered = await made("ordered", "text/plain", { batching: false })
await ordered.append("b", { seq: "b" })
results.seq = await failure(ordered.append("a", { seq: "a" }))
results.ordered = await (await read("ordered")).text()

console.log(JSON.stringify(results))
