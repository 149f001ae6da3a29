import test from "ava";
import {
  ImageService,
  type PullImageRequest,
} from "../../../api/gen/podnet/v1/image_service_pb.ts";
import { addService } from "../../../api/service.ts";
import { validateCredential } from "../../../api/validate/credential.ts";
import type { PodnetError } from "../../../core/errors.ts";
import { serve } from "../api/fixtures/server.ts";
import { start } from "./fixtures/io.ts";

const pulls: PullImageRequest[] = [];
const server = await serve((router) => {
  addService(router, ImageService, {
    async *pull(request) {
      pulls.push(request);
      yield { stage: "done", image: { digest: `sha256:${"a".repeat(64)}`, names: ["app:1"] } };
    },
  });
});
test.after.always(() => server.kill());

/** Pulls with these words, this on standard input. */
async function pull(words: string, input: string, tty = false) {
  const session = start(["image", "pull", ...words.split(" ")], { socket: server.h2, tty });
  session.stdin.end(input);
  const code = await session.done;
  return { code, out: session.stdout.text, err: session.stderr.text };
}

test.serial("a password comes by standard input, with its user, and is not shown", async (t) => {
  for (const input of ["hidden pass", "hidden pass\n", "hidden pass\r\n"]) {
    const { code, out, err } = await pull("-u ci --password-stdin app:1", input);
    t.is(code, 0, err);
    t.false(`${out}${err}`.includes("hidden"));
    t.like(pulls.at(-1)?.credential, { username: "ci", password: "hidden pass" });
  }
  t.is((await pull("app:1", "ignored")).code, 0);
  t.is(pulls.at(-1)?.credential, undefined);
});

test.serial("a credential that is half of one is refused before podnetd is asked", async (t) => {
  const before = pulls.length;
  for (const [words, input, why, tty] of [
    ["-u ci app:1", "x", /--password-stdin/, false],
    ["--password-stdin app:1", "x", /--username/, false],
    ["-u ci --password-stdin app:1", "", /has no password/, false],
    ["-u ci --password-stdin app:1", "\n", /has no password/, false],
    ["-u ci --password-stdin app:1", "x".repeat(20_000), /too long/, false],
    ["-u ci --password-stdin app:1", "x", /reads no terminal/, true],
  ] as const) {
    const { code, err } = await pull(words, input, tty);
    t.is(code, 2, words);
    t.regex(err, why);
  }
  t.is(pulls.length, before);
});

/** Runs an image with these words, this on standard input. */
async function run(words: string, input: string) {
  const session = start(["run", ...words.split(" ")], { socket: server.h2 });
  session.stdin.end(input);
  const code = await session.done;
  return { code, err: session.stderr.text };
}

test.serial("run shows the registry a credential when it pulls, and only then", async (t) => {
  const given = "--username ci --password-stdin";
  const before = pulls.length;
  await run(`-d ${given} --pull always app:1`, "hidden\n");
  t.is(pulls.length, before + 1);
  t.like(pulls.at(-1)?.credential, { username: "ci", password: "hidden" });
  for (const [words, why] of [
    [`-i ${given} app:1`, /cannot have both a password and/],
    [`-d ${given} --pull never app:1`, /No registry is asked/],
    [`-d ${given} ./no/such.tar`, /No registry is asked/],
    ["-d --username ci app:1", /--password-stdin/],
  ] as const) {
    const { code, err } = await run(words, "hidden");
    t.is(code, 2, words);
    t.regex(err, why);
    t.false(err.includes("hidden"));
  }
  t.is(pulls.length, before + 1);
});

test("a credential that no registry takes is refused by its field, and is not quoted", (t) => {
  t.deepEqual(validateCredential({ username: "ci", password: "a:b" }), {
    user: "ci",
    password: "a:b",
  });
  for (const [username, password, field] of [
    ["", "hidden", "credential.username"],
    ["a:b", "hidden", "credential.username"],
    ["a\nb", "hidden", "credential.username"],
    ["a".repeat(257), "hidden", "credential.username"],
    ["ci", "", "credential.password"],
    ["ci", "hidden".repeat(4000), "credential.password"],
  ] as const) {
    const thrown = t.throws<PodnetError>(() => validateCredential({ username, password }), {
      code: "INVALID_ARGUMENT",
    });
    t.is(thrown.field, field);
    t.false(`${thrown.message}${thrown.hint}`.includes("hidden"));
  }
});
