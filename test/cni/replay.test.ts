/**
 * What containerd and podman were recorded to send (runtimes.test.ts records it), from the plugin's
 * start to podnetd's end: each sequence as it came, and as it could have come from another build of
 * the same runtime.
 */
import { readFileSync } from "node:fs";
import path from "node:path";
import test, { type ExecutionContext } from "ava";
import { cniVersions } from "../../cni/protocol/version.ts";
import type { RecordedCall } from "../lab/cni-recorder.ts";
import type { Machine } from "../lab/lab.ts";
import { type CniRig, joinCniRig } from "./cni-rig.ts";
import { runPlugin } from "./run-plugin.ts";

let cni: CniRig;
test.serial.before(async () => {
  cni = await joinCniRig();
});
test.serial.after.always(async () => {
  await cni?.[Symbol.asyncDispose]();
});
test.serial.afterEach.always(async (t) => {
  await cni.gone(t);
});

const recorded = (name: string): RecordedCall[] =>
  JSON.parse(
    readFileSync(path.join(import.meta.dirname, `../fixtures/cni/${name}.json`), "utf8"),
  ) as RecordedCall[];

const variable = ({ env }: RecordedCall, name: string): string | undefined =>
  env.find((text) => text.startsWith(`${name}=`))?.slice(name.length + 1);

/** Calls by the container they are about, in the order in which they came. */
function byContainer(calls: readonly RecordedCall[]): RecordedCall[][] {
  const attaching = calls.filter((call) => variable(call, "CNI_COMMAND") !== "VERSION");
  const named = Map.groupBy(attaching, (call) => variable(call, "CNI_CONTAINERID"));
  return [...named.values()];
}

const asTheyCame = "as they came";
type Variation = (call: RecordedCall) => RecordedCall;

/** Names of members in Go's own case, and in lower case: Go's readers take any. */
const renamed = (value: unknown, name: (key: string) => string): unknown =>
  Array.isArray(value)
    ? value.map((each) => renamed(each, name))
    : typeof value === "object" && value !== null
      ? Object.fromEntries(
          Object.entries(value).map(([key, each]) => [name(key), renamed(each, name)]),
        )
      : value;

const inCase =
  (name: (key: string) => string): Variation =>
  ({ env, stdin }) => ({
    env,
    stdin: { ...stdin, runtimeConfig: renamed(stdin.runtimeConfig, name) },
  });

const variations: Readonly<Record<string, Variation>> = {
  [asTheyCame]: (call) => call,
  "with the variables the other way round": ({ env, stdin }) => ({
    env: env
      .map((text) =>
        text.startsWith("CNI_ARGS=")
          ? `CNI_ARGS=${text.slice("CNI_ARGS=".length).split(";").toReversed().join(";")}`
          : text,
      )
      .toReversed(),
    stdin,
  }),
  "with Go's names of fields": inCase((key) => key.charAt(0).toUpperCase() + key.slice(1)),
  "with names in small letters": inCase((key) => key.toLowerCase()),
  "with nulls for what is absent": ({ env, stdin }) => ({
    env,
    stdin: { args: null, dns: null, ipam: null, prevResult: null, runtimeConfig: null, ...stdin },
  }),
};

/** Recorded variables and texts, for this rig. */
function placed({ env, stdin }: RecordedCall, netns: string | undefined, container: Machine) {
  const there = (text: string): string =>
    netns === undefined || netns === "" ? text : text.replaceAll(netns, container.path);
  const own = { socket: cni.socket, pendingDirectory: path.join(cni.rig.directory, "pending") };
  return [env.map(there), there(JSON.stringify({ ...stdin, ...own }))] as const;
}

async function replay(
  t: ExecutionContext,
  calls: readonly RecordedCall[],
  vary: Variation,
): Promise<void> {
  const container = await cni.container();
  let attached = false;
  for (const call of calls) {
    const command = variable(call, "CNI_COMMAND");
    const netns = variable(call, "CNI_NETNS");
    const said = await runPlugin(...placed(vary(call), netns, container));
    t.like(said, { exit: 0, stderr: "" }, `${command}: ${said.stdout}`);
    if (command === "ADD") {
      attached = true;
      const { json } = said;
      t.is(json.cniVersion, call.stdin.cniVersion);
      t.is(json.interfaces[json.ips[0].interface].sandbox, container.path);
      const asked = call.stdin.runtimeConfig?.dns?.Servers;
      if (asked !== undefined) t.deepEqual(json.dns.nameservers, asked);
      await container.ping("192.168.123.1");
      const link = json.interfaces[1].name;
      const queues = await cni.rig.lab.host.run("tc", "qdisc", "show", "dev", link);
      t.is(queues.includes("tbf"), call.stdin.runtimeConfig?.bandwidth !== undefined);
    } else {
      t.is(said.stdout, "");
      t.false(await container.reaches("192.168.123.1"));
    }
  }
  t.true(attached);
  // (ctr never takes back what it has run detached.)
  const [first] = calls;
  await cni.done({
    command: "DEL",
    container,
    id: variable(first as RecordedCall, "CNI_CONTAINERID") as string,
    config: { name: first?.stdin.name },
  });
}

const isAsked = ({ stdin }: RecordedCall): boolean => stdin.runtimeConfig?.bandwidth !== undefined;

for (const runtime of ["containerd-1.6", "podman-4.3"])
  for (const [how, vary] of Object.entries(variations)) {
    // In a short run, what is varied is what asks for most.
    const all = process.env["PODNET_TEST_FULL"] === "1" || how === asTheyCame;
    const sequences = byContainer(recorded(runtime)).filter((calls) => all || calls.some(isAsked));
    if (sequences.length === 0) continue;
    test.serial(`what ${runtime} sends is served, ${how}`, async (t) => {
      for (const calls of sequences) {
        await replay(t, calls, vary);
        await cni.converged();
      }
    });
  }

test.serial("podman asks for the version with variables that mean nothing", async (t) => {
  const asked = recorded("podman-4.3").filter(
    (call) => variable(call, "CNI_COMMAND") === "VERSION",
  );
  t.not(asked.length, 0);
  for (const { env, stdin } of asked)
    t.deepEqual((await runPlugin(env, JSON.stringify(stdin))).json, {
      cniVersion: "1.1.0",
      supportedVersions: [...cniVersions],
    });
});

test.serial(
  "the recordings hold what makes real runtimes differ from the specification's examples",
  (t) => {
    const calls = recorded("containerd-1.6");
    const some = (is: (call: RecordedCall) => boolean): boolean => t.true(calls.some(is));
    some(({ stdin }) => stdin.runtimeConfig?.portMappings?.[0].HostIP === "");
    some(({ stdin }) => stdin.runtimeConfig?.bandwidth?.IngressBurst === 4_294_967_295);
    some(({ stdin }) => stdin.runtimeConfig?.dns?.Servers !== undefined);
    some(({ stdin }) => stdin.capabilities?.portMappings === true);
    some(
      (call) =>
        variable(call, "CNI_COMMAND") === "DEL" &&
        variable(call, "CNI_NETNS") === "" &&
        call.stdin.prevResult === undefined,
    );
  },
);
