/** What a plan needs and does not contain: values of its variables, and files that a page cannot open by their names. */
import { useId, useState } from "react";
import { oneLine } from "../text/visible.ts";

/** The longest text of a file that is read, in bytes: more than any prompt may have. */
const LONGEST = 1 << 20;

interface Props {
    variables: readonly string[];
    files: readonly string[];
    values: Readonly<Record<string, string>>;
    chosen: Readonly<Record<string, string>>;
    onValue: (name: string, value: string) => void;
    onFile: (name: string, text: string) => void;
}

export function Needed({ variables, files, values, chosen, onValue, onFile }: Props) {
    if (variables.length === 0 && files.length === 0) return null;
    return (
        <fieldset className="needed">
            <legend>What the plan asks for</legend>
            {variables.map((name) => (
                <label key={name} className="field">
                    <span>
                        <code>{`{{vars.${name}}}`}</code>
                    </span>
                    <input
                        className="input"
                        value={values[name] ?? ""}
                        autoComplete="off"
                        spellCheck={false}
                        onChange={(event) => onValue(name, event.target.value)}
                    />
                </label>
            ))}
            {files.map((name) => (
                <Chosen key={name} name={name} isChosen={chosen[name] !== undefined} onText={(text) => onFile(name, text)} />
            ))}
        </fieldset>
    );
}

function Chosen({ name, isChosen, onText }: { name: string; isChosen: boolean; onText: (text: string) => void }) {
    const [error, setError] = useState<string>();
    const about = useId();
    const take = (file: File | undefined) => {
        setError(undefined);
        if (!file) return;
        if (file.size > LONGEST) return setError(`${oneLine(file.name, 60)} is longer than any prompt may be.`);
        file.text().then(onText, () => setError(`${oneLine(file.name, 60)} cannot be read.`));
    };
    return (
        <div className="field">
            <label>
                <span>
                    <bdi>
                        <code>{oneLine(name, 80)}</code>
                    </bdi>
                </span>
                <input
                    className="input"
                    type="file"
                    aria-describedby={about}
                    onChange={(event) => take(event.target.files?.[0])}
                />
            </label>
            <small id={about}>
                {isChosen
                    ? "Its text becomes the prompt. If the file changes, choose it again."
                    : "Choose this file here. Its text is sent as the prompt."}
            </small>
            {error !== undefined && (
                <p className="error-text" role="alert">
                    {error}
                </p>
            )}
        </div>
    );
}
