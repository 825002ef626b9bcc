/** Says that a newer version of the page is there. Nothing changes before a person wants it. */
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
    /** What a person has put away: a newer version says so again. */
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
