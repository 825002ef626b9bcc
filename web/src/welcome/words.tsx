/** The recovery words. They are shown, after a reload again, until three of them were typed. */
import type { NewWords } from "@ensemble/client/account";
import { useRef, useState } from "react";
import { otherWords } from "../data/account.ts";
import { textOf } from "../data/failure.ts";
import { AskedWords } from "./asked-words.tsx";
import { CopyWords } from "./copy-words.tsx";
import { Frame } from "./welcome.tsx";

const LEAD =
    "If you lose all your devices, these 24 words bring your account back. Nothing else can. Once you confirm them, they are never shown again.";
const AGAIN = `You have not confirmed your words yet. ${LEAD}`;

interface Props {
    made: NewWords;
    /** The page was left before they were confirmed. */
    isAgain?: boolean;
    onDone: () => Promise<void>;
}

export function Words({ made: first, isAgain = false, onDone }: Props) {
    const [made, setMade] = useState(first);
    const list = useRef<HTMLOListElement>(null);
    const [isAsked, setAsked] = useState(false);
    const [isRight, setRight] = useState(false);
    const [isBusy, setBusy] = useState(false);
    const [error, setError] = useState<string>();
    const attempt = (run: () => Promise<void>) => {
        setBusy(true);
        setError(undefined);
        run()
            .catch((caught: unknown) => setError(textOf(caught)))
            .finally(() => setBusy(false));
    };
    const confirm = () =>
        attempt(async () => {
            await made.confirm();
            await onDone();
        });
    const change = () => attempt(async () => setMade(await otherWords()));
    if (isAsked) {
        const again = () => {
            setRight(false);
            setAsked(false);
        };
        return (
            <Frame
                title="Type three of the words"
                lead="Copy them from your paper or your password manager. After this step the words are never shown again."
            >
                <form
                    className="stack"
                    onSubmit={(event) => {
                        event.preventDefault();
                        if (isRight) confirm();
                    }}
                >
                    <AskedWords words={made.words} onRight={setRight} />
                    {error !== undefined && (
                        <p className="error-text" role="alert">
                            {error}
                        </p>
                    )}
                    <div className="actions">
                        <button type="submit" className="button primary" disabled={!isRight || isBusy}>
                            {isBusy ? "Saving…" : "Continue"}
                        </button>
                        <button type="button" className="button plain" disabled={isBusy} onClick={again}>
                            Show the words again
                        </button>
                    </div>
                </form>
            </Frame>
        );
    }
    return (
        <Frame wide title="Write these words down" lead={isAgain ? AGAIN : LEAD}>
            <ol ref={list} className="words" aria-label="Recovery words">
                {made.words.map((word, at) => (
                    <li key={at}>{word}</li>
                ))}
            </ol>
            {error !== undefined && (
                <p className="error-text" role="alert">
                    {error}
                </p>
            )}
            <div className="actions">
                <button type="button" className="button primary" disabled={isBusy} onClick={() => setAsked(true)}>
                    I have written them down
                </button>
                <CopyWords words={made.words} list={list} />
                {isAgain && (
                    <button type="button" className="button plain" disabled={isBusy} onClick={change}>
                        Make new words
                    </button>
                )}
            </div>
        </Frame>
    );
}
