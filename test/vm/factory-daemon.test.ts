import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { isPodnetError } from "../../core/errors.ts";
import { templateNicMac } from "../../hypervisor/driver.ts";
import { until } from "../lab/until.ts";
import { addressOf, execIn, openRig, type Rig } from "./daemon-rig.ts";

let rig: Rig;

test.serial.before(async () => {
  rig = await openRig('factory = "cold"\nquarantine_s = 0\n');
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

const template = { boot: { factory: "template" } };

async function created(name: string): Promise<string> {
  const { pod } = await rig.client.pods.create({ spec: { ...template, name } });
  return addressOf(pod);
}

/** What should be one pod's alone. */
async function idsOf(name: string): Promise<string[]> {
  const random = "/proc/sys/kernel/random";
  const { output } = await execIn(
    rig.client,
    name,
    "cat",
    `${random}/uuid`,
    `${random}/boot_id`,
    "/etc/machine-id",
  );
  return output.split("\n").slice(0, 3);
}

test.serial("a pod from a template is a pod like any other, with everything its own", async (t) => {
  await rig.daemon.podnet("create", "--name", "one", "--factory", "template");
  const addresses = [
    addressOf((await rig.client.pods.get({ idOrName: "one" })).pod),
    ...(await Promise.all(["two", "three"].map(created))),
  ];
  for (const address of addresses) await rig.lab.host.ping(address);
  const names = ["one", "two", "three"];
  const ids = (await Promise.all(names.map(idsOf))).flat();
  t.is(new Set(ids).size, 9, ids.join(" "));
  for (const name of names) t.is((await execIn(rig.client, name, "hostname")).output, `${name}\n`);
  const [before, now, after] = [
    Date.now(),
    Number((await execIn(rig.client, "three", "date", "+%s")).output) * 1000,
    Date.now(),
  ];
  t.true(now > before - 2000 && now < after + 1000, `${now - before} ms`);
  const verified = await rig.client.pods.verify({ idOrName: "two" });
  t.true(verified.ok);
  t.regex(await rig.daemon.podnet("get", "two"), /vm\.start .* a clone/);
  t.regex(await rig.daemon.podnet("create", "--plan", "--factory", "template"), /-incoming defer/);
});

test.serial(
  "a clone has its template's NIC under its own MAC, on the wire and over a reboot",
  async (t) => {
    const { pods } = await rig.client.pods.list({});
    const macs = pods.map(({ interfaces }) => interfaces[0]?.mac ?? "");
    t.is(new Set(macs).size, 3);
    const linksOf = async (name: string): Promise<string> =>
      (await execIn(rig.client, name, "sh", "-c", "cat /sys/class/net/*/address; ip -o address"))
        .output;
    for (const [i, { name, interfaces }] of pods.entries()) {
      const links = await linksOf(name);
      t.deepEqual(links.match(/^[0-9a-f:]{17}$/gm), [macs[i] as string, "00:00:00:00:00:00"]);
      const addresses = links.match(/inet \S+/g);
      t.deepEqual(addresses, ["inet 127.0.0.1/8", `inet ${interfaces[0]?.addresses[0]}`]);
      const { spans } = (await rig.client.pods.get({ idOrName: name })).pod ?? { spans: [] };
      t.regex(spans.find(({ step }) => step === "vm.start")?.detail ?? "", /a clone with its NIC/);
    }
    const learned = await rig.lab.host.run("bridge", "fdb", "show");
    t.true(learned.includes(macs[0] as string));
    t.false(learned.includes(templateNicMac));
    const { pid = 0 } = pods[0]?.vm ?? {};
    t.true(readFileSync(`/proc/${pid}/cmdline`, "latin1").includes(macs[0] as string));
    await execIn(rig.client, pods[0]?.name ?? "", "sh", "-c", "reboot -f & exit 0").catch(() => {});
    const answers = (): Promise<boolean> =>
      rig.lab.host.ping(addressOf(pods[0])).then(
        () => true,
        () => false,
      );
    await until("the guest to be configured again", async () => {
      const { pod } = await rig.client.pods.get({ idOrName: pods[0]?.name ?? "" });
      return pod?.vm?.guestRestarts === 1 && (await answers());
    });
  },
);

test.serial("what cannot be cloned is refused, and nothing begins", async (t) => {
  const before = await rig.inventory();
  const disk = await rig.daemon.tryPodnet("create", "--factory=template", "--disk=/dev/null");
  t.regex(disk.stderr, /UNSUPPORTED[^]*field: boot\.factory/);
  const unknown = await rig.daemon.tryPodnet("create", "--factory=warm");
  t.is(unknown.exitCode, 2);
  t.regex(unknown.stderr, /INVALID_ARGUMENT[^]*field: boot\.factory/);
  const boot = { ...template.boot, cmdline: "rdinit=/nowhere" };
  const error = await t.throwsAsync(rig.client.pods.create({ spec: { boot } }));
  t.true(isPodnetError(error, "BOOT_FAILED") && /panic/.test(String(error.details["console"])));
  t.deepEqual(await rig.changes(before), []);
});

/**
 * What the kernel says of the QEMU whose guest writes a template's memory; another file's tests may
 * have one, too.
 */
async function templateStatus(): Promise<string> {
  for (let tries = 0; tries < 500; tries++) {
    for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
      try {
        const line = readFileSync(`/proc/${pid}/cmdline`, "latin1");
        if (!line.startsWith("/usr/bin/qemu") || !line.includes("share=on")) continue;
        const status = readFileSync(`/proc/${pid}/status`, "latin1");
        const launcher = readFileSync(`/proc/${parentIn(status)}/status`, "latin1");
        if (parentIn(launcher) === rig.daemon.process.pid) return status;
      } catch {
        // It ended while we looked.
      }
    }
    await delay(20);
  }
  throw new Error("No template's machine has come up");
}

const parentIn = (status: string): number => Number(/^PPid:\t(\d+)$/m.exec(status)?.[1]);

/** What is reported of pods from a moment on, and for a moment more. */
async function textsSince(after: bigint): Promise<string[]> {
  const texts: string[] = [];
  try {
    for await (const { text } of rig.client.pods.watch({ after }, { timeoutMs: 1000 }))
      texts.push(text);
  } catch (thrown) {
    if (!isPodnetError(thrown, "DEADLINE_EXCEEDED")) throw thrown;
  }
  return texts;
}

/** Clones unasked, and holds the first template up, so that its machine can be looked at. */
const nextDaemon = {
  PODNET_FACTORY: "template",
  PODNET_FAILPOINTS: "qmp:migrate:before#1=hang:1000",
};
/** Of the machine of that template. */
let templateSeen: string;

test.serial("clones outlive a daemon that is killed, whose templates end with it", async (t) => {
  const after = (await rig.client.pods.list({})).cursor;
  await rig.restart("kill", nextDaemon);
  const { pods } = await rig.client.pods.list({});
  t.is(pods.length, 3);
  for (const pod of pods) {
    await rig.lab.host.ping(addressOf(pod));
    t.is((await execIn(rig.client, pod.id, "echo", "alive")).output, "alive\n");
  }
  // Agents are known again by the names that they were given.
  t.notRegex((await textsSince(after)).join(), /started anew meanwhile/);
  // Made for this test and the next two, which go on with it.
  const creating = created("four");
  templateSeen = await templateStatus();
  await rig.lab.host.ping(await creating);
  for (const name of ["one", "two", "three"]) await rig.client.pods.delete({ idOrName: name });
});

test.serial("a template's machine is shut in like a pod's", async (t) => {
  const { pod } = await rig.client.pods.get({ idOrName: "four" });
  const own = readFileSync(`/proc/${pod?.vm?.pid}/status`, "latin1");
  for (const field of ["Uid", "Gid", "Groups", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp"]) {
    const of = (status: string): string | undefined =>
      new RegExp(`^${field}:.*$`, "m").exec(status)?.[0];
    t.is(of(templateSeen), of(own));
  }
  t.regex(templateSeen, /^Uid:\t[1-9]/m);
});

test.serial("as podnetd is set up: cloned unless a pod says otherwise", async (t) => {
  await rig.daemon.podnet("create", "--name", "unasked");
  await rig.daemon.podnet("create", "--name", "cold", "--factory", "cold");
  t.regex(await rig.daemon.podnet("get", "unasked"), /vm\.start .* a clone/);
  t.notRegex(await rig.daemon.podnet("get", "cold"), /a clone/);
  // A pod that boots is given a machine-id too: its image has none.
  for (const id of (await Promise.all(["unasked", "cold"].map(idsOf))).map((ids) => ids[2]))
    t.regex(id ?? "", /^[0-9a-f]{32}$/);
  for (const name of ["four", "unasked", "cold"]) await rig.client.pods.delete({ idOrName: name });
  t.deepEqual(await rig.changes(), []);
});
