/** New recovery words. Those from before are worth nothing then. */
import type { NewWords as Made } from "@ensemble/client/account";
import { useEffect, useState } from "react";
import { Dialog } from "../base/dialog.tsx";
import { say } from "../base/toast.tsx";
import { newWords } from "../data/devices.ts";
import { textOf } from "../data/failure.ts";
import { AskedWords } from "../welcome/asked-words.tsx";
import { CopyWords } from "../welcome/copy-words.tsx";

export function NewWords({ onClose, onMade }: { onClose: () => void; onMade: () => void }) {
  const [made, setMade] = useState<Made>();
  const [isAsked, setAsked] = useState(false);
  const [isRight, setRight] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<string>();
  useEffect(() => {
    newWords().then(setMade, (caught: unknown) => setError(textOf(caught)));
  }, []);
  const confirm = () => {
    setBusy(true);
    setError(undefined);
    made?.confirm().then(() => {
      say("The new words are in force");
      onMade();
      onClose();
    }).catch((caught: unknown) => setError(textOf(caught))).finally(() => setBusy(false));
  };
  return (
    <Dialog title="New recovery words" onClose={onClose}>
      <p>With these words your account comes back when all devices are lost. Words from before open nothing any more.</p>
      {made && !isAsked && <ol className="words" aria-label="Recovery words">{made.words.map((word, at) => <li key={at}>{word}</li>)}</ol>}
      {made && isAsked && <AskedWords words={made.words} onRight={setRight} />}
      {error !== undefined && <p className="error-text" role="alert">{error}</p>}
      <div className="row">
        {isAsked
          ? <button type="button" className="button primary" disabled={!isRight || isBusy} onClick={confirm}>{isBusy ? "Putting them in force…" : "Put them in force"}</button>
          : <button type="button" className="button primary" disabled={!made} onClick={() => setAsked(true)}>I have written them down</button>}
        {made && !isAsked && <CopyWords words={made.words} />}
      </div>
      {isBusy && <p className="muted" role="status">Where words are replaced, sessions get new keys: this takes some seconds.</p>}
    </Dialog>
  );
}
