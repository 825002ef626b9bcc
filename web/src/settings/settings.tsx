/** The devices of the account, and this browser. */
import { type FormEvent, useState } from "react";
import { Confirm } from "../base/confirm.tsx";
import { Icon } from "../base/icons.tsx";
import { useStore } from "../base/store.ts";
import { useTitle } from "../base/title.ts";
import { account, displayName, setDisplayName, signOut } from "../data/account.ts";
import { devices } from "../data/devices.ts";
import { textOf } from "../data/failure.ts";
import { AddDevice } from "./add-device.tsx";
import { About } from "./about.tsx";
import { Device } from "./device.tsx";
import { LookSettings } from "./look.tsx";
import { NewWords } from "./new-words.tsx";
import { NotificationSettings } from "./notifications.tsx";
import { useLoaded } from "../data/use-loaded.ts";

export function Settings() {
    const me = useStore(account);
    const list = useLoaded(devices);
    const [shown, setShown] = useState<"add" | "words">();
    const close = () => setShown(undefined);
    useTitle("Settings");
    if (me.state !== "ready") return null;
    return (
        <div className="page">
            <div className="inner">
                <h1>Settings</h1>
                <section className="section" aria-labelledby="devices">
                    <div className="heading">
                        <h2 id="devices">Devices</h2>
                        {me.role === "primary" && (
                            <button type="button" className="button small" onClick={() => setShown("add")}>
                                <Icon name="plus" size={14} /> Add a device
                            </button>
                        )}
                    </div>
                    {list.error !== undefined && (
                        <p className="banner bad" role="alert">
                            {list.error}
                        </p>
                    )}
                    {list.value === undefined && list.error === undefined && (
                        <div className="list" role="status" aria-label="Loading">
                            <div className="skeleton" />
                        </div>
                    )}
                    {list.value && (
                        <ul className="list">
                            {list.value.map((row) => (
                                <li key={row.key}>
                                    <Device
                                        row={row}
                                        all={list.value ?? []}
                                        isPrimary={me.role === "primary"}
                                        onChanged={list.reload}
                                    />
                                </li>
                            ))}
                        </ul>
                    )}
                    {me.role === "linked" && (
                        <p className="soft">
                            Only a primary device can add, rename and remove devices. This browser is a linked one.
                        </p>
                    )}
                </section>
                <section className="section" aria-labelledby="account">
                    <h2 id="account">Account</h2>
                    <DisplayName />
                    <dl className="facts-list">
                        <dt>Fingerprint</dt>
                        <dd>
                            <code>{me.fingerprint}</code>{" "}
                            <small>
                                People compare it with you, for example over a call, before they share a session with you.
                            </small>
                        </dd>
                        <dt>Account id</dt>
                        <dd>
                            <code>{me.userId}</code>
                        </dd>
                    </dl>
                </section>
                {me.role === "primary" && (
                    <section className="section" aria-labelledby="words">
                        <h2 id="words">Recovery words</h2>
                        <p className="soft">
                            {list.value &&
                                (list.value.some((row) => row.role === "recovery")
                                    ? "Your account has recovery words. New ones replace them."
                                    : "Your account has no recovery words. If you lose all your devices, you lose the account.")}
                        </p>
                        <div>
                            <button type="button" className="button" onClick={() => setShown("words")}>
                                New recovery words…
                            </button>
                        </div>
                    </section>
                )}
                <NotificationSettings />
                <LookSettings />
                <About />
                <SignOut role={me.role} />
                {shown === "add" && <AddDevice onClose={close} onAdded={list.reload} />}
                {shown === "words" && <NewWords onClose={close} onMade={list.reload} />}
            </div>
        </div>
    );
}

function DisplayName() {
    const kept = useLoaded(displayName);
    const [typed, setTyped] = useState<string>();
    const [said, setSaid] = useState<string>();
    const name = typed ?? kept.value ?? "";
    const submitted = (event: FormEvent) => {
        event.preventDefault();
        setDisplayName(name.trim()).then(
            () => setSaid("Saved"),
            (caught: unknown) => setSaid(textOf(caught)),
        );
    };
    return (
        <form className="name-form" onSubmit={submitted}>
            <label className="field">
                <span>Your name</span>
                <input
                    className="input"
                    value={name}
                    maxLength={100}
                    required
                    autoComplete="name"
                    disabled={kept.value === undefined}
                    onChange={(event) => {
                        setTyped(event.target.value);
                        setSaid(undefined);
                    }}
                />
            </label>
            <button type="submit" className="button" disabled={name.trim() === "" || name === kept.value}>
                Save
            </button>
            <span className="soft" role="status">
                {said ?? kept.error ?? ""}
            </span>
        </form>
    );
}

function SignOut({ role }: { role: string }) {
    const [asks, setAsks] = useState(false);
    const [error, setError] = useState<string>();
    const leave = () => {
        signOut().then(
            () => location.assign("/"),
            (caught: unknown) => setError(textOf(caught)),
        );
    };
    return (
        <section className="section" aria-labelledby="here">
            <h2 id="here">This browser</h2>
            {!asks && (
                <div className="actions">
                    <button type="button" className="button danger" onClick={() => setAsks(true)}>
                        Sign out here…
                    </button>
                </div>
            )}
            {asks && (
                <Confirm label="Sign out here?">
                    <p>
                        This wipes the key of this browser.{" "}
                        {role === "primary"
                            ? "Without another device or your recovery words, you cannot open your account again."
                            : "To use this browser again, add it from another device. Remove its old entry from the list on a primary device."}
                    </p>
                    {error !== undefined && (
                        <p className="error-text" role="alert">
                            {error}
                        </p>
                    )}
                    <div className="actions">
                        <button type="button" className="button danger" onClick={leave}>
                            Wipe this browser
                        </button>
                        <button type="button" className="button plain" onClick={() => setAsks(false)}>
                            Stay signed in
                        </button>
                    </div>
                </Confirm>
            )}
        </section>
    );
}
