import { PodnetError } from "../../core/errors.ts";
import { hexBytes } from "../protocol/bytes.ts";
import { command, portNames } from "../protocol/codes.ts";
import { Fields, decodeJson } from "../protocol/fields.ts";
import { parseAwakening } from "../protocol/extension-messages.ts";
import { encodeVersion } from "../protocol/replies.ts";
import { findPort, onlineAll, rescanPci } from "./boot.ts";
import { configure } from "./configure.ts";
import { Containers } from "./containers/containers.ts";
import { Control } from "./control.ts";
import { watchDevices } from "./devices.ts";
import { placeGuestFile, readGuestFile, writeGuestFile } from "./guest-files.ts";
import { hello } from "./hello.ts";
import { Interfaces } from "./network/interfaces.ts";
import { Links } from "./network/links.ts";
import { addRandomness, ensureMachineId, newEpoch, newMachineId } from "./machine.ts";
import { type Around, MainProcess } from "./main-process/main-process.ts";
import { preloadProgram } from "./main-process/preload.ts";
import { Netlink } from "./network/netlink.ts";
import { startPod } from "./pod.ts";
import { type Loop, readable } from "./loop.ts";
import type { Options } from "./options.ts";
import { askForPowerOff, endMachine } from "./power.ts";
import { Processes, noSuch } from "./processes.ts";
import { type Handler, type Reply, done } from "./reply.ts";
import { mountShare } from "./mounts/shares.ts";
import { carryOut } from "./steps.ts";
import { Streams } from "./streams.ts";
import { pollEvent, sys } from "./sys.ts";

const signals = { interrupt: 2, user1: 10, user2: 12, terminate: 15, child: 17 } as const;

/** hyperd and runv send `null`; keys mean that something is expected which is not known here. */
function getVersion(payload: Uint8Array): Reply {
  const asked = payload.length === 0 ? null : decodeJson(payload);
  if (asked !== null) new Fields(asked).done();
  return { payload: encodeVersion() };
}

const noContainers = (): never => {
  throw new PodnetError("UNSUPPORTED", "hyperstart's containers are not supported by this agent");
};
const noContainer = (): never => {
  throw noSuch("container");
};

interface AgentHooks {
  readonly ready: () => void;
  readonly loadModules: () => void;
}

/** Everything the agent is made of, and which command leads where. */
export class Agent {
  readonly #loop: Loop;
  readonly #options: Options;
  readonly #control: Control;
  readonly #streams: Streams;
  readonly #processes: Processes;
  readonly #main: MainProcess;
  readonly #containers: Containers;
  readonly #links: Links;
  readonly #interfaces: Interfaces;
  #epoch = newEpoch();

  /** `ready`: READY has been said. `loadModules`: what containers need of the kernel. */
  constructor(
    loop: Loop,
    options: Options,
    { ready = () => undefined, loadModules = () => undefined }: Partial<AgentHooks> = {},
  ) {
    this.#loop = loop;
    this.#options = options;
    this.#links = new Links(loop, new Netlink(), options.channel === portNames.control);
    this.#links.netlink.serveSteps();
    loop.servesItself = () => this.#control.waitingPort;
    this.#interfaces = new Interfaces(this.#links);
    this.#processes = new Processes(
      loop,
      () => this.#streams,
      (code, payload) => this.#control.report(code, payload),
      {
        placeOf: (container) => this.#containers.placeOf(container),
        mainPlace: () => this.#main.place,
        ended: (child) => {
          this.#main.ended(child);
          this.#containers.ended(child);
        },
        clogged: () => this.#main.clogged || this.#containers.clogged,
      },
    );
    const around: Around = {
      streams: () => this.#streams,
      report: (code, payload) => this.#control.report(code, payload),
      inputTaken: () => this.#processes.pace(),
    };
    this.#main = new MainProcess(loop, options.isInit, around);
    this.#containers = new Containers(loop, around, loadModules);
    this.#streams = new Streams(loop, () => findPort(options.tty), {
      input: (stream, data) =>
        this.#main.input(stream, data) ||
        this.#containers.input(stream, data) ||
        this.#processes.input(stream, data),
      drained: () => {
        this.#main.resume();
        this.#containers.resume();
        this.#processes.resume();
      },
      lost: () => this.#unfollow(),
    });
    this.#control = new Control(loop, () => findPort(options.channel), this.#handlers(), {
      opened: () => {
        this.#streams.open();
        ready();
      },
      lost: () => {
        this.#links.giveUp();
        this.#unfollow();
      },
    });
  }

  /** Looks for the channels, and opens them as soon as they are there. */
  open(): void {
    this.#watchSignals();
    const stop = watchDevices(this.#loop, () => {
      if (this.#control.open() && this.#streams.open()) stop();
    });
  }

  #unfollow(): void {
    this.#main.unfollow();
    this.#containers.unfollow();
  }

  #handlers(): ReadonlyMap<number, Handler> {
    return new Map<number, Handler>([
      [command.ping, () => done],
      [command.getVersion, getVersion],
      [command.ready, () => this.#rescan()],
      [command.execCmd, (payload) => this.#processes.exec(payload)],
      [command.signalProcess, (payload) => this.#processes.signal(payload)],
      [command.winSize, (payload) => this.#processes.resize(payload)],
      [command.onlineCpuMem, () => ({ after: () => this.#inGuest(onlineAll) })],
      [command.setupInterface, (payload) => this.#interfaces.setup(payload)],
      [command.setupRoute, (payload) => this.#interfaces.route(payload)],
      [command.deleteInterface, (payload) => this.#interfaces.remove(payload)],
      [command.writeFile, writeGuestFile],
      [command.readFile, readGuestFile],
      [command.placeFile, placeGuestFile],
      [command.mountShare, mountShare],
      [command.startPod, (payload) => this.#startPod(payload)],
      [command.newContainer, noContainers],
      [command.killContainer, noContainer],
      [command.removeContainer, noContainer],
      [command.hello, (payload) => this.#hello(payload)],
      [command.awake, (payload) => this.#awake(payload)],
      [command.configure, (payload) => this.#configure(payload)],
      [command.steps, carryOut],
      [command.preload, preloadProgram],
      [command.startMain, (payload) => this.#main.start(payload)],
      [command.followMain, (payload) => this.#main.follow(payload)],
      [command.signalMain, (payload) => this.#main.signal(payload)],
      [command.resizeMain, (payload) => this.#main.resize(payload)],
      ...(this.#options.isInit ? this.#containers.handlers() : []),
      [command.destroyPod, () => ({ after: () => this.#powerOff() })],
    ]);
  }

  #startPod(payload: Uint8Array): Promise<Reply> {
    this.#inGuest(rescanPci);
    return startPod(payload, this.#interfaces);
  }

  #hello(payload: Uint8Array): Reply {
    const epoch = sys.epoch() || this.#epoch;
    const reply = hello(payload, { epoch, isInit: this.#options.isInit });
    this.#streams.extend();
    this.#control.extend();
    return reply;
  }

  /**
   * AWAKE: this guest is a clone. Randomness comes first: whatever is drawn before, its twins draw
   * too.
   */
  #awake(payload: Uint8Array): Reply {
    if (!this.#options.isInit) throw new PodnetError("UNSUPPORTED", "This agent is not PID 1");
    const { entropy, clockMs } = parseAwakening(payload);
    addRandomness(hexBytes(entropy));
    sys.setClock(clockMs);
    this.#epoch = newEpoch();
    newMachineId();
    return done;
  }

  #configure(payload: Uint8Array): Promise<Reply> {
    return configure(payload, this.#links, () => {
      if (this.#options.isInit) ensureMachineId();
    });
  }

  #rescan(): Reply {
    this.#inGuest(rescanPci);
    return done;
  }

  /**
   * The machine is the guest's only when a virtio port leads to the host: never reach into a test's
   * host.
   */
  #inGuest(act: () => void): void {
    if (this.#options.channel === portNames.control) act();
  }

  #watchSignals(): void {
    const fd = sys.signals(Object.values(signals));
    const buffer = new Uint8Array(128 * 16);
    this.#loop.watch(fd, pollEvent.in, (events) => {
      const count = readable(events) ? (sys.read(fd, buffer) ?? 0) : 0;
      for (let at = 0; at < count; at += 128) this.#signal(buffer[at] as number);
      this.#processes.reap();
      // Ends of processes leave at once, and not in the next round: the host waits for them.
      this.#streams.flush();
      this.#control.flush();
    });
  }

  /**
   * As PID 1 with the signals busybox's halt, poweroff and reboot send; otherwise the usual end of
   * a service.
   */
  #signal(number: number): void {
    if (number === signals.child) return;
    if (!this.#options.isInit) {
      if (number === signals.terminate || number === signals.interrupt) sys.exit(0);
      return;
    }
    const restart = number === signals.terminate || number === signals.interrupt;
    endMachine(this.#loop, restart ? "restart" : "power-off");
  }

  /** DESTROYPOD. A plain process ends the machine only when the machine is a guest. */
  #powerOff(): void {
    if (this.#options.isInit) endMachine(this.#loop, "power-off");
    else if (this.#options.channel === portNames.control) askForPowerOff(this.#loop);
    else sys.exit(0);
  }
}
