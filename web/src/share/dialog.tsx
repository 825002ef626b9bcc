/** With whom a session is shared, and its public link. */
import { useState } from "react";
import { Dialog } from "../base/dialog.tsx";
import type { SessionRow } from "../data/row.ts";
import { PublicLink } from "./link.tsx";
import { People } from "./people.tsx";

export function ShareDialog({ row, onClose }: { row: SessionRow; onClose: () => void }) {
  const [isBusy, setBusy] = useState(false);
  return (
    <Dialog title="Share this session" onClose={onClose}>
      <p className="muted">They will see the whole transcript, past and future, with names, paths and outputs.</p>
      <People row={row} isBusy={isBusy} onBusy={setBusy} />
      <PublicLink row={row} isBusy={isBusy} onBusy={setBusy} />
    </Dialog>
  );
}
