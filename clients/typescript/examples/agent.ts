// Begins a session with an agent on a machine of the account, and shows what it does:
// `node examples/agent.js ~/.config/ensemble/account.key http://127.0.0.1:8080 DIRECTORY PROMPT…`

import { readFile } from "node:fs/promises";
import { Account, DeviceKeys, MemoryStore } from "@ensemble/client/account";

const [keyFile = "", base = "", directory = "", ...prompt] = process.argv.slice(2);
const keys = await DeviceKeys.fromKeyFile(await readFile(keyFile, "utf8"));
const account = await Account.create({ base, store: new MemoryStore(), name: "A script", keys });
const machineId = (await account.own()).list.body.devices.find(({ role }) => role === "machine")?.machineId;
if (machineId === undefined) throw new Error("No machine of this account has a key. Run `ensemble runner`.");

const session = await account.sessions.start({ machineId, directory, provider: "claude" });
const live = await account.sessions.open(session.id);
const stop = new AbortController();
await live.prompt(prompt.join(" "));
for await (const { items } of live.follow({ signal: stop.signal })) {
  for (const item of items.map((id) => live.view.item(id))) {
    const shown = item?.shown;
    if (shown?.type === "text") console.log(shown.part.text);
    if (shown?.type === "tool") console.log(`[${shown.call.title} ${shown.call.status ?? ""}]`);
    if (shown?.type === "card" && !shown.card.resolved) await live.answer(shown.card, { optionId: "reject" });
    if (shown?.type === "turn" && shown.turn.state === "ended") stop.abort();
  }
}
