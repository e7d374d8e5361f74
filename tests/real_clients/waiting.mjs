// What every scenario needs: to wait for a condition, and to say how a promise failed.
import { setTimeout } from "node:timers/promises"

export async function until(condition, what) {
  const deadline = Date.now() + 20_000
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`Not within 20 s: ${what}`)
    await setTimeout(5)
  }
}

export async function failure(promise) {
  try {
    await promise
    return "none"
  } catch (error) {
    return [error.name, error.code, error.status].filter((fact) => fact !== undefined).join(" ")
  }
}
