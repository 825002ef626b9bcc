/** Before there is an account here: make one, bring one back, or become a device of one. */
import { lazy, type ReactNode, Suspense, useState } from "react";
import type { NewWords } from "@ensemble/client/account";
import { Field } from "../base/field.tsx";
import { inviteAddress } from "../base/link-address.ts";
import { create, enter } from "../data/account.ts";
import { textOf } from "../data/failure.ts";
import { useTitle } from "../base/title.ts";
import { Connection } from "../shell/connection.tsx";
import { suggestedName } from "./device-name.ts";
import { BeginForm, PersonName } from "./form.tsx";
import { Words } from "./words.tsx";

const Link = lazy(() => import("./link.tsx").then((found) => ({ default: found.Link })));
const Restore = lazy(() => import("./restore.tsx").then((found) => ({ default: found.Restore })));
const HasAccount = lazy(() => import("./has-account.tsx").then((found) => ({ default: found.HasAccount })));

const Invited = lazy(() => import("./invited.tsx").then((found) => ({ default: found.Invited })));

type Step = { at: "begin" | "restore" | "link" | "join" } | { at: "words"; words: NewWords };

const FIRST: Record<string, Step> = { "/link": { at: "link" }, "/join": { at: "join" } };

export function Welcome() {
    const [step, setStep] = useState<Step>(() => FIRST[location.pathname] ?? { at: "begin" });
    const back = () => setStep({ at: "begin" });
    const linked = () => {
        // The account of the other device joins.
        if (inviteAddress() !== "") history.replaceState(null, "", "/join");
        return enter();
    };
    useTitle("Welcome");
    switch (step.at) {
        case "words":
            return <Words made={step.words} onDone={enter} />;
        case "restore":
            return (
                <Suspense>
                    <Restore onBack={back} onDone={enter} />
                </Suspense>
            );
        case "link":
            return (
                <Suspense>
                    <Link onBack={back} onDone={linked} />
                </Suspense>
            );
        case "join":
            return (
                <Suspense>
                    <Invited onBack={back} onLink={() => setStep({ at: "link" })} />
                </Suspense>
            );
        default:
            return (
                <Frame
                    title="Your coding agents, from anywhere"
                    lead="Watch, answer and steer the agents on your own machines. What you and they write is encrypted on your devices: the server cannot read it."
                >
                    <section className="have" aria-labelledby="have">
                        <h2 id="have">Already using Ensemble?</h2>
                        <dl>
                            <dt>On this computer</dt>
                            <dd>
                                Run <code>ensemble open</code> in a terminal.
                            </dd>
                            <dt>On any other device</dt>
                            <dd>
                                Run <code>ensemble link</code> on a device that you use, then{" "}
                                <button type="button" className="inline" onClick={() => setStep({ at: "link" })}>
                                    add this browser
                                </button>
                                .
                            </dd>
                        </dl>
                    </section>
                    <section className="have" aria-labelledby="new">
                        <h2 id="new">New here?</h2>
                        <Suspense>
                            <HasAccount />
                        </Suspense>
                        <Begin onMade={(words) => setStep({ at: "words", words })} />
                    </section>
                    <div className="ways">
                        <button type="button" className="button plain" onClick={() => setStep({ at: "restore" })}>
                            Bring my account back with its recovery words
                        </button>
                    </div>
                </Frame>
            );
    }
}

export function Frame({ title, lead, wide, children }: { title: string; lead?: string; wide?: boolean; children: ReactNode }) {
    return (
        <main className="welcome" id="main">
            <Connection />
            <div className={wide ? "card wide" : "card"}>
                <img className="mark" src="/icon.svg" alt="" />
                <h1>{title}</h1>
                {lead && <p className="lead">{lead}</p>}
                {children}
            </div>
        </main>
    );
}

function Begin({ onMade }: { onMade: (words: NewWords) => void }) {
    const [name, setName] = useState(suggestedName);
    const [person, setPerson] = useState("");
    const [isBusy, setBusy] = useState(false);
    const [error, setError] = useState<string>();
    const submitted = () => {
        setBusy(true);
        setError(undefined);
        create(name.trim(), person.trim()).then(onMade, (caught: unknown) => {
            setBusy(false);
            setError(textOf(caught));
        });
    };
    return (
        <BeginForm
            onSubmit={submitted}
            action={isBusy ? "Making your keys…" : "Make an account"}
            isReady={!isBusy && name.trim() !== ""}
            error={error}
        >
            <PersonName value={person} onChange={setPerson} hint="Optional. People you share with can see it." />
            <DeviceName value={name} onChange={setName} />
        </BeginForm>
    );
}

export function DeviceName({ value, onChange }: { value: string; onChange: (name: string) => void }) {
    return (
        <Field
            name="Name of this device"
            hint="You will see it in your list of devices. There is no password: the key stays in this browser."
        >
            {(named) => (
                <input
                    {...named}
                    className="input"
                    value={value}
                    maxLength={60}
                    required
                    autoComplete="off"
                    onChange={(event) => onChange(event.target.value)}
                />
            )}
        </Field>
    );
}
