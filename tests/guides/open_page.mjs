// Opens a built page at an address, as a browser tab would; asks a question if one is given; prints the text once it
// contains what is waited for, and ends without saying goodbye, as a tab does that is reloaded.
import { setTimeout } from "node:timers/promises"
import { Window } from "happy-dom"

const [page, address, awaited, question] = process.argv.slice(2)
const window = new Window({ url: address })
window.document.body.innerHTML = '<div id="root"></div>'
// Node's own fetch stays: the page talks to real servers.
const { document, location, FormData } = window
Object.assign(globalThis, { window, document, location, FormData })

await import(page)
const root = document.getElementById("root")
while (!root.querySelector("input")) await setTimeout(10)
if (question) {
  root.querySelector("input").value = question
  root.querySelector("form button").click()
}
while (!root.textContent.includes(awaited)) await setTimeout(10)
console.log([...root.querySelectorAll("p")].map((element) => element.textContent).join("\n"))
process.exit(0)
