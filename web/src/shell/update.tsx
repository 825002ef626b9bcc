/** Shows that a newer version of the page is available. Nothing changes before a person asks for it. */
import { useState } from "react";
import { Icon } from "../base/icons.tsx";
import { useStore } from "../base/store.ts";
import { versions } from "../data/update.ts";

/** The first part of a digest, in groups that can be compared by eye. */
export function shortDigest(digest: string): string {
    return (digest.slice(0, 16).match(/.{4}/g) ?? []).join(" ");
}

export function Update() {
    const { next, isOld } = useStore(versions);
    /** The notice that a person has dismissed: a newer version shows it again. */
    const [later, setLater] = useState<string>();
    const name = next?.digest ?? (isOld ? "old" : undefined);
    if (name === undefined || name === later) return null;
    return (
        <div className="update" role="status">
            <span>
                {next ? "Update available." : "Another tab has changed to a new version."}
                {next && (
                    <small>
                        Digest <code title={next.digest}>{shortDigest(next.digest)}</code>
                    </small>
                )}
            </span>
            <button type="button" className="button small primary" onClick={() => (next ? next.take() : location.reload())}>
                Reload
            </button>
            <button type="button" className="icon-button" aria-label="Later" title="Later" onClick={() => setLater(name)}>
                <Icon name="cross" size={14} />
            </button>
        </div>
    );
}
