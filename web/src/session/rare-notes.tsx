/** What is rarely to be said of a session. It is loaded then. */
import type { SessionRow } from "../data/row.ts";

type Why = NonNullable<SessionRow["cannotWrite"]>;

/** A newer server may have another reason. */
const WHY: Partial<Record<Why, string>> = {
    key_refused: "a device or a person was removed, and the server did not take the new key that the machine made",
    key_not_given: "the machine was not given the session’s newest key",
    key_of_stranger: "the session’s newest key was not made by a device of its owner",
    list_unread: "the machine cannot use the device list of its owner",
};

interface Rare {
    /** Of a session whose machine cannot write. */
    row: SessionRow | undefined;
    /** The next key has not reached this device. */
    lacksKey: boolean | undefined;
    /** The version of a list that the server keeps back. */
    withheld: number | undefined;
}

export default function RareNotes({ row, lacksKey, withheld }: Rare) {
    return (
        <>
            {lacksKey && (
                <p className="reader-note" role="status">
                    What comes next is encrypted with a key that has not reached this device yet. It is shown when the key
                    comes.
                </p>
            )}
            {row?.cannotWrite && <CannotWrite why={row.cannotWrite} row={row} />}
            {withheld !== undefined && (
                <p className="reader-note" role="status">
                    The machine names version {withheld} of the owner’s device list, and the server does not give it. What is
                    not confirmed may be by a device that was removed. The server is asked again.
                </p>
            )}
        </>
    );
}

/** Why nothing comes from the session's machine though it is there, and what to do. The server's word is all that there is of it. */
function CannotWrite({ why, row }: { why: Why; row: SessionRow }) {
    return (
        <p className="reader-note" role="status">
            The server says that the machine keeps what the agent does and cannot send it: {WHY[why] ?? why}.{" "}
            {row.accessLevel !== "owner" ? (
                "Its owner has to make a new key for it."
            ) : why === "list_unread" ? (
                <>
                    Run <code>ensemble devices</code> on a primary device: it checks the list.
                </>
            ) : (
                <>
                    <code>ensemble session rekey {row.ref}</code> makes a new key for it.
                </>
            )}
        </p>
    );
}
