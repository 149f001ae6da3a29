import { render } from "preact";
import { App } from "./app.tsx";
import { base } from "./base.ts";
import { Model } from "./model.ts";

// The token has done its work: it is not to stay in the address, nor in the history.
history.replaceState(undefined, "", base + location.hash);

const model = new Model();
const root = document.getElementById("page");
if (root === null) throw new Error("The document has no element for the page");
model.show((state) => render(<App state={state} />, root));
model.begin();
