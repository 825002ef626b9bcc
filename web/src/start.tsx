// The app, once it is known that the browser can run it.
import "./start-styles.ts";
import { createRoot } from "react-dom/client";
import { App } from "./app.tsx";
import { WhenFailed } from "./base/fault.tsx";
import { keepPage } from "./data/update.ts";

const root = document.getElementById("root");
if (root)
    createRoot(root).render(
        <WhenFailed>
            <App />
        </WhenFailed>,
    );
// Without it the page works as long as there is a connection.
void keepPage().catch(() => undefined);
