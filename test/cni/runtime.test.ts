/** The runtime's half against Debian's own plugins, in the lab. */
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import type { Sandbox } from "../../cni/runtime/derive.ts";
import { parseConflist, type PluginList } from "../../cni/runtime/list.ts";
import { addList, checkList, deleteList, type ListCall } from "../../cni/runtime/run-list.ts";
import { isPodnetError } from "../../core/errors.ts";
import { parseIfName } from "../../core/names.ts";
import { run } from "../../linux/processes/command.ts";
import { unpacked } from "../lab/container-host.ts";
import { machine } from "../lab/lab.ts";
import { ownNetns } from "../lab/netns.ts";

const directory = mkdtempSync(path.join(tmpdir(), "cni-runtime-"));
const debian = path.join(unpacked, "usr/lib/cni");
let sandboxes = 0;

test.before(async () => {
  await ownNetns();
});

const listOf = (...plugins: readonly object[]): PluginList =>
  parseConflist(Buffer.from(JSON.stringify({ cniVersion: "0.4.0", name: "net", plugins })));

const bridge = {
  type: "bridge",
  bridge: "cni0",
  isGateway: true,
  ipMasq: true,
  capabilities: { mac: true },
  ipam: {
    type: "host-local",
    subnet: "10.69.0.0/24",
    dataDir: path.join(directory, "leases"),
    routes: [{ dst: "0.0.0.0/0" }],
  },
};

async function sandbox(): Promise<Sandbox & { readonly netns: string }> {
  const name = `cni-runtime-${sandboxes++}`;
  await run(["ip", "netns", "add", name]);
  return {
    containerId: name,
    netns: `/run/netns/${name}`,
    ifName: parseIfName("eth0"),
    args: { IgnoreUnknown: "1" },
    capabilities: {
      mac: "02:aa:00:00:00:01",
      portMappings: [{ hostPort: 8080, containerPort: 80, protocol: "tcp" }],
    },
  };
}

const call = (list: PluginList, of: Sandbox, vendors = "/nowhere"): ListCall => ({
  host: { directories: [debian], vendors, timeoutMs: 10_000 },
  list,
  sandbox: of,
});

const rules = async (): Promise<string> => (await run(["iptables-save", "-t", "nat"])).stdout;

/** A plugin of the test's own, as a vendor ships it. */
function vendorPlugin(vendors: string, type: string, script: string): void {
  const at = path.join(vendors, type, "bin");
  mkdirSync(at, { recursive: true });
  writeFileSync(path.join(at, type), `#!/bin/sh\n${script}\n`);
  chmodSync(path.join(at, type), 0o755);
}

test.serial(
  "a sandbox gets loopback and all of a list, is checked, and gives everything back",
  async (t) => {
    const of = await sandbox();
    const inside = machine(of.containerId);
    const list = listOf(bridge, { type: "portmap", capabilities: { portMappings: true } });
    const { value, written } = await addList(call(list, of));
    t.is(value.ips[0]?.address, "10.69.0.2/24" as never);
    t.is(written["cniVersion"], "0.4.0");
    t.regex(await inside.run("ip", "link", "show", "eth0"), /link\/ether 02:aa:00:00:00:01/);
    t.regex(await inside.run("ip", "link", "show", "lo"), /LOOPBACK,UP/);
    t.true(await inside.reaches("10.69.0.1"));
    t.regex(await rules(), /--dport 8080 -j DNAT --to-destination 10\.69\.0\.2:80/);

    // (The second plugin's CHECK fails on a network without IPv6: Debian's 1.1.1 looks for a chain
    // it has never made.)
    const checked = call(listOf(bridge), of);
    await checkList(checked, written);
    await inside.run("ip", "route", "del", "default");
    const complaint = await t.throwsAsync(checkList(checked, written));
    t.true(isPodnetError(complaint, "COMMAND_FAILED"));
    await checkList(call({ ...checked.list, disableCheck: true }, of), written);

    await deleteList(call(list, of), written);
    await t.throwsAsync(inside.run("ip", "link", "show", "eth0"));
    t.notRegex(await rules(), /CNI-DN|10\.69\.0\.2/);
    t.false(existsSync(path.join(directory, "leases/net/10.69.0.2")));
    const { netns: _, ...gone } = of;
    await run(["ip", "netns", "del", of.containerId]);
    await deleteList(call(list, of), written);
    await deleteList(call(list, gone));
  },
);

test.serial(
  "what fails in the middle is undone, and the plugin's own message is reported",
  async (t) => {
    const of = await sandbox();
    const list = listOf(bridge, { type: "bandwidth", ingressRate: -1, ingressBurst: -1 });
    const error = await t.throwsAsync(addList(call(list, of)));
    if (!isPodnetError(error, "COMMAND_FAILED")) throw error;
    t.regex(error.message, /^The CNI plugin bandwidth failed at ADD: /);
    t.is(error.details["plugin"], "bandwidth");
    t.is(typeof error.details["number"], "number");
    await t.throwsAsync(machine(of.containerId).run("ip", "link", "show", "eth0"));
    t.false(existsSync(path.join(directory, "leases/net/10.69.0.2")));
  },
);

test.serial("DEL ends at the first plugin that fails, where there was a whole ADD", async (t) => {
  const of = await sandbox();
  const vendors = path.join(directory, "failing");
  const asked = path.join(directory, "asked");
  const done = (): string[] => readFileSync(asked, "utf8").trim().split("\n");
  vendorPlugin(
    vendors,
    "first",
    `[ $CNI_COMMAND = ADD ] && echo '{"ips":[]}'; echo "first $CNI_COMMAND" >>${asked}`,
  );
  vendorPlugin(
    vendors,
    "last",
    `[ $CNI_COMMAND = ADD ] && echo '{"ips":[]}' && exit; echo "last $CNI_COMMAND" >>${asked}; exit 1`,
  );
  const list = listOf({ type: "first" }, { type: "last" });
  const { written } = await addList(call(list, of, vendors));
  await t.throwsAsync(deleteList(call(list, of, vendors), written), {
    message: /plugin last failed at DEL/,
  });
  t.deepEqual(done(), ["first ADD", "last DEL"]);
  // Of an ADD that never came to its end as much goes as can.
  await t.throwsAsync(deleteList(call(list, of, vendors)), {
    message: /plugin last failed at DEL/,
  });
  t.deepEqual(done().slice(2), ["last DEL", "first DEL"]);
});

test.serial(
  "a vendor's directory comes first; each plugin is handed the result before it, and DEL goes backwards",
  async (t) => {
    const of = await sandbox();
    const vendors = path.join(directory, "vendors");
    const reported = path.join(directory, "reported");
    const note = (type: string): string =>
      `echo "${type} $CNI_COMMAND $CNI_PATH" >>${reported}; input=$(cat); echo "$input" >${reported}.${type}.$CNI_COMMAND
    [ $CNI_COMMAND != ADD ] || echo '{"cniVersion":"0.4.0","ips":[],"dns":{},"by":"${type}"}'`;
    for (const type of ["portmap", "second"]) vendorPlugin(vendors, type, note(type));
    const list = listOf({ type: "portmap", capabilities: { mac: true } }, { type: "second" });
    const { written } = await addList(call(list, of, vendors));
    t.is(written["by"], "second");
    await deleteList(call(list, of, vendors), written);
    const order = ["portmap ADD", "second ADD", "second DEL", "portmap DEL"];
    t.deepEqual(
      readFileSync(reported, "utf8").trim().split("\n"),
      order.map((step) => `${step} ${vendors}/${step.split(" ")[0]}/bin:${debian}`),
    );
    const config = (step: string): Record<string, unknown> =>
      JSON.parse(readFileSync(`${reported}.${step}`, "utf8")) as Record<string, unknown>;
    t.is(config("portmap.ADD")["prevResult"], undefined);
    t.deepEqual(config("portmap.ADD")["runtimeConfig"], { mac: "02:aa:00:00:00:01" });
    t.like(config("second.ADD"), {
      prevResult: { by: "portmap" },
      name: "net",
      cniVersion: "0.4.0",
    });
    t.like(config("portmap.DEL"), { prevResult: { by: "second" } });
  },
);

test.serial(
  "a plugin that is not there, hangs, babbles or dies without a word is a typed error",
  async (t) => {
    const of = await sandbox();
    const vendors = path.join(directory, "bad");
    vendorPlugin(vendors, "hangs", "exec sleep 60");
    vendorPlugin(vendors, "babbles", "exec yes");
    vendorPlugin(vendors, "dies", "kill -9 $$");
    vendorPlugin(vendors, "mute", "exit 3");
    vendorPlugin(vendors, "silent", "exit 0");
    const cases = [
      ["absent", "COMMAND_FAILED", /not installed/],
      ["hangs", "DEADLINE_EXCEEDED", /took longer than 500 ms/],
      ["babbles", "COMMAND_FAILED", /babbles/],
      ["dies", "COMMAND_FAILED", /SIGKILL/],
      ["mute", "COMMAND_FAILED", /failed at ADD: exit code 3/],
      ["silent", "INVALID_ARGUMENT", /not JSON/],
    ] as const;
    for (const [type, code, words] of cases) {
      const { host, ...rest } = call(listOf({ type }), of, vendors);
      const error = await t.throwsAsync(addList({ ...rest, host: { ...host, timeoutMs: 500 } }));
      t.true(isPodnetError(error, code), `${type}: ${String(error)}`);
      t.regex(error?.message ?? "", words);
    }
  },
);
