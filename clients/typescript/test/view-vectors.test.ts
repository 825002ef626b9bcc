// Cases that the command line reads, too: tests/vectors/view.json.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import test from "node:test";
import { View, type Author, type Incoming, type Item, type Shown } from "@ensemble/client/transcript";
import { readBody } from "../src/protocol/transcript/body.js";

interface Said {
  seq: number;
  by: { host?: true; unknown?: true; key?: string; guest?: true; removedIn?: number };
  localId: string;
  n?: number;
  list: number;
  content: Record<string, unknown>;
}
interface Case {
  name: string;
  steps: { messages?: Said[]; older?: Said[]; checked?: { list: number; removed: Record<string, number> } }[];
  items: string[];
  open: string[];
  withheld?: number;
}

const file = new URL("../../../../tests/vectors/view.json", import.meta.url);

function author({ host, key, guest, removedIn }: Said["by"]): Author {
  if (host) return { kind: "host" };
  if (key === undefined) return { kind: "unknown", why: "unknown" };
  return { kind: "person", user: guest ? "g" : "u", key, ...(removedIn !== undefined && { removedIn }) };
}

function incoming({ seq, by, localId, n, list, content }: Said): Incoming {
  const head = { v: 1, localId, at: "2026-01-01T00:00:00.000Z", list: { version: list, digest: "A".repeat(43) } };
  const message = readBody(JSON.stringify({ ...content, ...head, ...(n !== undefined && { n }) }));
  return { seq, author: author(by), digest: "", message };
}

function said({ shown, unconfirmed }: Item): string {
  return unconfirmed === undefined ? saidOf(shown) : `${saidOf(shown)}, not confirmed by ${unconfirmed}`;
}

function saidOf(shown: Shown): string {
  switch (shown.type) {
    case "prompt":
      return `prompt ${shown.prompt.text} ${shown.taken.is}`;
    case "answer":
    case "control":
      return `${shown.type} ${shown.taken.is}`;
    case "turn":
      return `turn ${shown.turn.state}`;
    case "text":
    case "thought":
      return `${shown.type} ${shown.part.text}`;
    case "tool":
      return `tool ${shown.call.title ?? ""} ${shown.call.status ?? ""}`;
    case "card":
      return `card ${shown.card.requestId} ${shown.card.resolved?.outcome ?? "open"}`;
    case "error":
      return `error ${shown.failure.code}`;
    case "newer":
      return `newer ${shown.name}`;
    case "note":
      switch (shown.note.kind) {
        case "not_signed":
          return "not signed";
        case "removed":
          return `removed ${shown.note.text}`;
        case "missing":
          return `missing ${shown.note.from}-${shown.note.to}`;
        case "repeated":
          return `repeated ${shown.note.n}`;
        case "repeated_command":
          return `command again ${shown.note.localId}`;
        case "unreadable":
          return "unreadable";
      }
  }
}

test("what a view shows is what the vectors say", async () => {
  const { cases } = JSON.parse(await readFile(file, "utf8")) as { cases: Case[] };
  assert.ok(cases.length >= 35);
  for (const { name, steps, items, open, withheld } of cases) {
    const view = new View();
    for (const { messages = [], older, checked } of steps) {
      for (const message of messages) view.message(incoming(message));
      if (older) view.older(older.map(incoming));
      if (checked) view.checked("u", checked.list, new Map(Object.entries(checked.removed)));
    }
    const shown = { items: view.items.map(said), open: view.open.map(({ requestId }) => requestId), withheld: view.withheld };
    assert.deepEqual(shown, { items, open, withheld }, name);
  }
});
