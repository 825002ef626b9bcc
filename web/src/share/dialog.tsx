/** With whom a session is shared, its invitations and its public link. */
import type { AccessGrant } from "@ensemble/client/transcript";
import { useCallback, useState } from "react";
import { Dialog } from "../base/dialog.tsx";
import type { SessionRow } from "../data/row.ts";
import { Invite } from "./invite.tsx";
import { PublicLink } from "./link.tsx";
import { People } from "./people.tsx";

export function ShareDialog({
    row,
    access,
    onClose,
}: {
    row: SessionRow;
    access: readonly AccessGrant[];
    onClose: () => void;
}) {
    const [isBusy, setBusy] = useState(false);
    const [changes, setChanges] = useState(0);
    const changed = useCallback(() => setChanges((count) => count + 1), []);
    return (
        <Dialog title="Share this session" onClose={onClose}>
            <p className="muted">They will see the whole transcript, past and future, including names, paths and output.</p>
            <People row={row} access={access} changes={changes} isBusy={isBusy} onBusy={setBusy} />
            <Invite row={row} isBusy={isBusy} onBusy={setBusy} onChange={changed} />
            <PublicLink row={row} isBusy={isBusy} onBusy={setBusy} />
        </Dialog>
    );
}
