/** Adds a device: it opens the address, and shows six digits that are typed here. */
import type { Asking, Linking } from "@ensemble/client/account";
import { type FormEvent, useEffect, useRef, useState } from "react";
import { Dialog } from "../base/dialog.tsx";
import { say } from "../base/toast.tsx";
import { beginLinking } from "../data/devices.ts";
import { textOf } from "../data/failure.ts";
import { Address } from "../share/address.tsx";
import { oneLine } from "../text/visible.ts";

const KINDS: Record<string, string> = { web: "A browser", cli: "A terminal", runner: "A machine" };

export function AddDevice({ onClose, onAdded }: { onClose: () => void; onAdded: () => void }) {
  const [linking, setLinking] = useState<Linking>();
  const [asking, setAsking] = useState<Asking>();
  const [digits, setDigits] = useState("");
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
      setAsking(await begun.asked(stop.signal));
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
    asking.approve(digits, "linked").then((isRight) => {
      if (!isRight) return setError("These are not the digits that it shows. Look again.");
      isAdded.current = true;
      say(`Added: ${oneLine(asking.name, 60)}`);
      onAdded();
      return onClose();
    }).catch((caught: unknown) => setError(textOf(caught))).finally(() => setBusy(false));
  };
  return (
    <Dialog title="Add a device" onClose={onClose}>
      {!asking && linking && (
        <section aria-label="How to add it">
          <p>Open this on the other device, with its camera or in its browser. In a terminal run <code>ensemble login --link</code>, and paste it there.</p>
          <Address address={linking.address} />
          <p className="muted" role="status">Waiting for the other device. The address is a secret, and good for ten minutes.</p>
        </section>
      )}
      {!asking && !linking && error === undefined && <p role="status">Making an address…</p>}
      {asking && (
        <form onSubmit={approve}>
          <p>{KINDS[asking.kind] ?? "A device"} asks to be added. Type the six digits that it shows.</p>
          <div className="row">
            <input className="input" value={digits} inputMode="numeric" autoComplete="off" aria-label="Six digits" maxLength={7} required autoFocus
              onChange={(event) => setDigits(event.target.value)} />
            <button type="submit" className="button primary" disabled={isBusy || digits.replace(/\D/g, "").length !== 6}>{isBusy ? "Adding…" : "Add it"}</button>
          </div>
          <small>It can read, write and approve. It cannot add or remove devices.</small>
        </form>
      )}
      {error !== undefined && <p className="error-text" role="alert">{error}</p>}
    </Dialog>
  );
}
