/** The recovery words, shown once. */
import type { NewWords } from "@ensemble/client/account";
import { useState } from "react";
import { textOf } from "../data/failure.ts";
import { AskedWords } from "./asked-words.tsx";
import { CopyWords } from "./copy-words.tsx";
import { Frame } from "./welcome.tsx";

export function Words({ made, onDone }: { made: NewWords; onDone: () => Promise<void> }) {
  const [isAsked, setAsked] = useState(false);
  const [isRight, setRight] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<string>();
  const goOn = () => {
    setBusy(true);
    setError(undefined);
    made.confirm().then(onDone).catch((caught: unknown) => {
      setBusy(false);
      setError(textOf(caught));
    });
  };
  if (isAsked) {
    const again = () => {
      setRight(false);
      setAsked(false);
    };
    return (
      <Frame title="Type three of them" lead="From your paper or your password manager. They are not shown again after this.">
        <form className="stack" onSubmit={(event) => {
          event.preventDefault();
          if (isRight) goOn();
        }}>
          <AskedWords words={made.words} onRight={setRight} />
          {error !== undefined && <p className="error-text" role="alert">{error}</p>}
          <div className="actions">
            <button type="submit" className="button primary" disabled={!isRight || isBusy}>{isBusy ? "Going on…" : "Go on"}</button>
            <button type="button" className="button plain" disabled={isBusy} onClick={again}>Show the words again</button>
          </div>
        </form>
      </Frame>
    );
  }
  return (
    <Frame wide title="Write these words down" lead="With these 24 words your account comes back when all your devices are lost. Nobody else can bring it back, and they are not shown again.">
      <ol className="words" aria-label="Recovery words">{made.words.map((word, at) => <li key={at}>{word}</li>)}</ol>
      <div className="actions">
        <button type="button" className="button primary" onClick={() => setAsked(true)}>I have written them down</button>
        <CopyWords words={made.words} />
      </div>
    </Frame>
  );
}
