/** An address with a secret in it: as text to copy, and as a code for a telephone's camera. */
import { useEffect, useState } from "react";

export function Address({ address }: { address: string }) {
  const [copied, setCopied] = useState<string>();
  const [code, setCode] = useState<{ path: string; size: number }>();
  useEffect(() => {
    let isGone = false;
    void import("uqr").then(({ encode }) => {
      const { data, size } = encode(address, { border: 1 });
      const path = data.map((row, y) => row.map((dark, x) => (dark ? `M${x} ${y}h1v1h-1z` : "")).join("")).join("");
      if (!isGone) setCode({ path, size });
    });
    return () => {
      isGone = true;
    };
  }, [address]);
  const copy = () => {
    navigator.clipboard.writeText(address).then(() => setCopied("Copied"), () => setCopied("Select it, and copy it"));
  };
  const send = () => {
    // It ends with an error when the person closes the telephone's dialog, too.
    navigator.share({ url: address }).catch(() => undefined);
  };
  return (
    <div className="address">
      <code tabIndex={0} aria-label="Address">{address}</code>
      <div className="row">
        <button type="button" className="button" onClick={copy} aria-live="polite">{copied ?? "Copy"}</button>
        {typeof navigator.share === "function" && <button type="button" className="button" onClick={send}>Send…</button>}
      </div>
      {code && <svg className="qr" viewBox={`0 0 ${code.size} ${code.size}`} role="img" aria-label="The address as a code" shapeRendering="crispEdges"><path d={code.path} /></svg>}
    </div>
  );
}
