// Keeps notes in an encrypted session: `node examples/notes.js http://127.0.0.1:8080`. Two accounts, one session, read live.

import { Account, MemoryStore } from "@ensemble/client/account";

const base = process.argv[2] ?? "http://127.0.0.1:8080";
const ann = await Account.create({ base, store: new MemoryStore(), name: "Ann's script" });
const bob = await Account.create({ base, store: new MemoryStore(), name: "Bob's script" });

const session = await ann.sessions.create({ title: "Notes" });
await ann.sessions.share(session.id, bob.userId, "edit");
console.log(`Bob's fingerprint, to compare over another channel: ${await ann.people.fingerprint(bob.userId)}`);

await (await ann.sessions.converse(session.id)).send("Plums are ripe");
const notes = await bob.sessions.converse(session.id);
await notes.send("Pears as well");
for await (const { seq, text } of notes.follow({ after: 0 })) {
  console.log(`#${seq} ${text}`);
  if (seq === 2) break;
}
