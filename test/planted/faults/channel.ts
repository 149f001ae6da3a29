import type { Fault } from "../fault.ts";

const sessionFrames = "test/unit/guest-init/channel/session-frames.test.ts";
const sessionCommands = "test/unit/guest-init/channel/session-commands.test.ts";
const exec = "test/unit/guest-init/channel/exec.test.ts";
const floods = "test/unit/guest-init/channel/floods.test.ts";
const queue = "test/unit/guest-init/channel/exec-queue.test.ts";
const ownMessages = "test/unit/daemon/api/own-messages.test.ts";
const frames = "test/unit/guest-init/protocol/frames.test.ts";

/** What a guest sends: how much, how slowly, in what order. */
export const channelFaults: readonly Fault[] = [
  {
    kind: "bound",
    name: "a guest's frame may have any length",
    file: "guest-init/protocol/assembler.ts",
    find: "if (length < headerSize || length > limit) {",
    put: "void limit;\n    if (length < headerSize) {",
    noticedBy: { file: frames, title: "the limit is exact, and configurable up to 10 MiB" },
  },
  {
    kind: "bound",
    name: "a guest's frame may be shorter than its header",
    file: "guest-init/protocol/assembler.ts",
    find: "if (length < headerSize || length > limit) {",
    put: "if (length > limit) {",
    noticedBy: {
      file: frames,
      title: "after a frame too short the next byte begins a header",
    },
  },
  {
    kind: "bound",
    name: "memory is taken for as much as a guest announces",
    file: "guest-init/protocol/assembler.ts",
    find: "new Uint8Array(Math.min(this.#bodyLength, wanted));",
    put: "new Uint8Array(this.#bodyLength + 0 * wanted);",
    noticedBy: { file: frames, title: "memory follows what arrives, not what is announced" },
  },
  {
    kind: "bound",
    name: "a control frame that is too long is passed over",
    file: "guest-init/channel/control.ts",
    find: 'if (item.kind === "refused")\n      throw malformed(',
    put: 'if (item.kind === "refused") return;\n    if (item.code < 0)\n      throw malformed(',
    noticedBy: {
      file: sessionFrames,
      title: "a frame longer than the limit is refused at its header",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "a tty frame that is too long is passed over",
    file: "guest-init/channel/tty.ts",
    find: "return cutOff(malformed(`The guest announced a tty frame of ${item.length} bytes`));",
    put: "return;",
    noticedBy: {
      file: sessionFrames,
      title: "a tty frame longer than the limit costs the channel",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "a frame may take for ever to arrive",
    file: "guest-init/channel/link.ts",
    find: "if (decoder.pending) this.#startFrameTimer();\n    let tokens",
    put: "let tokens",
    noticedBy: {
      file: sessionFrames,
      title: "a frame begun and not finished costs the channel (raw)",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "a guest may say READY without end",
    file: "guest-init/channel/session.ts",
    find: "if (++this.#restarts > this.#limits.restarts)",
    put: "if (++this.#restarts < 0)",
    noticedBy: {
      file: sessionFrames,
      title: "READY without end costs the channel",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "a guest may send unknown frames without end",
    file: "guest-init/channel/control.ts",
    find: "if (++this.counters.senselessFrames > this.#limits.senselessFrames)",
    put: "if (++this.counters.senselessFrames < 0)",
    noticedBy: {
      file: sessionFrames,
      title: "unknown frames are counted, and too many cut off",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "commands wait for a guest's answers without end",
    file: "guest-init/channel/control.ts",
    find: "if (this.#pending.size >= outstanding || this.#flow.queued + frames.length > queuedBytes)",
    put: "if (outstanding + queuedBytes < 0)",
    noticedBy: {
      file: sessionCommands,
      title: "too many unanswered commands are refused at once",
    },
    slow: true,
    shows: "hang",
  },
  {
    kind: "bound",
    name: "a guest's answer has no deadline",
    file: "guest-init/channel/pending.ts",
    find: "this.#time.after(dueAt - now, ",
    put: "this.#time.after(1e9, ",
    noticedBy: {
      file: sessionCommands,
      title: "a silent guest costs each command its deadline, counted from the one before",
    },
    slow: true,
    shows: "hang",
  },
  {
    kind: "mark",
    name: "an answer that comes late goes to the next command",
    file: "guest-init/channel/pending.ts",
    find: "finish: (outcome) => {\n        entry.finish = undefined;",
    put: "finish: (outcome) => {\n        entry.finish = undefined;\n        if (outcome instanceof PodnetError) this.#entries = this.#entries.filter((each) => each !== entry);",
    noticedBy: {
      file: sessionCommands,
      title: "answers go to commands in order, also past those given up",
    },
  },
  {
    kind: "mark",
    name: "an answer to nothing is passed over",
    file: "guest-init/channel/control.ts",
    find: 'this.#flow.mode !== "identifying" ||',
    put: "",
    noticedBy: {
      file: sessionFrames,
      title: "an answer to nothing costs the guest its channel",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "NEXT for bytes never sent is believed",
    file: "guest-init/channel/flow.ts",
    find: "if (count > this.#unread)",
    put: "if (count < 0)",
    noticedBy: {
      file: sessionCommands,
      title: "NEXT for bytes never sent costs the channel",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "a hyperstart is sent more than its buffer holds",
    file: "guest-init/channel/flow.ts",
    find: '(this.#mode === "next" && this.#unread > 0)',
    put: "this.#unread < 0",
    noticedBy: {
      file: sessionCommands,
      title: "to a hyperstart at most 512 bytes go out before NEXT has accounted for them",
    },
  },
  {
    kind: "repair",
    name: "a hyperstart's ACK is believed",
    file: "guest-init/channel/hyperstart.ts",
    find: "if (faults.length > 0)",
    put: "if (faults.length < 0)",
    noticedBy: {
      file: "test/unit/guest-init/channel/lies.test.ts",
      title: "an ACK for an address that is not there is found out",
    },
  },
  {
    kind: "release",
    name: "sessions of a guest that is lost go on waiting",
    file: "guest-init/channel/session.ts",
    find: "wires?.processes.failAll(reason);\n    if",
    put: "if",
    noticedBy: {
      file: exec,
      title: "sessions end when the agent starts anew, and when the guest is lost",
    },
    slow: true,
    shows: "hang",
  },
  {
    kind: "bound",
    name: "a guest's frames take as much of a turn of the event loop as they like",
    file: "linux/sockets/paced-socket.ts",
    find: "return Math.ceil(this.#left);",
    put: "return Infinity;",
    noticedBy: {
      file: "test/unit/linux/sockets/paced-socket.test.ts",
      title: "the work of one turn of the event loop is bounded, for one sender and for all",
    },
  },
  {
    kind: "bound",
    name: "work that has waited goes on in one turn until nothing waits",
    file: "linux/loop-turns.ts",
    find: "at - this.#wentOn >= turnMs.waited",
    put: "at < this.#wentOn",
    noticedBy: {
      file: "test/unit/linux/loop-turns.test.ts",
      title: "pieces that have waited go on until they have used their time of a turn",
    },
  },
  {
    kind: "bound",
    name: "work begins at once however long this turn has been",
    file: "linux/loop-turns.ts",
    find: "return now - this.#began < turnMs.atOnce;",
    put: "return now >= this.#began;",
    noticedBy: {
      file: "test/unit/linux/loop-turns.test.ts",
      title: "of long pieces each turn begins one, in the order in which they came",
    },
  },
  {
    kind: "bound",
    name: "a guest is read however fast it sends",
    file: "linux/sockets/paced-socket.ts",
    find: "this.#bucket?.charge(worked.tokens);",
    put: "this.#bucket?.charge(0 * worked.tokens);",
    noticedBy: {
      file: "test/unit/linux/sockets/paced-socket.test.ts",
      title: "a sender above its rate is not read meanwhile, and nothing of it is lost",
    },
    slow: true,
    shows: "hang",
  },
  {
    kind: "bound",
    name: "NEXT of nothing may come without end",
    file: "guest-init/channel/control.ts",
    find: 'if (count === 0) return this.#senseless("a NEXT of 0 bytes");',
    put: "if (count === 0) return;",
    noticedBy: {
      file: floods,
      title: "NEXT of 0 bytes means nothing: some are counted, more cost the channel",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "ends of unknown processes may come without end",
    file: "guest-init/channel/control.ts",
    find: "if (!this.#strays.take())",
    put: "if (this.#strays.tokens < -1)",
    noticedBy: {
      file: floods,
      title:
        "ends of processes that are not known: earlier daemons leave some, more cost the channel",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "output of streams that never were may come without end",
    file: "guest-init/channel/tty.ts",
    find: "if (this.#mayHaveBeen(item.stream)) this.strayFrames++;",
    put: "if (item.stream >= 0n) this.strayFrames++;",
    noticedBy: {
      file: floods,
      title: "output of streams that never were costs the channel: stream 0",
    },
    slow: true,
  },
  {
    kind: "access",
    name: "memory of output is another program's while it is still written",
    file: "daemon/api/http/own-messages.ts",
    find: "first.end <= written; ) {",
    put: "first.end <= written + Infinity; ) {",
    noticedBy: {
      file: ownMessages,
      title: "messages come in their places, and memory is given back once Node holds none of it",
    },
  },
  {
    kind: "access",
    name: "memory of output is given back though its caller's stream was cut",
    file: "daemon/api/http/own-messages.ts",
    find: "if (stream === undefined || stream.destroyed) return Infinity;",
    put: "if (stream === undefined) return Infinity;",
    noticedBy: {
      file: ownMessages,
      title: "of an answer that is destroyed nothing is given back: Node may still be writing it",
    },
  },
  {
    kind: "access",
    name: "little output stays in the memory that all guests are read into",
    file: "guest-init/channel/exec-queue.ts",
    find: "return { kind, data: new Uint8Array(data) };",
    put: "return { kind, data };",
    noticedBy: { file: queue, title: "what is pushed is copied: little, some and much" },
  },
  {
    kind: "access",
    name: "the rest of what was read stays in the memory that all guests are read into",
    file: "linux/sockets/paced-socket.ts",
    find: "this.#rest = new Uint8Array(bytes.subarray(at));",
    put: "this.#rest = bytes.subarray(at);",
    noticedBy: {
      file: "test/unit/linux/sockets/paced-socket.test.ts",
      title: "sockets that read into the same memory lose nothing, held or out of turn",
    },
  },
];
