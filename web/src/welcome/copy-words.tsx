/** Puts the recovery words where a password manager can take them from. */
import { useState } from "react";

export function CopyWords({ words }: { words: readonly string[] }) {
  const [said, setSaid] = useState("Copy for a password manager");
  const copy = () => {
    navigator.clipboard.writeText(words.join(" ")).then(() => setSaid("Copied"), () => setSaid("Select them, and copy them"));
  };
  return <button type="button" className="button" onClick={copy} aria-live="polite">{said}</button>;
}
