import test from "ava";
import { WatchPodsResponse_Kind } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { labAddresses } from "../lab/lab.ts";
import { execIn, openRig, type Rig } from "./daemon-rig.ts";

let rig: Rig;
const gateway = "192.168.123.1";

test.serial.before(async () => {
  rig = await openRig();
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

/** Whether a ping of a guest is answered, after and before these commands in it. */
async function pings(from: string, before: string, to: string, after = "true"): Promise<boolean> {
  const script = `${before} && ping -c 1 -W 1 ${to}; code=$?; ${after}; exit $code`;
  return (await execIn(rig.client, from, "sh", "-c", script)).code === 0;
}

async function counts(idOrName: string): Promise<ReadonlyMap<string, number>> {
  const { counts } = await rig.client.pods.guard({ idOrName });
  return new Map(
    counts.map(({ interface: name, kind, packets }) => [`${name} ${kind}`, Number(packets)]),
  );
}

test.serial(
  "a guest speaks as itself alone; the rest is dropped and counted by kind",
  async (t) => {
    const { pod } = await rig.client.pods.create({ spec: { name: "guest" } });
    await rig.client.pods.create({ spec: { name: "other" } });
    const mac = pod?.interfaces[0]?.mac ?? "";
    t.true(await pings("guest", "true", gateway), "as itself");
    t.deepEqual([...(await counts("guest"))], [], "of that nothing is dropped");
    // Another pod's address, by a route of its own and a neighbour that it knows already.
    const posing = "ip address add 192.168.123.77/32 dev eth0";
    const honest = "ip address del 192.168.123.77/32 dev eth0";
    t.false(await pings("guest", posing, `-I 192.168.123.77 ${gateway}`, honest));
    t.true(((await counts("guest")).get("eth0 ipv4") ?? 0) > 0, "an address");
    const masked = "ip link set eth0 address 52:54:00:00:00:77";
    t.false(await pings("guest", masked, gateway, `ip link set eth0 address ${mac}`));
    t.true(((await counts("guest")).get("eth0 mac") ?? 0) > 0, "a MAC");
    t.true(await pings("guest", "true", gateway), "as itself again");
    t.deepEqual([...(await counts("other"))], [], "its neighbour's are its own");
  },
);

test.serial(
  "watchers hear of it, and what to do; of a guest that sends as itself nothing",
  async (t) => {
    const heard: string[] = [];
    // From the first event on, until that of the pod that sent in other names.
    for await (const event of rig.client.pods.watch({ after: 0n })) {
      if (event.kind !== WatchPodsResponse_Kind.GUARD) continue;
      heard.push(`${event.pod?.name} ${event.guard.map(({ kind }) => kind).join(",")}`);
      t.regex(event.text, /^eth0: \d+ frames dropped, .* To do: /);
      break;
    }
    // By its look for drops: of one kind, or of all that came before it. (A neighbour that is
    // looked for again is asked for in the foreign name.)
    t.regex(heard.join(" "), /^guest (?:(?:ipv4|mac|arp-claim)(?:,|$))+$/);
  },
);

test.serial("a guest does not reach the host's ports, and hears so at once", async (t) => {
  const server = rig.lab.host.spawn(
    [
      process.execPath,
      "-e",
      'require("node:net").createServer().listen(9100, () => console.log("up"))',
    ],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  t.teardown(() => void server.kill("SIGKILL"));
  await new Promise((resolve) => server.stdout?.once("data", resolve));
  for (const address of [gateway, labAddresses.hostOnLan]) {
    const script = `nc -w 5 ${address} 9100 </dev/null 2>&1`;
    const { output } = await execIn(rig.client, "guest", "sh", "-c", script);
    t.regex(output, /refused/, address);
  }
  t.true(((await counts("guest")).get("eth0 host") ?? 0) > 0);
});
