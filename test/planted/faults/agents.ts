import type { Fault } from "../fault.ts";

const exec = "test/unit/guest-init/channel/exec.test.ts";
const parked = "test/unit/guest-init/channel/parked.test.ts";
const noIpv6 = {
  file: "test/vm/daemon-ipv6.test.ts",
  title: "with no IPv6 on the network no path of IPv6 is left, not even link-locally",
};

/** Programs in guests, and the agent. */
export const agentsFaults: readonly Fault[] = [
  {
    kind: "escape",
    name: "what a guest hands on as its kernel's answers is believed",
    file: "guest-init/channel/parked.ts",
    find: "return observed && parseObservedGuest(encodeObservedGuest(observed));",
    put: "return void [parseObservedGuest, encodeObservedGuest] ?? observed;",
    noticedBy: {
      file: parked,
      title: "answers of a hostile guest are judged as strictly as those of a message",
    },
  },
  {
    kind: "record",
    name: "a machine of the pool becomes a pod without fresh randomness",
    file: "guest-init/channel/parked.ts",
    find: 'if (entropy !== undefined) steps.add({ kind: "entropy", bytes: hexBytes(entropy) });',
    put: "void [entropy, hexBytes];",
    noticedBy: {
      file: parked,
      title: "a guest that was parked is sent steps, randomness first, and its answers are read",
    },
  },
  {
    kind: "bound",
    name: "a program's unread output fills the memory",
    file: "guest-init/channel/exec-session.ts",
    find: "this.#options.tty.hold(this);",
    put: "",
    noticedBy: {
      file: exec,
      title: "unread output is bounded: the channel is paused, and goes on when it is read",
    },
  },
  {
    kind: "release",
    name: "a channel that was paused for a reader stays so",
    file: "guest-init/channel/exec-session.ts",
    find: "this.#options.tty.release(this);",
    put: "",
    noticedBy: {
      file: exec,
      title: "unread output is bounded: the channel is paused, and goes on when it is read",
    },
    slow: true,
    shows: "hang",
  },
  {
    kind: "bound",
    name: "tiny frames cost nothing",
    file: "guest-init/channel/exec-queue.ts",
    find: "const eventCost = 128;",
    put: "const eventCost = 0;",
    noticedBy: {
      file: exec,
      title:
        "tiny frames of one stream become one event; of two in turns, they count for what they cost",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "any number of programs runs in a guest",
    file: "guest-init/channel/exec.ts",
    find: "if (this.#sessions.size >= this.#limits.execSessions)",
    put: "if (this.#sessions.size < 0)",
    noticedBy: { file: exec, title: "too many sessions at a time are refused" },
    slow: true,
  },
  {
    kind: "release",
    name: "a program whose reader has left runs on",
    file: "guest-init/channel/exec-session.ts",
    find: 'if (kill && this.#phase.kind !== "finished") this.#options.kill(SIGKILL).catch(() => {});',
    put: "void [kill, SIGKILL];",
    noticedBy: { file: exec, title: "a reader that leaves kills the process" },
    slow: true,
  },
  {
    kind: "repair",
    name: "an agent that was lost is not reached again",
    file: "daemon/pods/guest/follow-agent.ts",
    find: "if (signal.aborted) return;\n    guard(live, watch, () => watch.records.degraded",
    put: "if (signal.aborted || pauseMs > 0) return;\n    guard(live, watch, () => watch.records.degraded",
    noticedBy: {
      file: "test/unit/daemon/pods/agent.test.ts",
      title:
        "a guest that breaks the protocol is reached again, says so meanwhile, and harms no other pod",
    },
    slow: true,
  },
  {
    kind: "release",
    name: "the agent of a pod that is let go of is reached again",
    file: "daemon/pods/guest/follow-agent.ts",
    find: "live.subscriptions.add(() => stop.abort());",
    put: "",
    noticedBy: {
      file: "test/unit/daemon/pods/agent.test.ts",
      title: "a pod that is let go of is not reached again",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "attempts to reach an agent come as fast as they fail",
    file: "daemon/pods/guest/follow-agent.ts",
    find: "return Math.min(Math.max(2 * pauseMs, pauses.first), pauses.longest);",
    put: "return pauses.first;",
    noticedBy: {
      file: "test/unit/daemon/pods/agent.test.ts",
      title: "attempts come ever more seldom, and soon again after a channel that held",
    },
  },
  {
    kind: "escape",
    name: "a guest's reasons reach messages as they are",
    file: "guest-init/protocol/replies.ts",
    find: "    ?.map(printable)\n",
    put: "    ?.map((each) => (printable(each) === undefined ? '' : each))\n",
    noticedBy: {
      file: "test/unit/guest-init/protocol/messages.test.ts",
      title: "reasons are bounded, escaped and never throw",
    },
  },
  {
    kind: "access",
    name: "a guest's links speak IPv6 on a network without",
    file: "guest-init/agent/network/ipv6.ts",
    find: 'disable_ipv6: wanted ? "0" : "1" };',
    put: 'disable_ipv6: wanted ? "0" : "0" };',
    build: "image",
    noticedBy: noIpv6,
    slow: true,
  },
  {
    kind: "bound",
    name: "the agent takes frames of any length",
    file: "guest-init/protocol/assembler.ts",
    find: "this.#skip = Math.max(0, length - headerSize);",
    put: "this.#skip = 0;",
    build: "agent",
    noticedBy: {
      file: "test/kernel/agent-protocol.test.ts",
      title: "frames of impossible length are answered and skipped",
    },
    slow: true,
  },
  {
    kind: "mark",
    name: "an image's own DHCP comes before what its seed disk says",
    file: "daemon/pods/guest/cloud-network.ts",
    find: "`0-${guestName}`",
    put: "guestName",
    noticedBy: {
      file: "test/unit/daemon/pods/plan-seed.test.ts",
      title:
        "what a seed disk says of an interface comes before an image's own word for every eth* and en*",
    },
  },
  {
    kind: "release",
    name: "the agent keeps descriptors of programs that have ended",
    file: "guest-init/agent/session.ts",
    find: "if (output.fd !== this.#stdin) sys.close(output.fd);",
    put: "",
    build: "agent",
    noticedBy: {
      file: "test/kernel/agent-exec.test.ts",
      title: "a thousand processes leave neither descriptors nor memory behind",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "each route of a list is a call to the guest's kernel of its own",
    file: "guest-init/agent/network/netlink.ts",
    find: "const batch = 64;",
    put: "const batch = 1;",
    noticedBy: {
      file: "test/unit/guest-init/agent/routes.test.ts",
      title:
        "hundreds of routes and addresses reach the kernel in a few calls, their device looked up once",
    },
  },
  {
    kind: "bound",
    name: "the device of a list of routes is looked up for each of them",
    file: "guest-init/agent/network/interfaces.ts",
    find: "if (device !== undefined && link !== undefined) indexes.set(device, link);",
    put: "",
    noticedBy: {
      file: "test/unit/guest-init/agent/routes.test.ts",
      title:
        "hundreds of routes and addresses reach the kernel in a few calls, their device looked up once",
    },
  },
  {
    kind: "bound",
    name: "a message may be nested as deep as it likes",
    file: "guest-init/protocol/json-depth.ts",
    find: "if (++depth > limit) return true;",
    put: "if (++depth > limit) return false;",
    build: "image",
    noticedBy: {
      file: "test/vm/agent-load.test.ts",
      title: "JSON nested 100,000 deep is refused, and what runs runs on",
    },
    slow: true,
  },
  {
    kind: "release",
    name: "half a frame of a host that has gone waits for its rest",
    file: "guest-init/agent/frame-deadline.ts",
    find: "this.#forget();",
    put: "",
    build: "agent",
    noticedBy: {
      file: "test/kernel/agent-protocol.test.ts",
      title: "half a frame whose rest does not come is forgotten",
    },
    slow: true,
  },
  {
    kind: "release",
    name: "half a frame outlives a hang-up that is doubted",
    file: "guest-init/agent/port.ts",
    find: "} else if (this.#hostPresent) this.#handlers.doubted();",
    put: "}",
    noticedBy: {
      file: "test/unit/guest-init/agent/port.test.ts",
      title: "a hang-up that lasts is believed, and what was to be sent is void",
    },
  },
  {
    kind: "mark",
    name: "a name with a NUL in it is taken for the shorter one",
    file: "guest-init/protocol/fields.ts",
    find: 'if (value.includes("\\0")) throw malformed(`"${path}" has a NUL character in it`, path);',
    put: "",
    noticedBy: {
      file: "test/unit/guest-init/protocol/messages.test.ts",
      title: "a NUL in a text and JSON nested too deeply are refused",
    },
  },
];
