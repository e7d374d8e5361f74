// @durable-streams/client with credentials: a producer that may not append, and readers whose tickets end as they read.
import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client"
import { failure, until } from "./waiting.mjs"

const [url, tickets, token, reader] = process.argv.slice(2)
const base = `${url}/v1/stream/real-clients`
const results = {}
const bearer = (credential) => ({ Authorization: `Bearer ${credential}` })

// A producer with autoClaim that may only read: one request, then an error.
let requests = 0
const counted = (...all) => {
  requests += 1
  if (requests > 20) throw new Error("The producer goes on and on.")
  return fetch(...all)
}
const ledger = await DurableStream.create({ url: `${base}/ledger`, contentType: "application/json", headers: bearer(token) })
const errors = []
const handle = new DurableStream({ url: ledger.url, contentType: "application/json", headers: bearer(reader), fetch: counted })
const producer = new IdempotentProducer(handle, "till", {
  autoClaim: true,
  lingerMs: 0,
  fetch: counted,
  onError: (error) => errors.push([error.name, error.status]),
})
producer.append(JSON.stringify({ sale: 1 }))
await producer.flush()
results.producer = { requests, errors, epoch: producer.epoch }

// Readers ask for a ticket before each request; every ticket ends within two seconds, and the writer does not pause.
for (const live of ["long-poll", "sse"]) {
  const written = await DurableStream.create({ url: `${base}/${live}`, contentType: "application/json", headers: bearer(token) })
  const received = []
  const used = new Set()
  const ticket = async () => {
    const found = await (await fetch(tickets)).text()
    used.add(found)
    return `Bearer ${found}`
  }
  const session = await stream({ url: written.url, live, headers: { Authorization: ticket } })
  session.subscribeJson(async (batch) => void received.push(...batch.items))
  const last = Date.now() + 5_000
  let count = 0
  while (Date.now() < last) {
    await written.append(JSON.stringify(count))
    count += 1
    // Now and then nothing is written for longer than a ticket lasts, so that one ends while the reader waits.
    await new Promise((resume) => setTimeout(resume, count === 50 ? 2_500 : 10))
  }
  await written.close()
  const ended = await failure(session.closed)
  await until(() => received.length >= count, "the last message")
  results[live] = { ended, exact: received.length === count && received.every((value, at) => value === at) }
  results[live].tickets = used.size >= 3
}

console.log(JSON.stringify(results))
