import { ok, strictEqual } from "node:assert";
import { parseReference, referenceText, withRegistry } from "../../../images/reference.ts";
import { type Target, textOf, utf8, valueOf } from "../engine/target.ts";

/** What people and files call images: a part of paths of a registry, so only harmless ones pass. */
export const imageReferences: Target = {
  name: "image-references",
  files: ["images/reference.ts"],
  except: ["referenceText", "repositoryText", "withRegistry"],
  seeds: [
    "busybox",
    "a.example:5000/team/app:1.0",
    `[::1]:5000/a@sha256:${"0".repeat(64)}`,
    "localhost/a_b--c.d:T",
    "a/../b",
  ].map(utf8),
  words: [":", "/", "@", "sha256:", "..", "[", "]", "%2f", "localhost"],
  run(bytes) {
    const found = valueOf(["INVALID_ARGUMENT"], () => parseReference(textOf(bytes)));
    if (found === undefined) return;
    const whole = withRegistry(found, "docker.io");
    ok(/^[a-z0-9._/-]+$/.test(whole.repository) && !whole.repository.includes(".."));
    ok(!/[/@?#\\\s]/.test(whole.registry ?? ""));
    strictEqual(referenceText(parseReference(referenceText(whole))), referenceText(whole));
  },
};
