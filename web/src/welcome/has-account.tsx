/** Says that this computer has an account, where the server is an `ensemble up` of this computer, which has made one. */
import { useEffect, useState } from "react";
import { server } from "../base/server.ts";

/** The page of `ensemble web` is not the one that `ensemble open` opens. */
async function isLocal(): Promise<boolean> {
    if (server() !== location.origin) return false;
    const said = (await (await fetch("/v1/version")).json()) as { local?: unknown };
    return said.local === true;
}

export function HasAccount() {
    const [is, setIs] = useState(false);
    useEffect(() => {
        isLocal().then(setIs, () => undefined);
    }, []);
    if (!is) return null;
    return (
        <p role="status">
            This computer has an account. Type <code>ensemble open</code>.
        </p>
    );
}
