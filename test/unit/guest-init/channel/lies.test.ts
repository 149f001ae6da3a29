import test from "ava";
import { parseCidr, parseIp, parseIpPrefix, parseUnicastMac } from "../../../../core/address.ts";
import { openGuest } from "../../../../guest-init/channel/session.ts";
import { command, commandName } from "../../../../guest-init/protocol/codes.ts";
import type { GuestConfig, ObservedGuest } from "../../../../guest-init/protocol/configure.ts";
import { parseStartPod } from "../../../../guest-init/protocol/pod-messages.ts";
import {
  encodeProcessEvent,
  parseExecCmd,
} from "../../../../guest-init/protocol/process-messages.ts";
import { ScriptedGuest } from "../../../peers/scripted-guest.ts";

const never = new AbortController().signal;
const mac = "52:54:00:00:00:07";

const config: GuestConfig = {
  requestId: "r1",
  hostname: "pod",
  dns: { servers: [parseIp("8.8.8.8")], search: [], options: [] },
  interfaces: [
    { mac: parseUnicastMac(mac), name: "eth0", addresses: [parseIpPrefix("10.0.0.2/24")] },
  ],
  routes: [
    { destination: parseCidr("0.0.0.0/0"), gateway: parseIp("10.0.0.1"), interface: "eth0" },
  ],
  neighbours: [],
  waitMs: 0,
};

const link = (addresses: string): string =>
  `1: lo: <LOOPBACK,UP> mtu 65536\n2: eth0: <BROADCAST,UP> mtu 1500 qdisc x\n    link/ether ${mac} brd ff:ff:ff:ff:ff:ff\n${addresses}`;
const address = "    inet 10.0.0.2/24 scope global eth0\n";
const route = "default via 10.0.0.1 dev eth0\n";

interface Script {
  /** What `ip addr` and `ip route` print, one after the other; the last for ever. */
  readonly addr: readonly string[];
  readonly route: readonly string[];
  /** Commands answered with ERROR. */
  readonly refuses?: readonly number[];
  readonly exitCode?: number;
  /** What its files say; nothing unless given. */
  readonly files?: Readonly<Record<string, string>>;
}

/** A hyperstart that says what the script says, whatever it was asked to do. */
async function liar(
  script: Script,
  configs: readonly GuestConfig[] = [config],
): Promise<{ results: (ObservedGuest | Error)[]; commands: string[]; pods: unknown[] }> {
  await using peer = await ScriptedGuest.start();
  const { channelPath, ttyPath } = peer;
  const guest = openGuest({ channelPath, ttyPath, reattach: false });
  const commands: string[] = [];
  const pods: unknown[] = [];
  const addr = [...script.addr];
  const route = [...script.route];
  const print = (args: readonly string[]): string => {
    const from =
      args[1] === "addr"
        ? addr
        : args[1] === "route"
          ? route
          : [script.files?.[args[1] ?? ""] ?? ""];
    return (from.length > 1 ? from.shift() : from[0]) ?? "";
  };
  const serve = async (): Promise<void> => {
    for (;;) {
      const { code, payload } = await peer.command();
      commands.push(commandName(code));
      if (code === command.startPod) pods.push(parseStartPod(payload));
      if (script.refuses?.includes(code) === true) await peer.say(command.error);
      else await peer.say(command.ack);
      if (code !== command.execCmd) continue;
      const { process } = parseExecCmd(payload);
      await peer.output(process.stdio, Buffer.from(print(process.args)));
      await peer.output(process.stdio);
      const status = script.exitCode ?? 0;
      const event = {
        container: "hyperstart",
        process: process.id,
        event: "finished",
        status,
      } as const;
      await peer.say(command.processAsyncEvent, encodeProcessEvent(event));
    }
  };
  await peer.say(command.ready);
  await peer.introduce("hyperstart");
  void serve();
  const results: (ObservedGuest | Error)[] = [];
  for (const each of configs)
    results.push(await guest.configure(each, never).catch((error: Error) => error));
  await guest.close();
  return { results, commands: commands.filter((name) => name !== "execCmd"), pods };
}

test("what differs is asked for, in hyperstart's order; STARTPOD once", async (t) => {
  const { results, commands, pods } = await liar(
    { addr: [link(""), link(address)], route: ["", route] },
    [config, { ...config, requestId: "r2" }],
  );
  t.deepEqual(commands, ["startPod", "setupInterface", "setupRoute"]);
  t.like(pods[0], { hostname: "pod", dns: ["8.8.8.8"] });
  t.like(results[0], {
    requestId: "r1",
    interfaces: [{ name: "eth0", up: true, addresses: ["10.0.0.2/24"] }],
    routes: config.routes,
  });
  t.like(results[1], { requestId: "r2" });
});

test("an ACK for an address that is not there is found out", async (t) => {
  const { results } = await liar({ addr: [link("")], route: [route] });
  t.like(results[0], {
    code: "AGENT_REFUSED",
    message: "The guest acknowledged a command and did not carry it out: eth0 lacks 10.0.0.2/24",
  });
});

test("an ACK for a route that is not there is found out", async (t) => {
  const { results } = await liar({ addr: [link(address)], route: [""] });
  t.like(results[0], { code: "AGENT_REFUSED" });
});

test("an ACK for a pod that was not started is found out", async (t) => {
  const said = (fault: string) => ({
    code: "AGENT_REFUSED",
    message: `The guest acknowledged a command and did not carry it out: ${fault}`,
  });
  const down = link(address).replace("LOOPBACK,UP", "LOOPBACK");
  const { results } = await liar({ addr: [down], route: [route] });
  t.like(results[0], said("lo is down"));
  for (const [files, fault] of [
    [{ "/tmp/hyper/hostname": "old\n" }, "it is not named pod"],
    [{ "/tmp/hyper/resolv.conf": "nameserver 1.1.1.1\n" }, "nameserver 8.8.8.8 is missing"],
  ] as const) {
    const named = await liar({ addr: [link(address)], route: [route], files });
    t.like(named.results[0], said(fault));
  }
  const files = {
    "/tmp/hyper/hostname": "pod\n",
    "/tmp/hyper/resolv.conf": "nameserver 1.1.1.1\nnameserver 8.8.8.8\n",
  };
  const good = await liar({ addr: [link(address)], route: [route], files });
  t.like(good.results[0], { requestId: "r1", hostname: "pod" });
});

test("an ACK for a route that is taken away and stays is found out", async (t) => {
  const without = { ...config, requestId: "r2", routes: [] };
  const { results, commands } = await liar({ addr: [link(address)], route: [route] }, [
    config,
    without,
  ]);
  t.like(results[0], { requestId: "r1" });
  t.like(results[1], {
    code: "AGENT_REFUSED",
    message:
      "The guest acknowledged a command and did not carry it out: route 0.0.0.0/0 is still there",
  });
  t.deepEqual(
    commands,
    ["startPod"],
    "hyperstart has no command for it: ip is run, and does nothing here",
  );
});

test("an interface that never comes is looked for again, and given up", async (t) => {
  const { results, commands } = await liar({ addr: [""], route: [""] }, [
    { ...config, waitMs: 150 },
  ]);
  t.like(results[0], { code: "AGENT_TIMEOUT", message: `The guest has no interface ${mac}` });
  t.deepEqual(commands, ["startPod", "ready"]);
});

test("a refusal says of what", async (t) => {
  const { results } = await liar({
    addr: [link("")],
    route: [""],
    refuses: [command.setupInterface],
  });
  t.like(results[0], { code: "AGENT_REFUSED", message: "The guest refused interface eth0" });
});

test("an image without ip cannot be read back", async (t) => {
  const { results } = await liar({ addr: [""], route: [""], exitCode: 127 });
  t.like(results[0], { code: "AGENT_REFUSED", message: '"ip addr" exited with 127 in the guest' });
});

test("nothing at all is sent for what a hyperstart cannot do", async (t) => {
  const { results, commands } = await liar({ addr: [""], route: [""] }, [
    { ...config, routes: [{ destination: parseCidr("::/0"), interface: "eth0" }] },
  ]);
  t.like(results[0], { code: "UNSUPPORTED", field: "routes[0].destination" });
  t.deepEqual(commands, []);
});
