import type { Podnet } from "../../../api/client.ts";
import type { Machine } from "../../../test/lab/lab.ts";
import { cut, type Mark, monotonicMs, type Part, type Stage } from "./timeline.ts";
import type { Watched } from "./watched.ts";

/** The ways to create a pod: a further one is one line, its `factory` that of a pod's spec. */
export const modes = [
  { name: "cold", factory: "cold" },
  { name: "clone", factory: "template" },
  { name: "pool", factory: "pool" },
] as const;
export type Mode = (typeof modes)[number];

/** From the call to the first reply to a ping. A mode leaves out what does not happen in it. */
const stages: readonly Stage[] = [
  { title: "plan, row committed", until: "commit:claim:after", party: "daemon" },
  { title: "tap, port, rules; directory, limits", until: "spawn:qemu:before", party: "daemon" },
  {
    title: "jail and QEMU start, sockets open",
    until: "socket:connect qmp.sock:after",
    party: "QEMU",
  },
  { title: "QEMU makes the machine", until: "qmp:qmp_capabilities:after", party: "QEMU" },
  { title: "the template's state is loaded", until: "qmp:migrate-incoming:after", party: "QEMU" },
  {
    title: "machine looked at, run recorded",
    until: "socket:connect channel.sock:after",
    party: "daemon",
  },
  { title: "the machine runs again", until: "qmp:cont:after", party: "QEMU" },
  { title: "firmware, kernel unpacks", until: "guest:kernel:after", party: "guest" },
  { title: "kernel boots", until: "guest:init:after", party: "guest" },
  { title: "agent starts or wakes", until: "channel:hello:before", party: "guest" },
  { title: "agent says what it is", until: "qmp:getfd:before", party: "guest" },
  { title: "NIC plugged", until: "qmp:device_add:after", party: "QEMU" },
  { title: "guest finds NIC, configures it", until: "commit:running:before", party: "guest" },
  { title: "compared, committed, answered", until: "client:answer:after", party: "daemon" },
  { title: "first ping", party: "guest" },
];

/** podnetd's configuration: a machine waits when `create` asks for it. */
export const poolConfig = 'factory = "pool"\n[pool]\nsize = 1\n';

/** One create and its parts; deletes the pod. No machine waits, or is made, for another mode. */
export async function create(
  podnet: Podnet,
  host: Machine,
  watch: Watched,
  { factory }: Mode,
): Promise<readonly Part[]> {
  let id = "";
  let answered = 0;
  if (factory === "pool") await podnet.node.fillPools({});
  const { window, marks } = await watch.around(async () => {
    const { pod } = await podnet.pods.create({ spec: { boot: { factory } } });
    answered = monotonicMs();
    id = pod?.id ?? "";
    await host.ping((pod?.interfaces[0]?.addresses[0] ?? "").replace(/\/.*/, ""));
  });
  const more = [{ at: answered, name: "client:answer:after" }];
  if (factory === "cold") more.push(...(await guestClock(podnet, id)));
  await podnet.pods.delete({ idOrName: id });
  if (factory === "pool") await podnet.node.drainPools({});
  const sorted = [...marks, ...more].toSorted((a, b) => a.at - b.at);
  return cut(stages, sorted, window);
}

/**
 * When the guest's kernel began, and when it started its first program, by the host's clock: the
 * guest's uptime and its kernel's messages say it, to some 10 ms.
 */
async function guestClock(podnet: Podnet, id: string): Promise<Mark[]> {
  const script = "cut -d' ' -f1 /proc/uptime; dmesg | grep 'Run /init'";
  const before = monotonicMs();
  let text = "";
  async function* requests() {
    yield {
      input: { case: "start" as const, value: { idOrName: id, args: ["sh", "-c", script] } },
    };
  }
  let after = before;
  for await (const { output } of podnet.pods.exec(requests())) {
    if (output.case !== "stdout") continue;
    if (text === "") after = monotonicMs();
    text += Buffer.from(output.value).toString();
  }
  const [, uptime, init] = /^([\d.]+)\n\[ *([\d.]+)\] Run \/init/.exec(text) ?? [];
  if (uptime === undefined || init === undefined) throw new Error(`The guest said "${text}"`);
  const kernel = (before + after) / 2 - Number(uptime) * 1000;
  return [
    { at: kernel, name: "guest:kernel:after" },
    { at: kernel + Number(init) * 1000, name: "guest:init:after" },
  ];
}
