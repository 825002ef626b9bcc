/** An address with a secret in it: as text to copy, and as a code for a phone's camera. */
import { useEffect, useRef, useState } from "react";
import { CopyButton } from "../base/copy.tsx";

interface Props {
    address: string;
    /** The text of the button that copies it. */
    copyLabel?: string;
    /** Without the code. */
    isShort?: boolean;
}

export function Address({ address, copyLabel = "Copy", isShort = false }: Props) {
    const shown = useRef<HTMLElement>(null);
    const [code, setCode] = useState<{ path: string; size: number }>();
    useEffect(() => {
        if (isShort) return setCode(undefined);
        let isGone = false;
        void import("uqr").then(({ encode }) => {
            const { data, size } = encode(address, { border: 1 });
            const path = data.map((row, y) => row.map((dark, x) => (dark ? `M${x} ${y}h1v1h-1z` : "")).join("")).join("");
            if (!isGone) setCode({ path, size });
        });
        return () => {
            isGone = true;
        };
    }, [address, isShort]);
    const send = () => {
        // It ends with an error when the person closes the phone's dialog, too.
        navigator.share({ url: address }).catch(() => undefined);
    };
    return (
        <div className="address">
            <code ref={shown} tabIndex={0} aria-label="Address">
                {address}
            </code>
            <div className="row">
                <CopyButton text={address} of={shown} className="button">
                    {copyLabel}
                </CopyButton>
                {typeof navigator.share === "function" && (
                    <button type="button" className="button" onClick={send}>
                        Send…
                    </button>
                )}
            </div>
            {code && (
                <svg
                    className="qr"
                    viewBox={`0 0 ${code.size} ${code.size}`}
                    role="img"
                    aria-label="The address as a code"
                    shapeRendering="crispEdges"
                >
                    <path d={code.path} />
                </svg>
            )}
        </div>
    );
}
