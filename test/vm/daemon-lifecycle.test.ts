import { once } from "node:events";
import { mkdtempSync, readdirSync, readlinkSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { PodState, InterfaceState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { WatchPodsResponse_Kind as Kind } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { until } from "../lab/until.ts";
import { addressOf, execIn, openRig, reached, type Rig } from "./daemon-rig.ts";

let rig: Rig;

// One daemon serves this whole file, and its pods live from test to test: booting is what costs.
test.serial.before(async () => {
  rig = await openRig("quarantine_s = 0\n");
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

test.serial("the plan says everything and does nothing", async (t) => {
  const { plan } = await rig.client.pods.create({ spec: { name: "planned" }, planOnly: true });
  const text = plan?.sections.flatMap(({ lines }) => lines).join("\n") ?? "";
  t.regex(text, /192\.168\.123\.2\/24/);
  t.regex(text, /bridge .*hyper0|hyper0 bridge/);
  t.regex(text, /MASQUERADE/);
  t.regex(text, /qemu-system/);
  t.regex(text, /virtio-net-pci,id=nic0/);
  t.regex(text, /nic0 is in the template/);
  t.regex(text, /configure \{/);
  t.deepEqual(await rig.changes(), []);
});

test.serial("a pod is created, with its network working both ways", async (t) => {
  const { pod } = await rig.client.pods.create({ spec: { name: "one", labels: { role: "web" } } });
  t.is(pod?.state, PodState.RUNNING);
  t.is(addressOf(pod), "192.168.123.2");
  const [first] = pod?.interfaces ?? [];
  t.is(first?.state, InterfaceState.CONFIGURED);
  t.deepEqual(first?.observedAddresses, ["192.168.123.2/24"]);
  t.is(first?.gateway, "192.168.123.1");
  t.deepEqual(pod?.spans.map(({ step }) => step).toSorted(), [
    "guest.configure",
    "guest.ready",
    "guest.verify",
    "nic.plug",
    "port.attach",
    "tap.open",
    "vm.start",
  ]);
  await rig.lab.host.ping("192.168.123.2", 3);
  const gateway = await execIn(rig.client, "one", "ping", "-c", "1", "-W", "2", "192.168.123.1");
  t.is(gateway.code, 0, gateway.output);
  const internet = await execIn(rig.client, "one", "ping", "-c", "1", "-W", "2", "203.0.113.10");
  t.is(internet.code, 0, internet.output);
});

test.serial("its tap is QEMU's alone", async (t) => {
  const fds = `/proc/${rig.daemon.process.pid}/fd`;
  const open = readdirSync(fds).flatMap((fd) => {
    try {
      return [readlinkSync(join(fds, fd))];
    } catch {
      return [];
    }
  });
  t.deepEqual(
    open.filter((target) => target === "/dev/net/tun"),
    [],
  );
  const [tap] = /\bpn[a-z2-7]{12}0\b/.exec(await rig.inventory()) ?? [];
  t.regex(
    await rig.lab.host.run("ip", "-d", "link", "show", "dev", tap ?? ""),
    /vnet_hdr on persist off/,
  );
});

test.serial("a second pod reaches the first", async (t) => {
  const { pod } = await rig.client.pods.create({ spec: { name: "two" } });
  t.is(addressOf(pod), "192.168.123.3");
  const ping = await execIn(rig.client, "two", "ping", "-c", "1", "-W", "2", "192.168.123.2");
  t.is(ping.code, 0, ping.output);
});

for (const how of ["stop", "kill"] as const) {
  test.serial(
    `after a ${how} and a start the pods are ours again, and never stopped`,
    async (t) => {
      const before = await rig.client.pods.get({ idOrName: "one" });
      const pings = rig.lab.host.run(
        "ping",
        "-n",
        "-i",
        "0.05",
        "-c",
        "60",
        "-W",
        "2",
        "192.168.123.2",
      );
      await rig.restart(how);
      t.regex(await pings, / 0% packet loss/);
      const { pod } = await rig.client.pods.get({ idOrName: "one" });
      t.is(pod?.state, PodState.RUNNING);
      t.is(pod?.vm?.pid, before.pod?.vm?.pid);
      const hello = await execIn(rig.client, "one", "echo", "still here");
      t.deepEqual(hello, { output: "still here\n", code: 0 });
      await t.throwsAsync(
        rig.client.pods.create({ spec: { interfaces: [{ address: "192.168.123.2" }] } }),
        {
          code: "ADDRESS_IN_USE",
        },
      );
    },
  );
}

test.serial("a network is not moved from under its pods", async (t) => {
  await t.throwsAsync(rig.restart("stop", { PODNET_NETWORK_CIDR: "10.77.0.0/16" }), {
    message: /CONFIG_INVALID.*192\.168\.123\.1/,
  });
  await rig.restart("stop");
  await rig.lab.host.ping("192.168.123.2", 1);
});

test.serial(
  "a start that fails once it has taken pods over ends, and lets go of them",
  async (t) => {
    await rig.daemon.stop();
    const program = join(import.meta.dirname, "../../bin/podnetd");
    const { configFile } = rig.daemon;
    const startAt = async (socket: string): Promise<number> => {
      const words = [program, "--config", configFile, "--socket", socket] as const;
      const started = rig.lab.host.spawn(words, { stdio: "ignore" });
      const [code] = (await once(started, "exit")) as [number];
      return code;
    };
    t.is(await startAt("/nowhere/podnet.sock"), 6);
    // The API is the last to be opened: a file in the socket's place is found when the pods have
    // been taken over.
    const directory = mkdtempSync("/tmp/podnet-occupied-");
    t.teardown(() => rmSync(directory, { recursive: true }));
    writeFileSync(join(directory, "podnet.sock"), "");
    t.is(await startAt(join(directory, "podnet.sock")), 6);
    await rig.restart("stop");
    await rig.lab.host.ping("192.168.123.2", 1);
  },
);

test.serial("a guest that reboots is configured again, and reached again", async (t) => {
  const ended = new AbortController();
  const watch = rig.client.pods.watch({ idOrName: "one" }, { signal: ended.signal });
  for await (const { kind, text } of watch) {
    if (kind === Kind.SYNCED) void execIn(rig.client, "one", "reboot", "-f").catch(() => {});
    if (/configured again/.test(text)) {
      t.regex(text, /^configured again/);
      break;
    }
  }
  ended.abort();
  await rig.lab.host.ping("192.168.123.2", 2);
});

test.serial("the console keeps what the guest has said", async (t) => {
  const chunks: Uint8Array[] = [];
  await execIn(rig.client, "one", "sh", "-c", "echo words on the console > /dev/console");
  for await (const { data } of rig.client.pods.console({ idOrName: "one", noFollow: true })) {
    chunks.push(data);
  }
  t.regex(Buffer.concat(chunks).toString("latin1"), /words on the console/);
});

test.serial("independent sources find on host and machine what the record says", async (t) => {
  const { ok, checks } = await rig.client.pods.verify({ idOrName: "one" });
  t.true(ok, JSON.stringify(checks.filter((check) => !check.ok)));
  t.true(checks.length > 3);
});

test.serial(
  "a machine that dies is reported within a second, its address stays the pod's",
  async (t) => {
    const { pod } = await rig.client.pods.get({ idOrName: "two" });
    const ended = new AbortController();
    const watch = rig.client.pods.watch({ idOrName: "two" }, { signal: ended.signal });
    let killedAt = 0;
    for await (const { kind, pod: now } of watch) {
      if (kind === Kind.SYNCED) {
        killedAt = performance.now();
        process.kill(pod?.vm?.pid ?? -1, "SIGKILL");
      }
      if (now?.state === PodState.FAILED) {
        t.is(now.failure?.code, "QEMU_EXITED");
        break;
      }
    }
    ended.abort();
    t.true(performance.now() - killedAt < 1000);
    await t.throwsAsync(
      rig.client.pods.create({ spec: { interfaces: [{ address: "192.168.123.3" }] } }),
      {
        code: "ADDRESS_IN_USE",
      },
    );
  },
);

test.serial("and it starts again with the same address", async (t) => {
  const { pod } = await rig.client.pods.start({ idOrName: "two" });
  t.is(pod?.state, PodState.RUNNING);
  t.is(addressOf(pod), "192.168.123.3");
  await rig.lab.host.ping("192.168.123.3", 2);
});

test.serial("a guest that powers off is stopped, not failed", async (t) => {
  const ended = new AbortController();
  const watch = rig.client.pods.watch({ idOrName: "two" }, { signal: ended.signal });
  for await (const { kind, pod } of watch) {
    if (kind === Kind.SYNCED) void execIn(rig.client, "two", "poweroff", "-f").catch(() => {});
    if (pod?.state === PodState.STOPPED || pod?.state === PodState.FAILED) {
      t.is(pod.state, PodState.STOPPED, pod.reason);
      break;
    }
  }
  ended.abort();
});

test.serial("deleting leaves nothing", async (t) => {
  t.like(await rig.client.pods.delete({ idOrName: "one" }), { name: "one", existed: true });
  t.like(await rig.client.pods.delete({ idOrName: "two" }), { name: "two", existed: true });
  t.like(await rig.client.pods.delete({ idOrName: "two" }), { existed: false });
  t.deepEqual(await rig.changes(), []);
  const arp = await rig.lab.host.run("ip", "neigh", "show", "dev", "hyper0");
  t.notRegex(arp, /lladdr/);
});

test.serial("a create whose caller goes away is undone, its machine with it", async (t) => {
  const caller = new AbortController();
  const create = rig.client.pods.create({ spec: { name: "left" } }, { signal: caller.signal });
  const started = reached(rig.client, "vm.start");
  await Promise.race([started, create]);
  caller.abort();
  await t.throwsAsync(create, { code: "CANCELLED" });
  await until("it to be undone", async () => (await rig.client.pods.list({})).pods.length === 0);
  t.deepEqual(await rig.changes(), []);
});

test.serial("a network moves when its addresses are free", async (t) => {
  const { host } = rig.lab;
  await rig.restart("stop", { PODNET_NETWORK_CIDR: "10.77.0.9/16" });
  t.regex(await host.run("ip", "-br", "addr", "show", "dev", "hyper0"), /10\.77\.0\.9\/16/);
  t.notRegex(await host.run("ip", "-br", "addr", "show", "dev", "hyper0"), /192\.168/);
  t.notRegex(await host.run("iptables-save"), /192\.168/);
  await rig.restart("stop", { PODNET_NETWORK_BRIDGE: "br9", PODNET_NETWORK_NAME: "blue" });
  t.notRegex(await host.run("ip", "-o", "link"), /hyper0/);
  t.notRegex(await host.run("iptables-save"), /hyper0/);
  await rig.restart("stop");
  t.notRegex(await host.run("ip", "-o", "link"), /br9/);
});
