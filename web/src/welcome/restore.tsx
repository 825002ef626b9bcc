/** Brings an account back with its recovery words: first it is found, then a person says whether it is theirs and what is lost. */
import type { Recovering } from "@ensemble/client/account";
import { type FormEvent, useState } from "react";
import { Choice, Field } from "../base/field.tsx";
import { deviceName, machineName } from "../base/words.ts";
import { findAccount, restore } from "../data/account.ts";
import { textOf } from "../data/failure.ts";
import { oneLine } from "../text/visible.ts";
import { suggestedName } from "./device-name.ts";
import { DeviceName, Frame } from "./welcome.tsx";

export function Restore({ onBack, onDone }: { onBack: () => void; onDone: () => Promise<void> }) {
    const [found, setFound] = useState<Recovering>();
    return found ? <Found found={found} onBack={onBack} onDone={onDone} /> : <Find onBack={onBack} onFound={setFound} />;
}

function Find({ onBack, onFound }: { onBack: () => void; onFound: (found: Recovering) => void }) {
    const [words, setWords] = useState("");
    const [name, setName] = useState(suggestedName);
    const [isBusy, setBusy] = useState(false);
    const [error, setError] = useState<string>();
    const count = words.trim() === "" ? 0 : words.trim().split(/\s+/).length;
    const submitted = (event: FormEvent) => {
        event.preventDefault();
        setBusy(true);
        setError(undefined);
        findAccount(words, name.trim()).then(onFound, (caught: unknown) => {
            setBusy(false);
            setError(textOf(caught));
        });
    };
    return (
        <Frame
            title="Bring your account back"
            lead="The words add this browser to your account. They never leave this browser."
        >
            <form onSubmit={submitted}>
                <Field name="Recovery words" hint={`${count} of 24 words`}>
                    {(named) => (
                        <textarea
                            {...named}
                            className="input"
                            rows={4}
                            value={words}
                            required
                            autoComplete="off"
                            autoCapitalize="none"
                            spellCheck={false}
                            onChange={(event) => setWords(event.target.value)}
                        />
                    )}
                </Field>
                <DeviceName value={name} onChange={setName} />
                {error !== undefined && (
                    <p className="error-text" role="alert">
                        {error}
                    </p>
                )}
                <div className="actions">
                    <button type="submit" className="button primary" disabled={isBusy || count !== 24 || name.trim() === ""}>
                        {isBusy ? "Looking for it…" : "Find my account"}
                    </button>
                    <button type="button" className="button plain" onClick={onBack} disabled={isBusy}>
                        Back
                    </button>
                </div>
            </form>
        </Frame>
    );
}

const nameOf = ({ ref, ...device }: Recovering["devices"][number]): string =>
    ref === undefined ? deviceName(device, "Without a name") : machineName({ ...device, ref, isListed: true });

export function Found({ found, onBack, onDone }: { found: Recovering; onBack: () => void; onDone: () => Promise<void> }) {
    const [lost, setLost] = useState<ReadonlySet<string>>(new Set());
    const [isBusy, setBusy] = useState(false);
    const [error, setError] = useState<string>();
    const isLost = ({ key, by }: Recovering["devices"][number]) => lost.has(key) || (by !== undefined && lost.has(by));
    const toggle = (key: string, isLost: boolean) => {
        const next = new Set(lost);
        if (isLost) next.add(key);
        else next.delete(key);
        setLost(next);
    };
    const finish = () => {
        setBusy(true);
        setError(undefined);
        restore(found, [...lost])
            .then(onDone)
            .catch((caught: unknown) => {
                setBusy(false);
                setError(textOf(caught));
            });
    };
    return (
        <Frame
            title="Is this your account?"
            lead="Compare the fingerprint with the one that you know: the words do not say whose account this is."
        >
            <p>
                <code className="fingerprint">{found.fingerprint}</code>
            </p>
            {found.devices.length > 0 && (
                <fieldset className="question">
                    <legend>Which devices have you lost? They will be removed.</legend>
                    {found.devices.map((device) => (
                        <Choice
                            key={device.key}
                            className="choice"
                            label={oneLine(nameOf(device), 60)}
                            hint={`${device.role} · ${device.ref ?? device.key.slice(0, 8)}`}
                            checked={isLost(device)}
                            disabled={isBusy || (device.by !== undefined && lost.has(device.by))}
                            onChange={(event) => toggle(device.key, event.target.checked)}
                        />
                    ))}
                </fieldset>
            )}
            {error !== undefined && (
                <p className="error-text" role="alert">
                    {error}
                </p>
            )}
            <div className="actions">
                <button type="button" className="button primary" disabled={isBusy} onClick={finish}>
                    {isBusy ? "Bringing it back…" : "It is mine: bring it back"}
                </button>
                <button type="button" className="button plain" disabled={isBusy} onClick={onBack}>
                    Not mine
                </button>
            </div>
            {isBusy && lost.size > 0 && (
                <p className="lead" role="status">
                    Your sessions get new keys. This takes a few seconds.
                </p>
            )}
        </Frame>
    );
}
