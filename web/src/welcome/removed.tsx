/** The server says that this browser was removed. It may lie, so the keys stay until a person wipes them. */
import { useEffect, useState } from "react";
import { linkAddress } from "../base/link-address.ts";
import { wipe } from "../data/account.ts";
import { allDrafts } from "../data/drafts.ts";
import { textOf } from "../data/failure.ts";
import { allUnsent } from "../data/unsent.ts";
import { visible } from "../text/visible.ts";
import { Frame } from "./welcome.tsx";

export function Removed() {
    const [left, setLeft] = useState<readonly string[]>([]);
    const [isBusy, setBusy] = useState(false);
    const [error, setError] = useState<string>();
    useEffect(() => {
        void Promise.all([allUnsent(), allDrafts()]).then((all) => setLeft(all.flat()));
    }, []);
    const wiped = (then: () => void) => {
        setBusy(true);
        wipe().then(then, (caught: unknown) => {
            setBusy(false);
            setError(textOf(caught));
        });
    };
    // A listed key is never listed again, so adding it again begins with new keys, and with the page as if it were opened for the first time.
    const add = () =>
        wiped(() => {
            history.replaceState(null, "", linkAddress() || "/link");
            location.reload();
        });
    return (
        <Frame
            title="This server says that this browser was removed"
            lead="The lists and transcripts in this browser were wiped. Your sessions are safe. To use this browser again, add it from another device."
        >
            {left.length > 0 && (
                <section className="stack" aria-label="What you have not sent">
                    <p>You have not sent this. Copy what you need: it will be wiped with the rest.</p>
                    {left.map((text, at) => (
                        <pre key={at} className="unsent-text" tabIndex={0}>
                            {visible(text)}
                        </pre>
                    ))}
                </section>
            )}
            {error !== undefined && (
                <p className="error-text" role="alert">
                    {error}
                </p>
            )}
            <div className="actions">
                <button type="button" className="button primary" disabled={isBusy} onClick={add}>
                    Add it again
                </button>
                <button
                    type="button"
                    className="button danger"
                    disabled={isBusy}
                    onClick={() => wiped(() => location.assign("/"))}
                >
                    Wipe
                </button>
            </div>
        </Frame>
    );
}
