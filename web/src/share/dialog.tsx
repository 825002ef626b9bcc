/** With whom a session is shared, and its public link. */
import type { AccessGrant } from "@ensemble/client/transcript";
import { useState } from "react";
import { Dialog } from "../base/dialog.tsx";
import type { SessionRow } from "../data/row.ts";
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
    return (
        <Dialog title="Share this session" onClose={onClose}>
            <p className="muted">They will see the whole transcript, past and future, including names, paths and output.</p>
            <People row={row} access={access} isBusy={isBusy} onBusy={setBusy} />
            <PublicLink row={row} isBusy={isBusy} onBusy={setBusy} />
        </Dialog>
    );
}
