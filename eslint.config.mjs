// The rules for clients/typescript and web. `make lint` runs them; they and Prettier are installed with web.

import { createRequire } from "node:module";

const installed = createRequire(new URL("web/package.json", import.meta.url));
const typescript = installed("typescript-eslint");
const hooks = installed("eslint-plugin-react-hooks");

export default typescript.config(
  { ignores: ["**/node_modules/", "**/dist/", "**/build/", "clients/typescript/src/openapi.ts", "web/docs/"] },
  { linterOptions: { reportUnusedDisableDirectives: "error" } },
  {
    files: ["clients/typescript/**/*.{ts,mjs}", "web/**/*.{ts,tsx,mjs}"],
    extends: [typescript.configs.recommended],
    rules: {
      // A name with a line in front is one that is left out of an object, or a round of a loop that is only counted.
      "@typescript-eslint/no-unused-vars": ["error", { varsIgnorePattern: "^_", argsIgnorePattern: "^_" }],
    },
  },
  {
    files: ["clients/typescript/test/**"],
    // Tests take JSON of others apart, and an assertion fails where it has another form.
    rules: { "@typescript-eslint/no-explicit-any": "off" },
  },
  {
    files: ["web/src/**/*.{ts,tsx}"],
    extends: [hooks.configs.flat.recommended],
    rules: {
      // The page is not built with React's compiler, so nothing is lost where that would skip a component.
      "react-hooks/preserve-manual-memoization": "off",
      // It forbids to drop at once what belonged to other inputs. The next drawing without it is what is wanted.
      "react-hooks/set-state-in-effect": "off",
    },
  },
);
