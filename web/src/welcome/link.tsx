/** Makes this browser a device of an account that is used elsewhere: the other device shows an address, and asks for the digits here. */
import { type FormEvent, useEffect, useRef, useState } from "react";
import { linkAddress } from "../base/link-address.ts";
import { server } from "../base/server.ts";
import { joinAccount } from "../data/account.ts";
import { textOf } from "../data/failure.ts";
import { suggestedName } from "./device-name.ts";
import { DeviceName, Frame } from "./welcome.tsx";

export function Link({ onBack, onDone }: { onBack: () => void; onDone: () => Promise<void> }) {
    // The other device's code leads here with everything in the fragment, which no server sees.
    const [given] = useState(linkAddress);
    const [address, setAddress] = useState(given);
    const [name, setName] = useState(suggestedName);
    const [digits, setDigits] = useState<string>();
    const [isBusy, setBusy] = useState(false);
    const [error, setError] = useState<string>();
    const stop = useRef<AbortController>(undefined);
    useEffect(() => () => stop.current?.abort(), []);
    const submitted = (event: FormEvent) => {
        event.preventDefault();
        const controller = new AbortController();
        stop.current = controller;
        setBusy(true);
        setError(undefined);
        setDigits(undefined);
        joinAccount(address.trim(), name.trim(), setDigits, controller.signal)
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
            title="Add this browser to your account"
            lead={
                given === ""
                    ? "On a device that you already use, run “ensemble link”. Then paste the address that it shows here."
                    : "Your other device will ask you for the digits that come next."
            }
        >
            <form onSubmit={submitted}>
                {given === "" && (
                    <label className="field">
                        <span>Address</span>
                        <input
                            className="input"
                            value={address}
                            required
                            autoComplete="off"
                            spellCheck={false}
                            placeholder={`${server()}/link#v1.…`}
                            onChange={(event) => setAddress(event.target.value)}
                        />
                    </label>
                )}
                <DeviceName value={name} onChange={setName} />
                {error !== undefined && (
                    <p className="error-text" role="alert">
                        {error}
                    </p>
                )}
                <div className="actions">
                    <button
                        type="submit"
                        className="button primary"
                        disabled={isBusy || address.trim() === "" || name.trim() === ""}
                    >
                        {isBusy ? "Asking…" : "Add this browser"}
                    </button>
                    <button type="button" className="button plain" onClick={back}>
                        Back
                    </button>
                </div>
            </form>
        </Frame>
    );
}
