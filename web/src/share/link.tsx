import { useState } from "react";
import { useAttempt } from "../base/attempt.ts";
import type { SessionRow } from "../data/row.ts";
import { endLink, newLink, useLink } from "../data/shares.ts";
import { aboutLink } from "./about-link.ts";
import { Address } from "./address.tsx";

interface Props {
    row: SessionRow;
    isBusy: boolean;
    onBusy: (isBusy: boolean) => void;
}

const ENDS: [name: string, hours: number | undefined][] = [
    ["in an hour", 1],
    ["in a day", 24],
    ["in a week", 168],
    ["never", undefined],
];
const USES: [name: string, uses: number | undefined][] = [
    ["once", 1],
    ["10 times", 10],
    ["100 times", 100],
    ["without limit", undefined],
];

/** Of a link that was made elsewhere. */
const LOST =
    "The address was shown once, where the link was made. Make a new link to get a new address: the old one then stops working.";

/** A link with which any person can read the session. */
export function PublicLink({ row, isBusy, onBusy }: Props) {
    const [end, setEnd] = useState(1);
    const [uses, setUses] = useState(1);
    const [address, setAddress] = useState<string>();
    const link = useLink(row.id, true);
    const { error, said, setSaid, run: attempt } = useAttempt(onBusy);
    const make = () => attempt(async () => setAddress(await newLink(row.id, ENDS[end]?.[1], USES[uses]?.[1])));
    const remove = () =>
        attempt(async () => {
            await endLink(row.id);
            setAddress(undefined);
            setSaid("The link no longer works.");
        });
    return (
        <section aria-labelledby="public">
            <h3 id="public">Public link</h3>
            <p className="muted">
                Anyone with the link can read the session live, without an account. A new link replaces the old one.
            </p>
            {link && <p role="status">{aboutLink(link)}</p>}
            {link === null && said === undefined && (
                <p className="muted" role="status">
                    No link opens this session.
                </p>
            )}
            {address !== undefined && <Address address={address} copyLabel="Copy link" />}
            {link &&
                address === undefined &&
                (link.address !== undefined ? (
                    <Address address={link.address} copyLabel="Copy link" isShort />
                ) : (
                    <p className="muted">{LOST}</p>
                ))}
            <div className="row">
                <label className="field">
                    <span>Ends</span>
                    <select className="select" value={end} onChange={(event) => setEnd(Number(event.target.value))}>
                        {ENDS.map(([name], at) => (
                            <option key={name} value={at}>
                                {name}
                            </option>
                        ))}
                    </select>
                </label>
                <label className="field">
                    <span>Opens</span>
                    <select className="select" value={uses} onChange={(event) => setUses(Number(event.target.value))}>
                        {USES.map(([name], at) => (
                            <option key={name} value={at}>
                                {name}
                            </option>
                        ))}
                    </select>
                </label>
            </div>
            <div className="row">
                <button type="button" className="button" disabled={isBusy} onClick={make}>
                    {link ? "Make a new link" : "Make a link"}
                </button>
                {link !== null && (
                    <button type="button" className="button plain" disabled={isBusy} onClick={remove}>
                        End the link
                    </button>
                )}
            </div>
            {said && (
                <p className="muted" role="status">
                    {said}
                </p>
            )}
            {error !== undefined && (
                <p className="error-text" role="alert">
                    {error}
                </p>
            )}
        </section>
    );
}
