// The first script: nothing else is loaded where the browser cannot do cryptography.
import "./styles/base.css";
import { applyLook } from "./base/look.ts";
import { takeLinkAddress } from "./base/link-address.ts";
import { explain, missing } from "./base/missing.ts";
import { findServer } from "./base/server.ts";
import "./base/trusted.ts";

applyLook();
const what = missing();
if (what.length > 0) explain(what);
else {
  takeLinkAddress();
  findServer().then(() => import("./start.tsx"), () => explain(["the address of its server, so load it again"]));
}
