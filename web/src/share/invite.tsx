/** Invites one person into a session by a link, and lists the invitations into it. */
import { useCallback, useEffect, useState } from "react";
import { useAttempt } from "../base/attempt.ts";
import { server } from "../base/server.ts";
import { useStore } from "../base/store.ts";
import { clock } from "../base/words.ts";
import type { SessionRow } from "../data/row.ts";
import { inviteChanges } from "../data/sessions.ts";
import { end, inviteInto, invitesOf, isLoopback, type Listed } from "../data/inviting.ts";
import type { Level } from "../data/shares.ts";
import { useLoaded } from "../data/use-loaded.ts";
import { oneLine } from "../text/visible.ts";
import { Address } from "./address.tsx";

interface Props {
    row: SessionRow;
    isBusy: boolean;
    onBusy: (isBusy: boolean) => void;
    /** Someone may have joined. */
    onChange: () => void;
}

const LEVELS: [name: string, level: Level][] = [
    ["read", "view"],
    ["read and prompt", "prompt"],
    ["read, prompt and approve", "approve"],
];
const ENDS: [name: string, hours: number][] = [
    ["in an hour", 1],
    ["in a day", 24],
    ["in a week", 168],
];

export function Invite({ row, isBusy, onBusy, onChange }: Props) {
    const [level, setLevel] = useState(0);
    const [ends, setEnds] = useState(1);
    const [address, setAddress] = useState<string>();
    const list = useLoaded(useCallback(() => invitesOf(row.id), [row.id]));
    const changes = useStore(inviteChanges);
    const { reload } = list;
    useEffect(() => {
        reload();
        onChange();
    }, [changes, reload, onChange]);
    const { error, run } = useAttempt(onBusy);
    const make = () =>
        run(async () => {
            setAddress((await inviteInto(row.id, LEVELS[level]?.[1] ?? "view", ENDS[ends]?.[1] ?? 24)).address);
            reload();
        });
    const stop = (id: string) =>
        run(async () => {
            await end(id);
            setAddress(undefined);
            reload();
        });
    return (
        <section aria-labelledby="invite">
            <h3 id="invite">Invite by link</h3>
            <p className="muted">
                The link brings one person in, also without an account. You compare no fingerprints. Who wants more than read is
                let in by you.
            </p>
            {address !== undefined && (
                <>
                    <Address address={address} copyLabel="Copy invitation" />
                    <p className="muted">Send it to one person. It is a secret, and is shown only now.</p>
                    {isLoopback(address) && (
                        <p className="muted">
                            It leads to this computer only. <code>ensemble up --tunnel</code> gives the server an address for
                            others.
                        </p>
                    )}
                </>
            )}
            {list.value && list.value.length > 0 && (
                <ul className="list" aria-label="Invitations">
                    {list.value.map((one) => (
                        <li key={one.id} className="entry">
                            <span className="what">
                                <span className="about wraps">{stands(one)}</span>
                            </span>
                            {one.state !== "answered" && (
                                <button
                                    type="button"
                                    className="button small danger"
                                    disabled={isBusy}
                                    onClick={() => stop(one.id)}
                                >
                                    End
                                </button>
                            )}
                        </li>
                    ))}
                </ul>
            )}
            <div className="row">
                <label className="field">
                    <span>They may</span>
                    <select className="select" value={level} onChange={(event) => setLevel(Number(event.target.value))}>
                        {LEVELS.map(([name], at) => (
                            <option key={name} value={at}>
                                {name}
                            </option>
                        ))}
                    </select>
                </label>
                <label className="field">
                    <span>Expires</span>
                    <select className="select" value={ends} onChange={(event) => setEnds(Number(event.target.value))}>
                        {ENDS.map(([name], at) => (
                            <option key={name} value={at}>
                                {name}
                            </option>
                        ))}
                    </select>
                </label>
            </div>
            <div className="row">
                <button type="button" className="button" disabled={isBusy} onClick={make}>
                    Invite
                </button>
            </div>
            {(error ?? list.error) !== undefined && (
                <p className="error-text" role="alert">
                    {error ?? list.error}
                </p>
            )}
        </section>
    );
}

function stands({ state, name, expiresAt, level, may, base }: Listed): string {
    const what = may === "approve" ? "Read, prompt and approve" : level === "edit" ? "Read and prompt" : "Read";
    const who = name === undefined ? "someone" : oneLine(name, 60);
    if (state === "answered") return `${what}: ${who} has joined.`;
    if (state === "claimed") return `${what}: “${who}” waits for your answer.`;
    if (state !== "open") return `${what}: over.`;
    const elsewhere = new URL(base).origin === new URL(server()).origin ? "" : ` Its address is at ${base}.`;
    return `${what}: waiting, until ${clock(expiresAt)}.${elsewhere}`;
}
