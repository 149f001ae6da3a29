import { parseIpPrefix } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import { command, commandName } from "../../guest-init/protocol/codes.ts";
import {
  agentFeatures,
  extensionCodes,
  extensionVersion,
} from "../../guest-init/protocol/configure.ts";
import {
  CtlDecoder,
  type CtlItem,
  encodeCtlFrame,
  encodeNext,
} from "../../guest-init/protocol/ctl-frame.ts";
import {
  encodeHelloReply,
  encodeObservedGuest,
  parseGuestConfig,
  parseHelloRequest,
} from "../../guest-init/protocol/extension-messages.ts";
import { parsePlaceFile } from "../../guest-init/protocol/file-messages.ts";
import { parseMountShare } from "../../guest-init/protocol/share-messages.ts";
import { Fields, decodeJson } from "../../guest-init/protocol/fields.ts";
import {
  encodeErrorText,
  encodeFailure,
  encodeVersion,
} from "../../guest-init/protocol/replies.ts";
import { TtyDecoder, encodeTtyFrame } from "../../guest-init/protocol/tty-frame.ts";
import type { Behaviour } from "./behaviour.ts";
import { newEpoch, type GuestNetwork } from "./guest-network.ts";
import { noSuch, Processes } from "./processes.ts";
import type { Wire } from "./wire.ts";

const packageVersion = "standin";

/**
 * Sets a terminal's title, clears it, forges a line of a log, and turns what follows: ESC, CSI,
 * NUL, CR, LF, C1, bidi.
 */
export const illSpoken =
  'x\u001b]0;owned\u0007\u001b[2J\u0000\r\n{"level":"error","msg":"forged"}\u009b31m\u202egnp.exe\u2066\u200b\ufeff';

/** The part of it that a frame's text may have: a NUL is refused before anything is shown. */
const illFramed = illSpoken.replaceAll("\u0000", "");

export interface AgentOptions {
  readonly control: Wire;
  readonly tty: Wire;
  readonly network: GuestNetwork;
  readonly behaviour: Behaviour;
  /** A command has come, before it is obeyed. */
  readonly commandCame: (name: string) => void;
  readonly powerOff: () => void;
  /** READY has been said. */
  readonly announced: () => void;
}

type Answer = Uint8Array | undefined;
type Handler = (payload: Uint8Array) => Answer | Promise<Answer>;

/** The agent of a stand-in guest: podnet's own protocol, spoken well unless asked otherwise. */
export class Agent {
  readonly #options: AgentOptions;
  readonly #processes: Processes;
  readonly #handlers: ReadonlyMap<number, Handler>;
  #decoder = new CtlDecoder();
  #ttyDecoder = new TtyDecoder();
  #epoch = newEpoch();
  #started = false;
  #announced = false;
  #work: Promise<void> = Promise.resolve();
  /** Counts host connections and starts: an answer is for its own alone. */
  #session = 0;
  /** The host has said HELLO: what is read is counted no longer. */
  #extended = false;
  mute = false;

  constructor(options: AgentOptions) {
    this.#options = options;
    const { control, tty } = options;
    this.#processes = new Processes({
      output: (stream, data) => tty.send(encodeTtyFrame(stream, data)),
      ended: (event) => this.#say(command.processAsyncEvent, event),
    });
    this.#handlers = this.#commands();
    control.joined = () => {
      if (this.#started) this.#announce();
    };
    control.left = () => this.#forget();
    control.received = (bytes) => this.#received(bytes);
    tty.received = (bytes) => {
      for (const item of this.#ttyDecoder.push(bytes))
        if (item.kind === "frame") this.#processes.input(item.stream, item.data);
    };
    tty.left = () => {
      this.#ttyDecoder = new TtyDecoder();
    };
  }

  /** The agent starts, at the boot or anew, its ports being open: another epoch, and READY. */
  start(): void {
    this.#forget();
    this.#processes.forget();
    this.#epoch = newEpoch();
    this.#started = true;
    this.#announced = false;
    if (this.#options.control.connected) this.#announce();
  }

  #forget(): void {
    this.#session++;
    this.#extended = false;
    this.#options.network.giveUp();
    this.#decoder = new CtlDecoder();
  }

  #announce(): void {
    if (this.#announced) return;
    this.#announced = true;
    this.#say(command.ready);
    this.#options.announced();
  }

  #received(bytes: Uint8Array): void {
    if (this.mute) return;
    if (!this.#extended) this.#options.control.send(encodeNext(bytes.length));
    for (const item of this.#decoder.push(bytes)) {
      const session = this.#session;
      // One after the other, in their order.
      this.#work = this.#work.then(() => this.#answer(item, session));
    }
  }

  async #answer(item: CtlItem, session: number): Promise<void> {
    const slow = this.#options.behaviour.number("slow") ?? 0;
    if (slow > 0) await new Promise((resolve) => setTimeout(resolve, slow));
    let frame: Uint8Array;
    try {
      frame = encodeCtlFrame(command.ack, await this.#obey(item));
    } catch (error) {
      frame = encodeCtlFrame(command.error, failure(item.code, error));
    }
    if (session === this.#session && !this.mute) this.#options.control.send(frame);
  }

  async #obey(item: CtlItem): Promise<Answer> {
    if (item.kind === "refused")
      throw new PodnetError("AGENT_PROTOCOL", `Frame length ${item.length} is ${item.reason}`);
    this.#options.commandCame(commandName(item.code));
    const handler = this.#handlers.get(item.code);
    if (handler === undefined)
      throw new PodnetError("UNSUPPORTED", `${commandName(item.code)} is not supported`);
    return await handler(item.payload);
  }

  #commands(): ReadonlyMap<number, Handler> {
    const nothing = (): Answer => undefined;
    const noContainer = (): never => {
      throw noSuch("container");
    };
    return new Map<number, Handler>([
      [command.ping, nothing],
      [command.ready, nothing],
      [command.onlineCpuMem, nothing],
      [command.getVersion, getVersion],
      [command.killContainer, noContainer],
      [command.removeContainer, noContainer],
      [command.hello, (payload) => this.#hello(payload)],
      [command.configure, (payload) => this.#configure(payload)],
      [command.placeFile, quietly(parsePlaceFile)],
      [command.mountShare, quietly(parseMountShare)],
      [command.execCmd, quietly((payload) => this.#processes.exec(payload))],
      [command.signalProcess, quietly((payload) => this.#processes.signal(payload))],
      [command.destroyPod, quietly(() => setImmediate(this.#options.powerOff))],
    ]);
  }

  #hello(payload: Uint8Array): Uint8Array {
    const { versions, nonce } = parseHelloRequest(payload);
    if (!versions.includes(extensionVersion))
      throw new PodnetError(
        "UNSUPPORTED",
        `The extension's version here is ${extensionVersion}, the host speaks ${versions.join(", ")}`,
        { field: "versions" },
      );
    this.#extended = true;
    return encodeHelloReply({
      version: extensionVersion,
      agent: this.#options.behaviour.has("ill-version") ? illFramed : packageVersion,
      epoch: this.#epoch,
      nonce,
      features: [
        agentFeatures.loopback,
        agentFeatures.attributes,
        agentFeatures.files,
        agentFeatures.shares,
      ],
    });
  }

  async #configure(payload: Uint8Array): Promise<Uint8Array> {
    const config = parseGuestConfig(payload);
    const { behaviour, network } = this.#options;
    if (behaviour.has("refuse"))
      throw new PodnetError("INVALID_ARGUMENT", "Not today", { field: "interfaces[0].mac" });
    // Not a PodnetError, whose text may be shown.
    if (behaviour.has("ill-refusal")) throw new Error(illSpoken.repeat(1000).slice(0, 60_000));
    const observed = await network.configure(config);
    if (behaviour.has("ill-spoken"))
      return encodeObservedGuest({ ...observed, hostname: illFramed });
    if (!behaviour.has("wrong-answer")) return encodeObservedGuest(observed);
    const addresses = [parseIpPrefix("203.0.113.9/24")];
    return encodeObservedGuest({
      ...observed,
      interfaces: observed.interfaces.map((each) => ({ ...each, addresses })),
    });
  }

  #say(code: number, payload?: Uint8Array): void {
    this.#options.control.send(encodeCtlFrame(code, payload));
  }
}

/** A command whose ACK carries nothing. */
const quietly =
  (act: (payload: Uint8Array) => unknown): Handler =>
  (payload) => {
    act(payload);
    return undefined;
  };

function getVersion(payload: Uint8Array): Answer {
  const asked = payload.length === 0 ? null : decodeJson(payload);
  if (asked !== null) new Fields(asked).done();
  return encodeVersion();
}

function failure(code: number, thrown: unknown): Uint8Array {
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  if (code < extensionCodes.hello) return encodeErrorText(message);
  const field = thrown instanceof PodnetError ? thrown.field : undefined;
  return encodeFailure({ message, ...(field === undefined ? {} : { field }) });
}
