// @durable-streams/state: change events in a stream, as a plain map and as a database that follows.
import { DurableStream, stream } from "@durable-streams/client"
import { MaterializedState, createStateSchema } from "@durable-streams/state"
import { createStreamDB } from "@durable-streams/state/db"
import { until } from "./waiting.mjs"

const results = {}
const anything = { "~standard": { version: 1, vendor: "test", validate: (value) => ({ value }) } }
const schema = createStateSchema({
  users: { schema: anything, type: "user", primaryKey: "id" },
  rooms: { schema: anything, type: "room", primaryKey: "id" },
})

for (const live of ["sse", "long-poll"]) {
  const url = `${process.argv[2]}/v1/stream/state/${live}`
  const events = await DurableStream.create({ url, contentType: "application/json" })
  const send = (event) => events.append(JSON.stringify(event))
  await send(schema.users.insert({ value: { id: "1", name: "Ann" } }))
  await send(schema.users.insert({ value: { id: "2", name: "Bob" } }))
  await send(schema.rooms.insert({ value: { id: "1", title: "Hall" } }))

  const db = createStreamDB({ streamOptions: { url, contentType: "application/json" }, state: schema, live })
  await db.preload()
  const { users, rooms } = db.collections
  const plain = (collection) => [...collection.values()].map(({ id, name, title }) => [id, name ?? title])
  const before = [plain(users), plain(rooms)]
  await send(schema.users.update({ value: { id: "1", name: "Anna" } }))
  await send(schema.users.delete({ key: "2" }))
  await send(schema.rooms.insert({ value: { id: "2", title: "Roof" } }))
  await until(() => rooms.has("2"), "the last change")
  const txid = crypto.randomUUID()
  const confirmed = db.utils.awaitTxId(txid, 10_000)
  await send(schema.users.insert({ value: { id: "3", name: "Cem" }, headers: { txid } }))
  await confirmed
  results[live] = { before, after: [plain(users), plain(rooms)] }
  db.close()

  const state = new MaterializedState()
  for (const event of await (await stream({ url, live: false })).json()) state.apply(event)
  results[live].materialized = [...state.getType("user").values()].map(({ id, name }) => [id, name])
}

console.log(JSON.stringify(results))
process.exit(0)
