// Who has signed the messages of a session that is open while a device of its owner is removed.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import test from "node:test";
import { isProblem, newId } from "@ensemble/client";
import { List, signList, SigningKey, type DeviceList, type ListedDevice } from "@ensemble/client/lists";
import { BoxPair, ContentRing, KeyRing, purposes, sealContent } from "@ensemble/client/seal";
import { signBody, View, writeCommand } from "@ensemble/client/transcript";

const inside = async <T>(path: string): Promise<T> => (await import(new URL(`../../dist/${path}`, import.meta.url).href)) as T;
type Watching = typeof import("../dist/account/live/watch.js");
type Waiting = typeof import("../dist/account/live/waiting.js");

const OWNER = newId();
const MACHINE = "desk";

async function device(more: Pick<ListedDevice, "role" | "machineId">): Promise<[SigningKey, ListedDevice]> {
  const signer = await SigningKey.generate();
  return [signer, { key: signer.publicKey, boxKey: (await BoxPair.fromSecret(randomBytes(32))).publicKey, ...more }];
}

/** An account with a computer, a phone and a machine, its session, and what the server shows of its lists. */
class Place {
  readonly #ring = KeyRing.generate();
  readonly #session = newId();
  readonly lists: List[] = [];
  /** How often the server was asked for the newest list. */
  asked = 0;
  fails = false;
  /** The newest list that this program has read. */
  known: List | undefined;
  #seq = 0;
  #n = 40;
  readonly view = new View();
  #watched: InstanceType<Watching["Watched"]> | undefined;

  private constructor(
    readonly computer: SigningKey,
    readonly phone: SigningKey,
    private readonly host: SigningKey,
    private readonly first: DeviceList,
  ) {}

  static async make(): Promise<Place> {
    const [computer, primary] = await device({ role: "primary" });
    const [phone, linked] = await device({ role: "linked" });
    const [host, machine] = await device({ role: "machine", machineId: MACHINE });
    const place = new Place(computer, phone, host, {
      account: computer.publicKey,
      version: 1,
      prev: null,
      created: new Date(0).toISOString(),
      contentEpoch: 1,
      contentPublicKey: await ContentRing.generate().publicKey(),
      devices: [primary, linked, machine],
    });
    place.lists.push(await List.first(await signList(place.first, computer), computer.publicKey));
    const { Watched } = await inside<Watching>("account/live/watch.js");
    const session = { id: place.#session, ownerId: OWNER, machineId: MACHINE, keyEpoch: 1 };
    // The parts of a context and of a session that are needed.
    place.#watched = new Watched(place.#context() as never, session as never, place.#ring);
    return place;
  }

  /** A connection that caches lists for a while, as an account's does. */
  #context(): object {
    const list = (_user: string, maxAge?: number): Promise<List> => {
      if (!this.known || maxAge === 0) {
        this.asked++;
        if (this.fails) return Promise.reject(new TypeError("fetch failed"));
        this.known = this.lists.at(-1);
      }
      assert.ok(this.known);
      return Promise.resolve(this.known);
    };
    const page = (after: number): object => ({
      lists: this.lists.filter(({ version }) => version > after).map(({ signed }) => signed),
      nextCursor: null,
    });
    const call = (_method: string, _path: string, { query }: { query: { after: number } }): Promise<object> =>
      Promise.resolve(page(query.after));
    return { people: { list }, client: { call } };
  }

  /** The list after the newest one, without the phone. The server shows it when it is put into `lists`. */
  async withoutPhone(...more: ListedDevice[]): Promise<List> {
    const newest = this.lists.at(-1);
    assert.ok(newest);
    const body = newest.successor();
    body.devices = [...body.devices.filter(({ key }) => key !== this.phone.publicKey), ...more];
    [body.contentEpoch, body.contentPublicKey] = [2, await ContentRing.generate().publicKey()];
    return newest.next(await signList(body, this.computer));
  }

  async #message(signer: SigningKey, localId: string, body: string): Promise<object> {
    const opened = await signBody(this.#session, OWNER, body, signer);
    const content = await sealContent(this.#ring, purposes.message(this.#session), opened);
    return { seq: ++this.#seq, localId, content, senderId: OWNER };
  }

  says(text: string, signer = this.phone): Promise<object> {
    const [localId, list] = [newId(), { version: 1, digest: "" }];
    const command = { type: "prompt" as const, text, attachments: [], when: "next" as const };
    return this.#message(signer, localId, writeCommand(command, { localId, at: new Date().toISOString(), list }));
  }

  hostNames(version: number): Promise<object> {
    const [localId, at, list] = [newId(), new Date().toISOString(), { version, digest: "" }];
    const part = { type: "text", turnId: "t", part: 0, text: "written" };
    return this.#message(this.host, localId, JSON.stringify({ v: 1, localId, at, list, n: ++this.#n, ...part }));
  }

  /** Takes messages that arrive together. Returns the prompts that are shown: `true` for one that counts as its owner's. */
  async take(...messages: object[]): Promise<[string, boolean][]> {
    const { inOrder } = await inside<Waiting>("account/live/waiting.js");
    assert.ok(this.#watched);
    const { opened } = await inOrder(this.#watched, messages as never);
    for (const one of opened) this.view.message(one);
    return this.view.items.flatMap(({ shown }): [string, boolean][] => {
      if (shown.type === "prompt") return [[shown.prompt.text, true]];
      if (shown.type !== "note") return [];
      return [[shown.note.kind === "removed" ? shown.note.text : JSON.stringify(shown.note), false]];
    });
  }
}

test("a session that stays open knows of a removal with the machine's first message that names it", async () => {
  const place = await Place.make();
  const before = [["before", true]];
  assert.deepEqual(await place.take(await place.hostNames(1), await place.says("before")), before);
  place.lists.push(await place.withoutPhone());
  assert.deepEqual(await place.take(await place.says("on its way")), [...before, ["on its way", true]]);
  const { asked } = place;
  assert.deepEqual(await place.take(await place.says("last"), await place.hostNames(2), await place.says("after")), [
    ...before,
    ["on its way", true],
    ["last", true],
    ["after", false],
  ]);
  await place.take(await place.hostNames(2), await place.says("later"));
  assert.deepEqual([(await place.take()).at(-1), place.asked], [["later", false], asked + 1]);
});

test("messages that arrive together are judged by one list, also when a new device in them has it read", async () => {
  const place = await Place.make();
  const computers = ["by the computer", true];
  assert.deepEqual(await place.take(await place.says("by the computer", place.computer)), [computers]);
  const [tablet, entry] = await device({ role: "linked" });
  place.known = await place.withoutPhone(entry);
  place.lists.push(place.known);
  const together = [await place.says("by the phone"), await place.says("by the tablet", tablet), await place.hostNames(2)];
  assert.deepEqual(await place.take(...together), [computers, ["by the phone", false], ["by the tablet", true]]);
});

test("an old list does not make what is loaded first its owner's", async () => {
  const place = await Place.make();
  place.known = place.lists[0];
  place.lists.push(await place.withoutPhone());
  const loaded = [await place.says("loaded first"), await place.hostNames(2), await place.says("after")];
  assert.deepEqual(await place.take(...loaded), [
    ["loaded first", false],
    ["after", false],
  ]);
});

test("a server that keeps the named list back is asked once, and one that cannot be reached again", async () => {
  const place = await Place.make();
  await place.take(await place.hostNames(1), await place.says("before"));
  const { asked } = place;
  place.fails = true;
  const named = await place.hostNames(2);
  await assert.rejects(place.take(named), (error) => !isProblem(error) && error instanceof TypeError);
  place.fails = false;
  for (let times = 0; times < 3; times++) await place.take(times === 0 ? named : await place.hostNames(2));
  assert.equal(place.asked, asked + 2);
});
