/** Each of CNI's error numbers that podnet has an occasion for, as the plugin itself says it. */
import path from "node:path";
import test from "ava";
import { type CniRig, joinCniRig } from "./cni-rig.ts";
import { runPlugin } from "./run-plugin.ts";

let cni: CniRig;
test.serial.before(async () => {
  cni = await joinCniRig();
});
test.serial.after.always(async () => {
  await cni?.[Symbol.asyncDispose]();
});

interface Row {
  readonly command: string;
  /** Variables that are not as they should be. */
  readonly env?: Readonly<Record<string, string>>;
  readonly config?: Readonly<Record<string, unknown>>;
  readonly code: number;
  readonly says: RegExp;
}

const away = { socket: "/run/missing/cni.sock" };
const rows: Readonly<Record<string, Row>> = {
  "an unknown version": {
    command: "ADD",
    config: { cniVersion: "9.9.9" },
    code: 1,
    says: /incompatible CNI versions/,
  },
  "a verb that the version has not": {
    command: "CHECK",
    config: { cniVersion: "0.3.1" },
    code: 1,
    says: /does not allow CHECK/,
  },
  "CHECK of what never was": {
    command: "CHECK",
    config: { prevResult: { cniVersion: "1.1.0" } },
    code: 3,
    says: /has no "eth0"/,
  },
  "no container": {
    command: "ADD",
    env: { CNI_CONTAINERID: "" },
    code: 4,
    says: /required env variables \[CNI_CONTAINERID\] missing/,
  },
  "a container's ID that is a path": {
    command: "DEL",
    env: { CNI_CONTAINERID: "a/b" },
    code: 4,
    says: /invalid characters in containerID/,
  },
  "an interface's name that is none": {
    command: "ADD",
    env: { CNI_IFNAME: "a b" },
    code: 4,
    says: /CNI_IFNAME/,
  },
  "an unknown argument": {
    command: "ADD",
    env: { CNI_ARGS: "FOO=bar" },
    code: 4,
    says: /FOO/,
  },
  "a list where an object should be": {
    command: "ADD",
    config: { runtimeConfig: [] },
    code: 6,
    says: /runtimeConfig is not an object/,
  },
  "no name": { command: "ADD", config: { name: "" }, code: 7, says: /missing network name/ },
  "CHECK without the result": { command: "CHECK", code: 7, says: /prevResult missing/ },
  "no namespace": { command: "ADD", code: 8, says: /not-there/ },
  "podnetd away at ADD": { command: "ADD", config: away, code: 11, says: /does not answer/ },
  "podnetd away at GC": {
    command: "GC",
    config: { ...away, "cni.dev/valid-attachments": [] },
    code: 11,
    says: /does not answer/,
  },
  "podnetd away at STATUS": { command: "STATUS", config: away, code: 50, says: /does not answer/ },
  "no such network at STATUS": {
    command: "STATUS",
    config: { network: "no" },
    code: 50,
    says: /"no"/,
  },
  "no such network at ADD": { command: "ADD", config: { network: "no" }, code: 109, says: /"no"/ },
};

for (const [what, { command, env, config, code, says }] of Object.entries(rows))
  test.serial(`${what} is CNI's ${code}`, async (t) => {
    const variables = {
      CNI_COMMAND: command,
      CNI_CONTAINERID: "c1",
      CNI_NETNS: "/run/netns/not-there",
      CNI_IFNAME: "eth0",
      CNI_PATH: "/opt/cni/bin",
      ...env,
    };
    const whole = {
      cniVersion: "1.1.0",
      name: "podnet",
      type: "podnet-cni",
      socket: cni.socket,
      pendingDirectory: path.join(cni.rig.directory, "pending"),
      ...config,
    };
    const said = await runPlugin(
      Object.entries(variables).map(([name, value]) => `${name}=${value}`),
      JSON.stringify(whole),
    );
    t.like(said, { exit: 1, stderr: "", json: { code } }, said.stdout);
    t.deepEqual(Object.keys(said.json), ["code", "msg", "details"]);
    t.regex(`${said.json.msg} ${said.json.details}`, says);
    t.deepEqual(await cni.links(), []);
  });

test.serial("without a command the plugin says what it is, and fails at nothing", async (t) => {
  const said = await runPlugin([], "");
  t.like(said, { exit: 0, stdout: "" });
  t.regex(said.stderr, /^podnet-cni .*CNI 0\.1\.0/);
});
