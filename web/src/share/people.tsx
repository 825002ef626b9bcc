import type { AccessGrant } from "@ensemble/client/transcript";
import { type FormEvent, useCallback, useEffect, useState } from "react";
import { useAttempt } from "../base/attempt.ts";
import type { SessionRow } from "../data/row.ts";
import { type Level, share, sharesOf, type MachineReceipt, unshare, whoIs } from "../data/shares.ts";
import { useLoaded } from "../data/use-loaded.ts";
import { oneLine } from "../text/visible.ts";
import { CAN, canDo, Levels } from "./levels.tsx";

interface Props {
    row: SessionRow;
    /** What the machine of the session lets each person do. */
    access: readonly AccessGrant[];
    /** Rises when people may have come. */
    changes: number;
    isBusy: boolean;
    onBusy: (isBusy: boolean) => void;
}

const RECEIPT = {
    confirmed: "The machine has confirmed it.",
    unconfirmed: "The machine is offline. It applies this when it is back.",
    nothing: "",
};
const USER = /^[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}$/;

/** People of the session: added by their account id, after a look at their fingerprint. */
export function People({ row, access, changes, isBusy, onBusy }: Props) {
    const list = useLoaded(useCallback(() => sharesOf(row.id), [row.id]));
    const { reload } = list;
    useEffect(() => {
        if (changes > 0) reload();
    }, [changes, reload]);
    const [user, setUser] = useState("");
    const [level, setLevel] = useState<Level>("view");
    const [found, setFound] = useState<{ user: string; fingerprint: string; name: string | undefined }>();
    const { error, said, setError, setSaid, run: attempt } = useAttempt(onBusy);

    const look = (event: FormEvent) => {
        event.preventDefault();
        const id = user.trim().toLowerCase();
        if (!USER.test(id))
            return setError(
                "An account id looks like 0199a1b2-…. The other person finds it in their settings or with “ensemble whoami”.",
            );
        return attempt(async () => setFound({ user: id, ...(await whoIs(id)) }));
    };
    const tell = (receipt: MachineReceipt) => {
        if (typeof receipt === "string") return setSaid(RECEIPT[receipt]);
        const why = oneLine(receipt.text ?? receipt.code ?? "it gave no reason", 300);
        return setError(`The machine refused the change. This person can still do what they could before: ${why}`);
    };
    const add = () =>
        attempt(async () => {
            if (!found) return;
            tell(await share(row.id, found.user, level));
            setFound(undefined);
            setUser("");
            reload();
        });
    const remove = (id: string) =>
        attempt(async () => {
            tell(await unshare(row.id, id));
            reload();
        });

    return (
        <section aria-labelledby="people">
            <h3 id="people">People</h3>
            {list.error !== undefined && (
                <p className="error-text" role="alert">
                    {list.error}
                </p>
            )}
            {list.value && list.value.length > 0 && (
                <ul className="list">
                    {list.value.map((one) => (
                        <li key={one.userId} className="entry">
                            <span className="what">
                                <bdi className="name">{oneLine(one.name ?? `User ${one.userId.slice(-6)}`, 60)}</bdi>
                                <span className="about wraps">
                                    {canDo(one.level, access.find(({ user: theirs }) => theirs === one.userId)?.may)} ·{" "}
                                    {one.fingerprint ?? "no devices"}
                                </span>
                            </span>
                            <button
                                type="button"
                                className="button small danger"
                                disabled={isBusy}
                                onClick={() => remove(one.userId)}
                            >
                                Remove
                            </button>
                        </li>
                    ))}
                </ul>
            )}
            {found ? (
                <div className="empty">
                    <p>
                        <bdi>
                            <strong>{oneLine(found.name ?? "This person", 60)}</strong>
                        </bdi>{" "}
                        {CAN[level]}. Their fingerprint is
                    </p>
                    <p>
                        <code>{found.fingerprint}</code>
                    </p>
                    <p className="muted">
                        Compare it with the one in their settings, over a call or in person. You do this only once.
                    </p>
                    <div className="row">
                        <button type="button" className="button primary" disabled={isBusy} onClick={add}>
                            Fingerprints match: share
                        </button>
                        <button type="button" className="button" disabled={isBusy} onClick={() => setFound(undefined)}>
                            Not the same
                        </button>
                    </div>
                </div>
            ) : (
                <form onSubmit={look}>
                    <div className="row">
                        <input
                            className="input"
                            aria-label="Account id of the person"
                            placeholder="Their account id"
                            value={user}
                            required
                            autoComplete="off"
                            spellCheck={false}
                            onChange={(event) => setUser(event.target.value)}
                        />
                        <button type="submit" className="button" disabled={isBusy || user.trim() === ""}>
                            Add…
                        </button>
                    </div>
                    <Levels level={level} onLevel={setLevel} />
                </form>
            )}
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
