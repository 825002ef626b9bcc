/** An invitation to a session: makes an account where there is none, claims the invitation, and waits for the owner's answer. */
import { useCallback, useEffect, useRef, useState } from "react";
import { InviteOver } from "@ensemble/client/invites";
import { navigate } from "wouter/use-browser-location";
import { forgetInviteAddress, inviteAddress, takeLinkAddress } from "../base/link-address.ts";
import { server } from "../base/server.ts";
import { displayName, enter } from "../data/account.ts";
import { textOf } from "../data/failure.ts";
import { forgetInvite, joinBy, keptInvite } from "../data/invite.ts";
import { paths } from "../shell/route.ts";
import { suggestedName } from "./device-name.ts";
import { BeginForm, PersonName, SecretAddress } from "./form.tsx";
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
    return (
        <Frame
            title="Join a session"
            lead="Someone has sent you this invitation. It brings you into one session, and works once."
        >
            <BeginForm
                onSubmit={() => join(address, person, device)}
                action={step === "joins" ? "Joining…" : "Join"}
                isReady={step !== "joins" && address.trim() !== "" && person.trim() !== ""}
                error={error}
                back={{ label: "Not now", onBack: leave }}
            >
                {(inviteAddress() === "" || error !== undefined) && (
                    <SecretAddress
                        name="Address of the invitation"
                        value={address}
                        onChange={setAddress}
                        example={`${server()}/join#v1.…`}
                    />
                )}
                <PersonName value={person} onChange={setPerson} hint="The person who has invited you sees it." isRequired />
                {isNew && <DeviceName value={device} onChange={setDevice} />}
            </BeginForm>
            {isNew && (
                <p>
                    <button type="button" className="inline" onClick={onLink}>
                        I have an account on another device
                    </button>
                </p>
            )}
        </Frame>
    );
}
