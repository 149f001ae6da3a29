import test, { type ExecutionContext } from "ava";
import { command } from "../../guest-init/protocol/codes.ts";
import type { ObservedGuest } from "../../guest-init/protocol/configure.ts";
import { parseObservedGuest } from "../../guest-init/protocol/extension-messages.ts";
import { AgentHost } from "../lab/agent-host.ts";
import { ownNetns } from "../lab/netns.ts";

let host: AgentHost;

test.before(async () => {
  await ownNetns();
  host = await AgentHost.start();
});
test.after.always(() => host[Symbol.asyncDispose]());

async function shell(t: ExecutionContext, script: string): Promise<string> {
  const { event, stdout, stderr } = await host.run(["sh", "-ec", script]);
  t.like(event, { status: 0 }, stderr.toString());
  return stdout.toString();
}

const dns = { servers: ["10.0.0.1"], search: ["podnet"], options: [] };
const wanted = "nameserver 10.0.0.1\nsearch podnet\n";
const base = { requestId: "r1", interfaces: [], routes: [], neighbours: [], waitMs: 500 };

const configure = async (): Promise<ObservedGuest> =>
  parseObservedGuest(await host.ack(command.configure, { ...base, dns }));

interface Image {
  readonly title: string;
  /** Makes /etc, which is empty and can be written, and /run/there, what it is in the image. */
  readonly make: string;
  /** From then on nothing below /etc can be written. */
  readonly readOnly?: true;
  /** What is at /etc/resolv.conf afterwards; `as ever` where the image keeps its own. */
  readonly after: "a file" | "a link" | "as ever";
  /** Content of what the link led to before. */
  readonly behind?: string;
}

const stub = "/run/systemd/resolve/stub-resolv.conf";
const images: readonly Image[] = [
  { title: "without the file", make: "true", after: "a file" },
  { title: "with the file", make: "echo nameserver 9.9.9.9 > /etc/resolv.conf", after: "a file" },
  {
    title: "whose file is a link that dangles",
    make: `ln -s ${stub} /etc/resolv.conf`,
    after: "a file",
  },
  {
    title: "where systemd-resolved runs",
    make: `mkdir -p ${stub.replace(/\/[^/]*$/, "")}; echo nameserver 127.0.0.53 > ${stub}; ln -s ../${stub} /etc/resolv.conf`,
    after: "a file",
    behind: "nameserver 127.0.0.53\n",
  },
  {
    title: "that cannot be written",
    make: "echo nameserver 9.9.9.9 > /etc/resolv.conf",
    readOnly: true,
    after: "as ever",
  },
  {
    title: "that cannot be written, without the file",
    make: "true",
    readOnly: true,
    after: "as ever",
  },
  {
    title: "that cannot be written, whose file is a link to where it can",
    make: "ln -s ../run/there/resolv.conf /etc/resolv.conf",
    readOnly: true,
    after: "a link",
  },
  {
    title: "that cannot be written, where systemd-resolved runs",
    make: `mkdir -p ${stub.replace(/\/[^/]*$/, "")}; echo nameserver 127.0.0.53 > ${stub}; ln -s ../${stub} /etc/resolv.conf`,
    readOnly: true,
    after: "as ever",
    behind: "nameserver 127.0.0.53\n",
  },
];

for (const { title, make, readOnly, after, behind } of images)
  test.serial(`nameservers in an image ${title}`, async (t) => {
    await shell(t, `mount -t tmpfs tmpfs /etc; ${make}`);
    if (readOnly === true) await shell(t, "mount -o remount,ro /etc");
    const before = await shell(t, "ls -l /etc; cat /etc/resolv.conf || true");
    const observed = await configure();
    // Asked again, it says the same.
    t.deepEqual((await configure()).resolverKept, observed.resolverKept);
    if (after === "as ever") {
      t.is(observed.resolverKept, "EROFS");
      t.notDeepEqual(observed.dns, dns as never);
      t.is(await shell(t, "ls -l /etc; cat /etc/resolv.conf || true"), before);
    } else {
      t.is(observed.resolverKept, undefined);
      t.deepEqual(observed.dns, dns as never);
      t.is(await shell(t, "cat /etc/resolv.conf"), wanted);
      const link = await shell(
        t,
        "if [ -L /etc/resolv.conf ]; then echo a link; else echo a file; fi",
      );
      t.is(link.trim(), after);
      t.is(await shell(t, "ls /etc"), "resolv.conf\n", "nothing is left alongside it");
    }
    if (behind !== undefined) t.is(await shell(t, `cat ${stub}`), behind);
    await shell(t, `umount /etc; rm -rf /run/systemd/resolve /run/there`);
  });
