import { ok } from "node:assert";
import { parseAuthFile } from "../../../images/registry/auth-file.ts";
import { parseChallenge } from "../../../images/registry/challenge.ts";
import { manifestsIn } from "../../../images/registry/registry-files.ts";
import { failedLine, parseWorkerMessage } from "../../../images/worker/messages.ts";
import { PodnetError } from "../../../core/errors.ts";
import { choosing, chosen, type Target, textOf, utf8, valueOf } from "../engine/target.ts";

const digest = `sha256:${"0".repeat(64)}`;
const config = {
  architecture: "amd64",
  entrypoint: ["a"],
  command: [],
  environment: [],
  directory: "/",
  user: "",
  stopSignal: "",
  exposedPorts: [],
  labels: { a: "b" },
};
const json = (value: unknown): Uint8Array => utf8(JSON.stringify(value));
const auth = Buffer.from("user:password").toString("base64");
const entry = { auth };

/** What registries answer, files of credentials, and what a worker that is taken over may say. */
export const imageRegistries: Target = {
  name: "image-registries",
  files: [
    "images/registry/auth-file.ts",
    "images/registry/challenge.ts",
    "images/worker/messages.ts",
  ],
  seeds: [
    chosen(0, utf8('Bearer realm="https://a/token",service="b",scope="repository:c:pull"')),
    chosen(0, utf8('Basic realm="a \\" b", charset=UTF-8')),
    chosen(0, utf8("Negotiate")),
    chosen(0, utf8('"')),
    chosen(0, utf8("Basic realm=a")),
    chosen(0, utf8('Basic realm=""')),
    chosen(0, utf8(`Basic realm=${"a".repeat(8192)}`)),
    chosen(1, json({ auths: { "a.example": entry, "https://index.docker.io/v1/": entry } })),
    chosen(1, json({ auths: { "a.example/team": { username: "a", password: "b" } } })),
    chosen(1, json({ auths: { "a.example/team": { auth: "" }, "a.example": {} } })),
    chosen(1, json({ credsStore: "x" })),
    chosen(2, json({ progress: { stage: "fetching", done: 1, all: 2 } })),
    chosen(2, json({ progress: { stage: "other", done: 1, all: 2 } })),
    chosen(2, json({ wants: [digest] })),
    chosen(2, json({ made: { digest, names: ["a:1"], config } })),
    chosen(2, json({ made: { digest, names: ["a:1"], config, disk: "raw" } })),
    chosen(2, json({ made: { digest, names: ["a:1"], config, disk: "qcow2" } })),
    chosen(2, json(failedLine(new PodnetError("INTERNAL", "a", { hint: "b", field: "c" })))),
    chosen(2, json({ failed: { code: "NONE", message: "a" } })),
    chosen(3, json({ manifests: [{ digest }, 1, null, { digest: 2 }] })),
    chosen(3, json([])),
  ],
  words: ["Bearer ", '="', '"', "\\", ",", "auths", "auth", "made", "null", "[", "{", "docker.io"],
  run: choosing([
    (bytes) => {
      const found = parseChallenge(textOf(bytes));
      if (found !== undefined) ok(/^[a-z]+$/.test(found.scheme));
    },
    (bytes) => {
      const found = valueOf(["IMAGE_UNREADABLE"], () =>
        parseAuthFile(bytes, "a.example", "team/app"),
      );
      if (found !== undefined) ok(found.user !== "");
    },
    (bytes) => void valueOf(["IMAGE_UNREADABLE"], () => parseWorkerMessage(textOf(bytes))),
    (bytes) => ok(manifestsIn(bytes).every((each) => typeof each === "string")),
  ]),
};
