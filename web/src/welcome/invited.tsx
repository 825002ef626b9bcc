/** An invitation to a session: makes an account where there is none, claims the invitation, and waits for the owner's answer. */
import { type FormEvent, useCallback, useEffect, useRef, useState } from "react";
import { InviteOver } from "@ensemble/client/invites";
import { navigate } from "wouter/use-browser-location";
import { Field } from "../base/field.tsx";
import { forgetInviteAddress, inviteAddress, takeLinkAddress } from "../base/link-address.ts";
import { server } from "../base/server.ts";
import { displayName, enter } from "../data/account.ts";
import { textOf } from "../data/failure.ts";
import { forgetInvite, joinBy, keptInvite } from "../data/invite.ts";
import { paths } from "../shell/route.ts";
import { suggestedName } from "./device-name.ts";
import { DeviceName, Frame } from "./welcome.tsx";

/** `onLink` and `onBack`: where there is no account. */
export function Invited({ onBack, onLink }: { onBack?: () => void; onLink?: () => void }) {
    const isNew = onLink !== undefined;
    const [address, setAddress] = useState(inviteAddress);
    const [person, setPerson] = useState("");
    const [device, setDevice] = useState(suggestedName);
    const [step, setStep] = useState<"asks" | "joins" | "waits">("asks");
    const [error, setError] = useState<string>();
    const stop = useRef<AbortController>(undefined);
    const join = useCallback(
        (from: string, person: string, device: string) => {
            const controller = new AbortController();
            stop.current?.abort();
            stop.current = controller;
            setStep("joins");
            setError(undefined);
            const done = async (session: string | undefined) => {
                if (controller.signal.aborted) return;
                forgetInviteAddress();
                navigate(session === undefined ? paths.home : `/sessions/${session}`, { replace: true });
                if (isNew) await enter();
            };
            joinBy(from.trim(), { person: person.trim(), device: device.trim() }, () => setStep("waits"), controller.signal)
                .then(done)
                .catch((caught: unknown) => {
                    if (controller.signal.aborted) return;
                    setStep("asks");
                    setError(textOf(caught));
                    if (!(caught instanceof InviteOver)) return;
                    // It makes room for another one.
                    if (inviteAddress() === from) forgetInviteAddress();
                    setAddress("");
                });
        },
        [isNew],
    );
    useEffect(() => {
        // A reload while the answer was awaited: it is claimed already.
        void keptInvite().then((kept) => {
            const isThis = inviteAddress() === "" || inviteAddress() === kept;
            if (kept !== undefined && isThis && !stop.current) join(kept, "", "");
        });
        // Another address, pasted where this page is open already.
        const pasted = () => {
            takeLinkAddress();
            if (inviteAddress() === "") return;
            stop.current?.abort();
            setStep("asks");
            setError(undefined);
            setAddress(inviteAddress());
        };
        addEventListener("hashchange", pasted);
        return () => {
            removeEventListener("hashchange", pasted);
            stop.current?.abort();
        };
    }, [join]);
    useEffect(() => {
        // Their name, where they have an account.
        if (!isNew) void displayName().then(setPerson, () => undefined);
    }, [isNew]);
    const leave = () => {
        stop.current?.abort();
        navigate(paths.home, { replace: true });
        onBack?.();
    };
    if (step === "waits") {
        return (
            <Frame
                title="Waiting for an answer"
                lead="The person who has invited you is asked, or one of their devices answers."
            >
                <p className="lead" role="status">
                    This page continues by itself, also after a reload.
                </p>
                <div className="actions">
                    <button type="button" className="button plain" onClick={() => void forgetInvite().then(leave)}>
                        Do not wait
                    </button>
                </div>
            </Frame>
        );
    }
    const submitted = (event: FormEvent) => {
        event.preventDefault();
        join(address, person, device);
    };
    return (
        <Frame
            title="Join a session"
            lead="Someone has sent you this invitation. It brings you into one session, and works once."
        >
            <form onSubmit={submitted}>
                {(inviteAddress() === "" || error !== undefined) && (
                    <label className="field">
                        <span>Address of the invitation</span>
                        <input
                            className="input"
                            value={address}
                            required
                            autoComplete="off"
                            spellCheck={false}
                            placeholder={`${server()}/join#v1.…`}
                            onChange={(event) => setAddress(event.target.value)}
                        />
                    </label>
                )}
                <Field name="Your name" hint="The person who has invited you sees it.">
                    {(named) => (
                        <input
                            {...named}
                            className="input"
                            value={person}
                            maxLength={100}
                            required
                            autoComplete="name"
                            onChange={(event) => setPerson(event.target.value)}
                        />
                    )}
                </Field>
                {isNew && <DeviceName value={device} onChange={setDevice} />}
                {error !== undefined && (
                    <p className="error-text" role="alert">
                        {error}
                    </p>
                )}
                <div className="actions">
                    <button
                        type="submit"
                        className="button primary"
                        disabled={step === "joins" || address.trim() === "" || person.trim() === ""}
                    >
                        {step === "joins" ? "Joining…" : "Join"}
                    </button>
                    <button type="button" className="button plain" onClick={leave}>
                        Not now
                    </button>
                </div>
                {isNew && (
                    <p>
                        <button type="button" className="inline" onClick={onLink}>
                            I have an account on another device
                        </button>
                    </p>
                )}
            </form>
        </Frame>
    );
}
