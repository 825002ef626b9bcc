/** New recovery words. The earlier ones stop working. */
import type { NewWords as Made } from "@ensemble/client/account";
import { useEffect, useRef, useState } from "react";
import { Dialog } from "../base/dialog.tsx";
import { say } from "../base/toast.tsx";
import { newWords } from "../data/devices.ts";
import { textOf } from "../data/failure.ts";
import { AskedWords } from "../welcome/asked-words.tsx";
import { CopyWords } from "../welcome/copy-words.tsx";

export function NewWords({ onClose, onMade }: { onClose: () => void; onMade: () => void }) {
    const [made, setMade] = useState<Made>();
    const list = useRef<HTMLOListElement>(null);
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
        made?.confirm()
            .then(() => {
                say("Your new words are ready to use");
                onMade();
                onClose();
            })
            .catch((caught: unknown) => setError(textOf(caught)))
            .finally(() => setBusy(false));
    };
    return (
        <Dialog title="New recovery words" onClose={onClose}>
            <p>
                If you lose all your devices, these words bring your account back. Older words stop working once you confirm
                these.
            </p>
            {made && !isAsked && (
                <ol ref={list} className="words" aria-label="Recovery words">
                    {made.words.map((word, at) => (
                        <li key={at}>{word}</li>
                    ))}
                </ol>
            )}
            {made && isAsked && <AskedWords words={made.words} onRight={setRight} />}
            {error !== undefined && (
                <p className="error-text" role="alert">
                    {error}
                </p>
            )}
            <div className="row">
                {isAsked ? (
                    <button type="button" className="button primary" disabled={!isRight || isBusy} onClick={confirm}>
                        {isBusy ? "Saving…" : "Use these words"}
                    </button>
                ) : (
                    <button type="button" className="button primary" disabled={!made} onClick={() => setAsked(true)}>
                        I have written them down
                    </button>
                )}
                {made && !isAsked && <CopyWords words={made.words} list={list} />}
            </div>
            {isBusy && (
                <p className="muted" role="status">
                    If these replace older words, your sessions get new keys. This takes a few seconds.
                </p>
            )}
        </Dialog>
    );
}
