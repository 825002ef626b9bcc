// The machines of an account as the server lists them.

import type { Context } from "../context.js";
import type { components } from "../../openapi.js";

export type Machine = components["schemas"]["Machine"];

/** All machines, the newest first. */
export async function allMachines(context: Context): Promise<Machine[]> {
  const { client } = context;
  const all: Machine[] = [];
  const page = (cursor?: string) => client.call("GET", "/v1/machines", { query: { ...(cursor !== undefined && { cursor }) } });
  for await (const { machines } of client.pages(page)) all.push(...machines);
  return all;
}
