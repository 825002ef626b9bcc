/** Adds a device: it opens the address, and shows six digits that are typed here. */
import type { Asking, Linking } from "@ensemble/client/account";
import { type FormEvent, useEffect, useRef, useState } from "react";
import { Dialog } from "../base/dialog.tsx";
import { server } from "../base/server.ts";
import { say } from "../base/toast.tsx";
import { beginLinking } from "../data/devices.ts";
import { textOf } from "../data/failure.ts";
import { Address } from "../share/address.tsx";
import { oneLine } from "../text/visible.ts";

const KINDS: Record<string, string> = { web: "A browser", cli: "A terminal" };
const NO_RUNNER =
    "A runner asked to be added. This page cannot do that. On that computer, run `ensemble login --link`, then `ensemble runner`.";

export function AddDevice({ onClose, onAdded }: { onClose: () => void; onAdded: () => void }) {
    const [linking, setLinking] = useState<Linking>();
    const [asking, setAsking] = useState<Asking>();
    const [digits, setDigits] = useState("");
    const [isPrimary, setPrimary] = useState(false);
    const [isBusy, setBusy] = useState(false);
    const [error, setError] = useState<string>();
    const isAdded = useRef(false);
    useEffect(() => {
        const stop = new AbortController();
        let begun: Linking | undefined;
        const run = async () => {
            begun = await beginLinking();
            if (stop.signal.aborted) return;
            setLinking(begun);
            const asks = await begun.asked(stop.signal);
            if (asks.kind === "runner") {
                await begun.refuse();
                return setError(NO_RUNNER);
            }
            // A computer needs it: only such a device gives the computer's runner a key.
            setPrimary(asks.kind === "cli");
            setAsking(asks);
        };
        run().catch((caught: unknown) => {
            if (!stop.signal.aborted) setError(textOf(caught));
        });
        return () => {
            stop.abort();
            if (!isAdded.current) begun?.refuse().catch(() => undefined);
        };
    }, []);
    const approve = (event: FormEvent) => {
        event.preventDefault();
        if (!asking) return;
        setBusy(true);
        setError(undefined);
        asking
            .approve(digits, isPrimary ? "primary" : "linked")
            .then((isRight) => {
                if (!isRight) return setError("These are not the digits on the other device. Check them and try again.");
                isAdded.current = true;
                say(`Added: ${oneLine(asking.name, 60)}`);
                onAdded();
                return onClose();
            })
            .catch((caught: unknown) => setError(textOf(caught)))
            .finally(() => setBusy(false));
    };
    return (
        <Dialog title="Add a device" onClose={onClose}>
            {!asking && linking && (
                <section aria-label="How to add it">
                    <p>
                        Open this address on the other device, with its camera or in its browser. In a terminal, run{" "}
                        <code>ensemble login --link --server {server()}</code> and paste the address there.
                    </p>
                    <Address address={linking.address} />
                    <p className="muted" role="status">
                        Waiting for the other device. The address is secret and works for ten minutes.
                    </p>
                </section>
            )}
            {!asking && !linking && error === undefined && <p role="status">Making an address…</p>}
            {asking && (
                <form onSubmit={approve}>
                    <p>
                        {KINDS[asking.kind] ?? "A device"},{" "}
                        <bdi>
                            <strong>{oneLine(asking.name, 60)}</strong>
                        </bdi>
                        , asks to be added. Type the six digits that it shows.
                    </p>
                    <div className="row">
                        <input
                            className="input"
                            value={digits}
                            inputMode="numeric"
                            autoComplete="off"
                            aria-label="Six digits"
                            maxLength={7}
                            required
                            autoFocus
                            onChange={(event) => setDigits(event.target.value)}
                        />
                        <button
                            type="submit"
                            className="button primary"
                            disabled={isBusy || digits.replace(/\D/g, "").length !== 6}
                        >
                            {isBusy ? "Adding…" : "Add it"}
                        </button>
                    </div>
                    <label className="check">
                        <input type="checkbox" checked={isPrimary} onChange={(event) => setPrimary(event.target.checked)} />
                        <span>It may add and remove devices, and run agents on its computer</span>
                    </label>
                    <small>
                        It can read, write and approve.
                        {isPrimary
                            ? " Choose this for a computer of your own only."
                            : " It cannot add or remove devices, and no runner of its computer can be added."}
                    </small>
                </form>
            )}
            {error !== undefined && (
                <p className="error-text" role="alert">
                    {error}
                </p>
            )}
        </Dialog>
    );
}
