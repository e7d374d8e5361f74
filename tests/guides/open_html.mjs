// Opens a page of a web server, as a browser tab would; clicks its button if told to; prints the answer once it contains
// what is waited for. Node's own fetch, EventSource and localStorage are used; a file keeps the latter over a reload.
import { setTimeout } from "node:timers/promises"
import { Window } from "happy-dom"

const [address, awaited, click] = process.argv.slice(2)
const { document, location } = new Window({ url: address })
const nodeFetch = globalThis.fetch
const fetch = (input, init) => nodeFetch(new URL(input, address), init)
Object.assign(globalThis, { document, location, fetch })

const html = await (await fetch("/")).text()
const [, markup, script] = /^(.*)<script type="module">(.*)<\/script>/s.exec(html)
document.write(markup)
await import(`data:text/javascript,${encodeURIComponent(script)}`)

const answer = document.querySelector("#answer")
console.log(`at first: ${answer.textContent}`)
if (click) document.querySelector("button").click()
while (!answer.textContent.includes(awaited)) await setTimeout(10)
if (awaited.endsWith(".")) while (!JSON.parse(localStorage.getItem("answer"))?.closed) await setTimeout(10)
console.log(`at last: ${answer.textContent}`)
process.exit(0)
