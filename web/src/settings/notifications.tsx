/** Notifications of this browser: on or off, and of what. */
import { useState } from "react";
import { Choice } from "../base/field.tsx";
import { textOf } from "../data/failure.ts";
import { type Kind, KINDS, type Notifications, notifications, setKinds, switchOff, switchOn } from "../data/push.ts";
import { useLoaded } from "../data/use-loaded.ts";

const NAMES: Record<Kind, [name: string, about: string]> = {
    permission: ["Permission needed", "still open after 10 seconds"],
    question: ["An agent asks a question", "still open after 10 seconds"],
    finished: ["Work is done", "when it took more than a minute"],
    failed: ["Work has failed", ""],
    away: ["A machine goes offline", "in the middle of a turn"],
};
const MISSING = {
    support: "This browser cannot show notifications while the page is closed.",
    "home-screen":
        "Add Ensemble to your home screen first: tap Share, then “Add to Home Screen”, and open it there. Apple allows notifications only there.",
    denied: "This browser blocks notifications from this page. Allow them next to its address, then reload the page.",
};

export function NotificationSettings() {
    const now = useLoaded(notifications);
    const [isBusy, setBusy] = useState(false);
    const [error, setError] = useState<string>();
    const attempt = (run: () => Promise<void>) => {
        setBusy(true);
        setError(undefined);
        run()
            .then(now.reload, (caught: unknown) => setError(textOf(caught)))
            .finally(() => setBusy(false));
    };
    return (
        <section className="section" aria-labelledby="notifications">
            <h2 id="notifications">Notifications in this browser</h2>
            {now.error !== undefined && (
                <p className="error-text" role="alert">
                    {now.error}
                </p>
            )}
            {!now.value && now.error === undefined && (
                <p className="soft" role="status">
                    Loading…
                </p>
            )}
            {now.value?.missing && <p className="soft">{MISSING[now.value.missing]}</p>}
            {now.value && !now.value.missing && !now.value.isOn && (
                <>
                    <p className="soft">
                        Get a notification when an agent needs you and no page is open. Its text is decrypted on this device:
                        the services that deliver it cannot read it.
                    </p>
                    <div>
                        <button type="button" className="button" disabled={isBusy} onClick={() => attempt(switchOn)}>
                            {isBusy ? "Switching on…" : "Switch on"}
                        </button>
                    </div>
                </>
            )}
            {now.value?.isOn && <Kinds now={now.value} isBusy={isBusy} attempt={attempt} />}
            {error !== undefined && (
                <p className="error-text" role="alert">
                    {error}
                </p>
            )}
        </section>
    );
}

function Kinds({ now, isBusy, attempt }: { now: Notifications; isBusy: boolean; attempt: (run: () => Promise<void>) => void }) {
    const [kinds, setChosen] = useState(now.kinds);
    const change = (kind: Kind, isWanted: boolean) => {
        const wanted = KINDS.filter((one) => (one === kind ? isWanted : kinds.includes(one)));
        setChosen(wanted);
        attempt(() =>
            setKinds(wanted).catch((caught: unknown) => {
                setChosen(kinds);
                throw caught;
            }),
        );
    };
    return (
        <>
            <fieldset className="checks" disabled={isBusy}>
                <legend className="hidden-label">Notify me when</legend>
                {KINDS.map((kind) => (
                    <Choice
                        key={kind}
                        className="check"
                        label={NAMES[kind][0]}
                        hint={NAMES[kind][1]}
                        checked={kinds.includes(kind)}
                        onChange={(event) => change(kind, event.target.checked)}
                    />
                ))}
            </fieldset>
            <div>
                <button type="button" className="button" disabled={isBusy} onClick={() => attempt(switchOff)}>
                    Switch off
                </button>
            </div>
        </>
    );
}
