/** Home before there is a session: how to make the first one. */
import { lazy, Suspense, useEffect } from "react";
import { Link } from "wouter";
import { server } from "../base/server.ts";
import { useStore } from "../base/store.ts";
import { account } from "../data/account.ts";
import { machines, showMachines } from "../data/machines.ts";
import { paths } from "../shell/route.ts";
import { oneLine } from "../text/visible.ts";

const Demo = lazy(() => import("./demo.tsx"));

export default function Empty() {
    const { rows } = useStore(machines);
    const me = useStore(account);
    useEffect(showMachines, []);
    const ready = rows.find(({ online }) => online);
    const demo = rows.find(({ online, does }) => online && does.includes("demo"));
    const hasAgent = rows.some(({ online, offers }) => online && offers.some(({ offered }) => offered));
    return (
        <div className="empty">
            <h2>No sessions yet</h2>
            {ready ? (
                <>
                    <p>
                        <bdi>{oneLine(ready.name, 60)}</bdi> is ready{hasAgent || !demo ? "." : ", and has no agent yet."}
                    </p>
                    {(hasAgent || !demo) && (
                        <Link href={paths.start} className="button primary">
                            New session
                        </Link>
                    )}
                    {demo && (
                        <Suspense>
                            <Demo machine={demo} isPrimary={!hasAgent} />
                        </Suspense>
                    )}
                </>
            ) : (
                <Steps mayAdd={me.state === "ready" && me.role === "primary"} />
            )}
        </div>
    );
}

function Steps({ mayAdd }: { mayAdd: boolean }) {
    return (
        <>
            <p>
                Agents work on your computers. On one that has the program <code>ensemble</code>:
            </p>
            <ol className="steps">
                <li>
                    Make its terminal a device of this account, with the address from{" "}
                    {mayAdd ? <Link href={paths.settings}>Settings, Add a device</Link> : "a primary device of yours"}:
                    <pre>ensemble login --link --server {server()}</pre>
                </li>
                <li>
                    Start an agent there. It appears here at once:
                    <pre>ensemble claude</pre>
                </li>
                <li>
                    Or start agents from here, as long as its runner works:
                    <pre>ensemble runner install</pre>
                </li>
            </ol>
        </>
    );
}
