/** Makes this browser a device of an account that is used elsewhere: the other device shows an address, and asks for the digits here. */
import { useEffect, useRef, useState } from "react";
import { LinkOver } from "@ensemble/client";
import { forgetLinkAddress, linkAddress, linkPerson, takeLinkAddress } from "../base/link-address.ts";
import { server } from "../base/server.ts";
import { joinAccount } from "../data/account.ts";
import { textOf } from "../data/failure.ts";
import { oneLine } from "../text/visible.ts";
import { suggestedName } from "./device-name.ts";
import { BeginForm, SecretAddress } from "./form.tsx";
import { DeviceName, Frame } from "./welcome.tsx";

/** `ensemble open` answers at once and asks for no digits, so they are shown only when it has not answered, in milliseconds. */
const DIGITS_AFTER_MS = 3_000;

/** Whose account this computer's program has opened the page for. Undefined: no such program has, or the address was damaged. */
function personOfHere(): string | undefined {
    try {
        const person = linkPerson();
        return person === undefined ? undefined : oneLine(decodeURIComponent(person), 60);
    } catch {
        return undefined;
    }
}

export function Link({ onBack, onDone }: { onBack: () => void; onDone: () => Promise<void> }) {
    // The other device's code leads here with everything in the fragment, which no server sees.
    const [given, setGiven] = useState(linkAddress);
    const [person, setPerson] = useState(personOfHere);
    const [address, setAddress] = useState(given);
    const [name, setName] = useState(suggestedName);
    const [digits, setDigits] = useState<string>();
    const [isBusy, setBusy] = useState(false);
    const [error, setError] = useState<string>();
    const stop = useRef<AbortController>(undefined);
    useEffect(() => () => stop.current?.abort(), []);
    const take = (from: string, whose: string | undefined) => {
        setGiven(from);
        setPerson(whose);
        setAddress(from);
    };
    useEffect(() => {
        // Another address, pasted where this page is open already.
        const pasted = () => {
            if (location.pathname !== "/link" || location.hash === "") return;
            takeLinkAddress();
            stop.current?.abort();
            setBusy(false);
            setDigits(undefined);
            setError(undefined);
            take(linkAddress(), personOfHere());
        };
        addEventListener("hashchange", pasted);
        return () => removeEventListener("hashchange", pasted);
    }, []);
    const submitted = () => {
        const controller = new AbortController();
        stop.current = controller;
        setBusy(true);
        setError(undefined);
        setDigits(undefined);
        let late: ReturnType<typeof setTimeout> | undefined;
        const onDigits = (made: string) => {
            late = setTimeout(() => setDigits(made), person === undefined ? 0 : DIGITS_AFTER_MS);
        };
        joinAccount(address.trim(), name.trim(), onDigits, controller.signal)
            .finally(() => clearTimeout(late))
            .then(() => {
                if (controller.signal.aborted) return undefined;
                history.replaceState(null, "", "/");
                return onDone();
            })
            .catch((caught: unknown) => {
                if (controller.signal.aborted) return;
                setBusy(false);
                setDigits(undefined);
                setError(textOf(caught));
                if (!(caught instanceof LinkOver)) return;
                // It makes room for the next one.
                forgetLinkAddress();
                take("", undefined);
            });
    };
    const back = () => {
        stop.current?.abort();
        if (location.pathname === "/link") history.replaceState(null, "", "/");
        onBack();
    };
    if (digits !== undefined) {
        return (
            <Frame
                title="Type these digits on the other device"
                lead="The other device needs them before it adds this browser."
            >
                <p className="digits" role="status">
                    {digits}
                </p>
                <p className="lead">Waiting for the other device…</p>
                <div className="actions">
                    <button type="button" className="button plain" onClick={back}>
                        Stop
                    </button>
                </div>
            </Frame>
        );
    }
    return (
        <Frame
            title={person ? `Add this browser to ${person}’s account?` : "Add this browser to your account"}
            lead={
                person !== undefined
                    ? "Only if you have just typed “ensemble open” on this computer, or started “ensemble up”. Any other page that leads here may add it to someone else’s account."
                    : given === ""
                      ? "On a device that you already use, run “ensemble link”. Then paste the address that it shows here."
                      : "Your other device will ask you for the digits that come next."
            }
        >
            <BeginForm
                onSubmit={submitted}
                action={isBusy ? "Asking…" : "Add this browser"}
                isReady={!isBusy && address.trim() !== "" && name.trim() !== ""}
                error={error}
                back={{ label: "Back", onBack: back }}
            >
                {(given === "" || (error !== undefined && person === undefined)) && (
                    <SecretAddress name="Address" value={address} onChange={setAddress} example={`${server()}/link#v1.…`} />
                )}
                <DeviceName value={name} onChange={setName} />
            </BeginForm>
        </Frame>
    );
}
