// One session with contents that are given, or made up: to look at, and for tests of what hostile contents do.
import "../../src/styles/base.css";
import "../../src/start-styles.ts";
import type { Recovering } from "@ensemble/client/account";
import { LookRefused, MachineAway } from "@ensemble/client/looks";
import { readBody, View } from "@ensemble/client/transcript";
import { createRoot } from "react-dom/client";
import { findServer } from "../../src/base/server.ts";
import { Store } from "../../src/base/store.ts";
import { account, type Role } from "../../src/data/account.ts";
import type { DeviceRow } from "../../src/data/devices.ts";
import type { FeedView, SessionFeed } from "../../src/data/feed.ts";
import { type Looks, shownAs } from "../../src/data/looks.ts";
import { type MachineRow, machines } from "../../src/data/machines.ts";
import type { SessionRow } from "../../src/data/row.ts";
import { sessions } from "../../src/data/sessions.ts";
import { keepAddress, knownAddress, type LinkRow, links } from "../../src/data/shares.ts";
import { makeWords, unconfirmedWords, willNeedWords } from "../../src/data/unconfirmed-words.ts";
import { Home } from "../../src/home/home.tsx";
import { Session } from "../../src/session/page.tsx";
import { Device } from "../../src/settings/device.tsx";
import { Found } from "../../src/welcome/restore.tsx";
import { Words } from "../../src/welcome/words.tsx";
import * as made from "./bodies.ts";

// What the page keeps is named after the server, which is this origin.
await findServer();
const COMMANDS = ["prompt", "answer", "control"];
interface Given {
    bodies?: object[];
    frames?: typeof made.frames;
    title?: string;
    agent?: string;
    online?: boolean;
    cannotWrite?: SessionRow["cannotWrite"];
    isGuest?: boolean;
    refusal?: string;
    isPublic?: boolean;
    /** Over what is shown otherwise. */
    view?: Partial<FeedView>;
    /** What the machine answers to looks, by what is asked; or the code with which it refuses them. */
    looks?: { answers?: Record<string, unknown>; refused?: string };
    /** The public link of the session. */
    link?: LinkRow;
    /** The recovery words of an account that was made here: "begun", when the page was left before there were any. */
    words?: "begun" | "made";
    /** The screen Home with these in place of a session. */
    home?: { rows?: SessionRow[]; machines?: MachineRow[]; role?: Role };
    /** The devices of the account, as its settings show them. */
    devices?: DeviceRow[];
    /** The account that recovery words have found. */
    found?: Pick<Recovering, "fingerprint" | "devices">;
}
const given = (globalThis as { gallery?: Given }).gallery ?? {};
const show = new URLSearchParams(location.search).get("show") ?? "none";
const bodies = given.bodies ?? [...made.session, ...(made.requests[show] ?? [])];

const view = new View({ items: 20_000, size: 1 << 28 });
let n = 0;
for (const [at, body] of bodies.entries()) {
    const isCommand = COMMANDS.includes((body as { type: string }).type);
    const whole = {
        v: 1,
        localId: `m${at}`,
        at: "2026-11-23T17:02:00Z",
        list: { version: 1, digest: "" },
        ...(!isCommand && { n: ++n }),
        ...body,
    };
    view.message({
        seq: at + 1,
        author: isCommand ? { kind: "person", user: (body as { by?: string }).by ?? "me", key: "k" } : { kind: "host" },
        digest: "",
        message: readBody(JSON.stringify(whole)),
    });
}
view.message({
    seq: bodies.length + 1,
    author: { kind: "unknown", why: "a text that the session's machine has not signed" },
    digest: "",
    message: { unreadable: "" },
});
for (const frame of given.frames ?? made.frames) view.frame(frame);

const row = {
    id: "s",
    ref: "s",
    ownerId: "me",
    title: given.title ?? "Limiter refuses the first request",
    directory: undefined,
    host: "laptop",
    agent: given.agent ?? "claude",
    machineId: "m",
    attention: "none",
    open: 0,
    online: given.online ?? true,
    lastActiveAt: "2026-11-23T11:53:00Z",
    cannotWrite: given.cannotWrite,
    thinking: true,
    ended: false,
    archived: false,
    hosted: true,
    accessLevel: "owner",
    updatedAt: "2026-11-23T17:02:00Z",
} as const;
const store = new Store<FeedView>({
    row,
    state: view.state,
    items: view.items,
    open: view.open,
    plan: view.plan?.entries ?? [],
    turnId: "u",
    growing: view.growing().map(([part, { text, isThought }]) => ({ part, text, isThought })),
    hasOlder: false,
    isOpen: true,
    error: undefined,
    isHosted: true,
    may: { prompt: true, approve: true, own: given.isGuest !== true },
    rejected: undefined,
    ...given.view,
});
const nothing = () => Promise.resolve();
/** What was answered, for tests. The machine takes each answer at once. */
const answered: string[] = [];
Object.assign(globalThis, { answered });
const answer: SessionFeed["answer"] = ({ requestId }, { optionId }) => {
    answered.push(`${requestId} ${optionId ?? ""}`);
    store.update((before) => ({ ...before, open: before.open.filter((card) => card.requestId !== requestId) }));
    return Promise.resolve();
};
/** What was prompted, with its id. The first time the connection breaks. */
const prompted: string[] = [];
/** What was sent with the prompts. */
const attached: unknown[] = [];
Object.assign(globalThis, { prompted, attached });
const prompt: SessionFeed["prompt"] = (text, _when, localId, attachments) => {
    attached.push(...(attachments ?? []));
    prompted.push(`${localId} ${text}`);
    return prompted.length > 1 || "worksAtOnce" in globalThis
        ? Promise.resolve()
        : Promise.reject(new Error("The connection broke."));
};
/** Each interruption. */
const interrupted: number[] = [];
/** The list that the account has, for what changes it. */
Object.assign(globalThis, { interrupted, sessions, row });
/** The machine ends what still runs, or the server refuses with the text that is given. */
const interrupt: SessionFeed["interrupt"] = () => {
    interrupted.push(interrupted.length);
    if (given.refusal !== undefined) return Promise.reject(new Error(given.refusal));
    store.update((before) => ({ ...before, state: before.state && { ...before.state, stillRunning: [] } }));
    return Promise.resolve();
};
/** The prompts that were to be taken back, with the `localId` of that command. */
const takenBack: string[] = [];
let seq = bodies.length + 1;
/** Shows another message of the machine, or a command of this person. */
const receive = (body: { type: string }) => {
    const isCommand = COMMANDS.includes(body.type);
    const head = { v: 1, localId: `h${n}`, at: "2026-11-23T17:03:00Z", list: { version: 1, digest: "" } };
    view.message({
        seq: ++seq,
        author: isCommand ? { kind: "person", user: "me", key: "k" } : { kind: "host" },
        digest: "",
        message: readBody(JSON.stringify({ ...head, ...(!isCommand && { n: ++n }), ...body })),
    });
    store.update((before) => ({ ...before, items: view.items.slice() }));
};
Object.assign(globalThis, { takenBack, receive });
const takeBack: SessionFeed["takeBack"] = ({ localId, key }, id) => {
    takenBack.push(`${key} ${localId} ${id}`);
    return Promise.resolve();
};
/** What was looked at. */
const looked: string[] = [];
Object.assign(globalThis, { looked });
function look<T>(what: string): Promise<T> {
    looked.push(what);
    const { answers = {}, refused } = given.looks ?? {};
    if (refused === "away") return Promise.reject(new MachineAway("The machine has no stream open."));
    if (refused !== undefined) return Promise.reject(new LookRefused(refused, `Refused: ${refused}. Do something else.`));
    return what in answers ? Promise.resolve(answers[what] as T) : Promise.reject(new Error(`There is no ${what}.`));
}
const looks: Looks = {
    state: (since) => look(`state ${since}`),
    diff: (since, path) => look(`diff ${since} ${path}`),
    log: () => look("log"),
    names: (below) => look(`names ${below}`),
    async file(path) {
        const { kind, bytes, content } = await look<{ kind: string; bytes: number; content?: string }>(`file ${path}`);
        return shownAs(path, kind, bytes, content === undefined ? undefined : new TextEncoder().encode(content));
    },
};
const feed: SessionFeed = {
    ...(given.looks && { looks: () => Promise.resolve(looks) }),
    id: "s",
    view: store,
    prompt,
    answer,
    interrupt,
    takeBack,
    resume: nothing,
    setMode: nothing,
    setModel: nothing,
    loadOlder: nothing,
};
if (given.home) {
    const { rows = [], role = "primary" } = given.home;
    sessions.set({ rows, isLoaded: true, error: undefined });
    machines.set({ rows: given.home.machines ?? [], hidden: [], isLoaded: true, error: undefined });
    account.set({ state: "ready", userId: "me", fingerprint: "", role });
}
if (given.link) links.set(new Map([["s", given.link]]));
Object.assign(globalThis, { keepAddress, knownAddress });
/** Words as an account gives them; the server takes them. */
const newWords = async () => ({
    words: Array.from({ length: 24 }, () => `w${crypto.randomUUID().slice(0, 6)}`),
    confirm: nothing,
});
const devices = { newWords, sameWords: async (words: readonly string[]) => ({ words: [...words], confirm: nothing }) };
async function words() {
    if (given.words === "begun") await willNeedWords();
    const unconfirmed = await unconfirmedWords(devices);
    return unconfirmed ? (
        <Words made={unconfirmed} isAgain onDone={done} />
    ) : (
        <Words made={await makeWords(devices)} onDone={done} />
    );
}
const done = () => Promise.resolve(void Object.assign(globalThis, { isDone: true }));
const notHere = () => Promise.reject(new Error("There is no account here."));
function screenOf({ devices: rows, found }: Given) {
    if (found) return <Found found={{ ...found, finish: notHere }} onBack={nothing} onDone={done} />;
    return (
        rows && (
            <main className="main">
                <h1>Devices</h1>
                <ul className="list">
                    {rows.map((row) => (
                        <li key={row.key}>
                            <Device row={row} all={rows} isPrimary onChanged={nothing} />
                        </li>
                    ))}
                </ul>
            </main>
        )
    );
}
const screen = given.words ? await words() : screenOf(given);
const root = document.getElementById("root");
if (root) {
    createRoot(root).render(
        screen || (
            <div className={given.home ? "shell" : "shell in-session"}>
                <aside className="side" />
                <div className="main">
                    <main className="main">
                        {given.home ? <Home /> : <Session feed={feed} isPublic={given.isPublic ?? false} />}
                    </main>
                </div>
            </div>
        ),
    );
}
