import {
  type Fields,
  list,
  number,
  object,
  parsePayload,
  Refused,
  required,
  text,
  texts,
} from "./hyperstart-json.ts";
import type { GuestNetwork } from "./hyperstart-network.ts";
import { GuestProcess, type ProcessEvents, type ProcessSpec } from "./hyperstart-process.ts";
import { programOf } from "./hyperstart-programs.ts";
import type { IpFlavour } from "./hyperstart-text.ts";

/** Codes of the control channel as of API 4244. */
export const codes = {
  GETVERSION: 0,
  STARTPOD: 1,
  DESTROYPOD: 4,
  EXECCMD: 6,
  READY: 8,
  ACK: 9,
  ERROR: 10,
  WINSIZE: 11,
  PING: 12,
  NEXT: 14,
  WRITEFILE: 15,
  READFILE: 16,
  NEWCONTAINER: 17,
  KILLCONTAINER: 18,
  ONLINECPUMEM: 19,
  SETUPINTERFACE: 20,
  SETUPROUTE: 21,
  REMOVECONTAINER: 22,
  PROCESSASYNCEVENT: 23,
  SIGNALPROCESS: 24,
  DELETEINTERFACE: 25,
} as const;

/** The container that is none: its processes run where the agent does. */
const agentContainer = "hyperstart";
const apiVersion = 4244;

interface Container {
  readonly files: Map<string, Buffer>;
  readonly init: GuestProcess;
}

export interface GuestOptions {
  readonly network: GuestNetwork;
  readonly ip: IpFlavour;
  readonly applets: "all" | "few";
  readonly clock: { behindMs: number };
  /** Whether a 9p share can be mounted. */
  readonly nineP: boolean;
}

/**
 * What the agent does on a command; the reply is ACK with what is returned, or ERROR with what is
 * thrown.
 */
export class Guest {
  readonly #options: GuestOptions;
  readonly #events: ProcessEvents;
  readonly #containers = new Map<string, Container>();
  readonly processes: GuestProcess[] = [];
  /** The agent's own files: those that no kernel makes. */
  readonly files = new Map<string, Buffer>();
  podStarted = false;
  readonly clock: { behindMs: number };
  hostname = "";

  constructor(options: GuestOptions, events: ProcessEvents) {
    this.#options = options;
    this.#events = events;
    this.clock = options.clock;
  }

  async handle(code: number, payload: Buffer): Promise<Buffer> {
    const json = (): unknown => parsePayload(payload);
    const done = Buffer.alloc(0);
    const { network } = this.#options;
    switch (code) {
      case codes.GETVERSION: {
        const version = Buffer.alloc(4);
        version.writeUInt32BE(apiVersion);
        return version;
      }
      case codes.READFILE:
        return this.#readFile(payload);
      case codes.WRITEFILE:
        this.#writeFile(payload);
        return done;
      case codes.STARTPOD:
        await this.#startPod(json());
        return done;
      case codes.EXECCMD:
        this.#exec(json());
        return done;
      case codes.NEWCONTAINER:
        this.#newContainer(json());
        return done;
      case codes.KILLCONTAINER:
        this.#killContainer(json());
        return done;
      case codes.REMOVECONTAINER:
        this.#removeContainer(json());
        return done;
      case codes.SETUPINTERFACE:
        await network.setupInterface(json());
        return done;
      case codes.SETUPROUTE:
        await network.setupRoute(json());
        return done;
      case codes.DELETEINTERFACE:
        network.deleteInterface(json());
        return done;
      case codes.SIGNALPROCESS: {
        const fields = object(json(), ["container", "process", "signal"]);
        this.#running(fields).signal(number(fields, "signal") ?? 0);
        return done;
      }
      case codes.WINSIZE: {
        const fields = object(json(), ["container", "process", "row", "column"]);
        const size = [number(fields, "row") ?? 0, number(fields, "column") ?? 0] as const;
        this.#running(fields).size = size;
        return done;
      }
      // READY from the host rescans the PCI bus, ONLINECPUMEM does its work in a child without
      // being waited for.
      case codes.READY:
      case codes.PING:
      case codes.ONLINECPUMEM:
      case codes.DESTROYPOD:
        return done;
      default:
        throw new Refused(`no command ${code}`);
    }
  }

  async #startPod(value: unknown): Promise<void> {
    const deprecated = ["interfaces", "routes", "containers"];
    const fields = object(value, [
      "hostname",
      "dns",
      "dnsSearch",
      "dnsOptions",
      "shareDir",
      "portmappingWhiteLists",
      ...deprecated,
    ]);
    const lists = object(fields.get("portmappingWhiteLists") ?? {}, [
      "internalNetworks",
      "externalNetworks",
    ]);
    texts(lists, "internalNetworks");
    texts(lists, "externalNetworks");
    const hostname = text(fields, "hostname") ?? "";
    const dns = resolvConf(fields);
    if (this.podStarted) throw new Refused("the pod is started");
    if (text(fields, "shareDir") !== undefined && !this.#options.nineP)
      throw new Refused("cannot mount the share");
    const { network } = this.#options;
    const lo = network.find("lo");
    if (lo) network.up(lo);
    for (const entry of list(fields, "interfaces")) await network.setupInterface(entry);
    await network.setupRoute({ routes: list(fields, "routes") });
    this.hostname = hostname;
    this.files.set("/tmp/hyper/hostname", Buffer.from(hostname));
    this.files.set("/tmp/hyper/resolv.conf", dns);
    this.podStarted = true;
  }

  #exec(value: unknown): void {
    const fields = object(value, ["container", "process"]);
    const name = required(fields, "container");
    if (name !== agentContainer && !this.#containers.has(name))
      throw new Refused(`no container ${name}`);
    this.#start(readProcess(name, fields.get("process")));
  }

  #newContainer(value: unknown): void {
    const fields = object(value, [
      "id",
      "rootfs",
      "image",
      "addr",
      "fstype",
      "volumes",
      "fsmap",
      "sysctl",
      "process",
      "restartPolicy",
      "initialize",
      "readOnly",
      "ports",
    ]);
    const id = required(fields, "id");
    if (!this.podStarted) throw new Refused("no pod");
    if (this.#containers.has(id)) throw new Refused(`container ${id} is there already`);
    const spec = readProcess(id, fields.get("process"));
    const files = new Map<string, Buffer>();
    for (const name of ["hostname", "resolv.conf"])
      files.set(`/etc/${name}`, this.files.get(`/tmp/hyper/${name}`) as Buffer);
    const init = new GuestProcess(spec, this.#events);
    this.#containers.set(id, { files, init });
    this.#start(spec, init);
  }

  #killContainer(value: unknown): void {
    const fields = object(value, ["container", "signal"]);
    const container = this.#containers.get(required(fields, "container"));
    if (!container) throw new Refused("no container", "no such container\0");
    container.init.signal(number(fields, "signal") ?? 0);
  }

  #removeContainer(value: unknown): void {
    const id = required(object(value, ["container"]), "container");
    if (this.#containers.get(id)?.init.status === undefined)
      throw new Refused("no container, or one that runs");
    this.#containers.delete(id);
  }

  /** The file's bytes follow the first `}`. */
  #writeFile(payload: Buffer): void {
    const end = payload.indexOf("}") + 1;
    const { files, path } = this.#file(payload.subarray(0, end));
    files.set(path, Buffer.from(payload.subarray(end)));
  }

  #readFile(payload: Buffer): Buffer {
    const { files, path } = this.#file(payload);
    const content = files.get(path);
    if (!content) throw new Refused(`no file ${path}`);
    return content;
  }

  #file(payload: Buffer): { files: Map<string, Buffer>; path: string } {
    const fields = object(parsePayload(payload), ["container", "file"]);
    const container = this.#containers.get(required(fields, "container"));
    if (!container) throw new Refused("no container");
    return { files: container.files, path: required(fields, "file").replace(/^\/*/, "/") };
  }

  #running(fields: Fields): GuestProcess {
    const container = required(fields, "container");
    const id = required(fields, "process");
    const found = this.processes.find(
      ({ spec, status }) => spec.container === container && spec.id === id && status === undefined,
    );
    if (!found) throw new Refused("no process");
    return found;
  }

  #start(spec: ProcessSpec, process = new GuestProcess(spec, this.#events)): void {
    const container = this.#containers.get(spec.container);
    this.processes.push(process);
    process.start(
      programOf({
        network: this.#options.network,
        ip: this.#options.ip,
        applets: this.#options.applets,
        clock: this.clock,
        files: container?.files ?? this.files,
        // The pod's name is set in a UTS namespace that the agent is not in.
        hostname: container ? this.hostname : "(none)",
      }),
    );
  }
}

function readProcess(container: string, value: unknown): ProcessSpec {
  const fields = object(value, [
    "id",
    "user",
    "group",
    "additionalGroups",
    "terminal",
    "stdio",
    "stderr",
    "args",
    "envs",
    "workdir",
  ]);
  texts(fields, "additionalGroups");
  const terminal = fields.has("terminal") && fields.get("terminal") !== false;
  const args = texts(fields, "args");
  if (args.length === 0) throw new Refused("no args");
  const stdio = fields.get("stdio");
  const stderr = fields.get("stderr") ?? 0n;
  if (typeof stdio !== "bigint" || stdio === 0n) throw new Refused("no stdio");
  if (typeof stderr !== "bigint" || (stderr === 0n && !terminal)) throw new Refused("no stderr");
  const envs = list(fields, "envs").map((entry) => {
    const env = object(entry, ["env", "value"]);
    return { env: required(env, "env"), value: required(env, "value") };
  });
  const workdir = text(fields, "workdir") ?? "";
  return {
    container,
    id: text(fields, "id") ?? "",
    stdio,
    stderr,
    terminal,
    args,
    envs,
    workdir,
  };
}

/**
 * A nameserver line is put together in 28 bytes: of a longer one the rest is what lay behind them.
 */
function resolvConf(fields: Fields): Buffer {
  const servers = texts(fields, "dns").map((server) => {
    const line = Buffer.from(`nameserver ${server}\n`);
    if (line.length >= 28) line.fill(0, 27);
    return line;
  });
  const words = (key: string, values: readonly string[]): Buffer =>
    Buffer.from(values.length === 0 ? "" : `${key} ${values.join(" ")}\n`);
  return Buffer.concat([
    ...servers,
    words("search", texts(fields, "dnsSearch")),
    words("options", texts(fields, "dnsOptions")),
  ]);
}
