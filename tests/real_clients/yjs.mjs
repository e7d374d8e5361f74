// @durable-streams/y-durable-streams: its server in front of ours; two documents, two editors each, compaction, presence,
// a late reader, and a second server that knows nothing but what is stored.
import { YjsProvider } from "@durable-streams/y-durable-streams"
import { YjsServer } from "@durable-streams/y-durable-streams/server"
import { Awareness } from "y-protocols/awareness"
import * as Y from "yjs"
import { until } from "./waiting.mjs"

const results = {}
const errors = []
const options = { port: 0, host: "127.0.0.1", dsServerUrl: process.argv[2], compactionThreshold: 2000 }
let server = new YjsServer(options)
await server.start()

const providers = []
async function open(docId, liveMode, awareness) {
  const doc = awareness ? awareness.doc : new Y.Doc()
  const provider = new YjsProvider({ doc, baseUrl: `${server.url}/v1/yjs/real`, docId, liveMode, awareness })
  provider.on("error", (error) => errors.push(`${error}`))
  providers.push(provider)
  await until(() => provider.synced, `${docId} is synced`)
  return doc.getText("body")
}
const compactions = async (docId) => {
  const index = await fetch(`${process.argv[2]}/v1/stream/yjs/real/docs/${docId}/.index?offset=-1`)
  return index.ok ? (await index.json()).length : 0
}

for (const [docId, liveMode] of [["plan", "sse"], ["team/minutes", "long-poll"]]) {
  const ann = await open(docId, liveMode)
  const bob = await open(docId, liveMode)
  // Several compactions happen while both write.
  for (let round = 0; round < 12; round++) {
    ann.insert(ann.length, `ann ${round} ${"a".repeat(500)}. `)
    bob.insert(0, `bob ${round} ${"b".repeat(500)}. `)
    const whole = (text) => `${text}`.includes(`ann ${round} `) && `${text}`.includes(`bob ${round} `)
    await until(() => whole(ann) && whole(bob), "both have what both wrote")
  }
  await until(async () => (await compactions(docId)) >= 2, "two compactions")
  const late = await open(docId, liveMode)
  await until(() => `${late}` === `${ann}`, "the late reader has everything")
  late.insert(0, "late. ")
  await until(() => `${ann}` === `${late}` && `${bob}` === `${late}`, "what the late reader wrote")
  results[docId] = { length: ann.length, begins: `${ann}`.slice(0, 12), rounds: `${ann}`.match(/(ann|bob) \d+/g).sort() }
}

// Presence.
const [seeing, seen] = [new Awareness(new Y.Doc()), new Awareness(new Y.Doc())]
await open("presence", "sse", seeing)
await open("presence", "sse", seen)
const name = () => seeing.getStates().get(seen.clientID)?.name
await until(() => {
  seen.setLocalStateField("name", "ann")
  return name() === "ann"
}, "presence")
results.presence = name()

// Another server: what the first one knew was only a cache.
for (const provider of providers) provider.destroy()
await server.stop()
server = new YjsServer(options)
await server.start()
const reader = await open("plan", "sse")
await until(() => reader.length === results.plan.length, "the document after a restart")
results.afterRestart = `${reader}`.slice(0, 12)
results.errors = errors

console.log(JSON.stringify(results))
process.exit(0)
