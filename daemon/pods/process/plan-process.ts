import type { PodSpec } from "../../../api/pod-spec.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { ImageConfig } from "../../../images/archive/image.ts";
import { signalFromText } from "../../../api/validate/process.ts";

/** What an image says of its main process, and where its files are. */
export interface FoundImage {
  readonly digest: string;
  /** Of its file: the root of a guest on podnet's kernel, or a disk with a system of its own. */
  readonly type: "root" | "disk";
  /** Absolute path of the squashfs, or of the disk. */
  readonly file: string;
  readonly config: Pick<
    ImageConfig,
    "architecture" | "entrypoint" | "command" | "environment" | "directory" | "user" | "stopSignal"
  > & {
    /** Of a disk. */
    readonly diskFormat?: "raw" | "qcow2";
  };
}

/** The main process as decided: an image may have another config by its next start. Plain JSON. */
export interface ProcessPlan {
  readonly args: readonly string[];
  readonly env: readonly { readonly env: string; readonly value: string }[];
  /** Absent: root. */
  readonly user?: string;
  readonly workdir: string;
  readonly terminal: boolean;
  readonly stdin: boolean;
  readonly stopSignal: number;
  readonly stopTimeoutMs: number;
  /** It is PID 1 of a process namespace of its own. */
  readonly init?: true;
  /** The image of its files. */
  readonly digest?: string;
}

/** Programs that start a system, as podman recognizes them. */
const inits = /^(?:(?:\/usr(?:\/local)?)?\/sbin\/init|(?:.*\/)?systemd)$/;
/** What systemd is asked to shut down by (SIGRTMIN+3), and how long that may take, milliseconds. */
const ofInit = { stopSignal: 37, stopTimeoutMs: 30_000 } as const;

const defaults = { stopSignal: 15, stopTimeoutMs: 10_000 } as const;

const noConfig: FoundImage["config"] = {
  architecture: "",
  entrypoint: [],
  command: [],
  environment: [],
  directory: "",
  user: "",
  stopSignal: "",
};

/**
 * Decides the main process of a pod by its spec and its image; undefined when it has none. An
 * entrypoint of the spec's replaces the image's with its arguments, as docker does. Throws
 * `INVALID_ARGUMENT` when nothing says what to run. Pure.
 */
export function planProcess(
  { process: asked }: PodSpec,
  found: FoundImage | undefined,
): ProcessPlan | undefined {
  const image = found?.type === "disk" ? undefined : found;
  if (asked === undefined && image === undefined) return undefined;
  const config = image?.config ?? noConfig;
  const command = asked?.args ?? (asked?.entrypoint === undefined ? config.command : []);
  const args = [...(asked?.entrypoint ?? config.entrypoint), ...command];
  if (args.length === 0 || args[0] === "")
    throw new PodnetError("INVALID_ARGUMENT", "Nothing says which program the pod is to run", {
      field: "process.args",
      hint:
        image === undefined
          ? "Give process.args"
          : "The image has neither an entrypoint nor a command: write one after its name",
    });
  const user = asked?.user ?? config.user;
  const init = inits.test(args[0] ?? "");
  const usual = init ? ofInit : defaults;
  return {
    args,
    // By this variable systemd knows that the machine is not its own.
    env: environmentOf(
      [...(init ? ["container=podnet"] : []), ...config.environment],
      asked?.env ?? {},
    ),
    ...(init ? { init } : {}),
    ...(user === "" ? {} : { user }),
    workdir: asked?.workdir ?? absolute(config.directory),
    terminal: asked?.terminal ?? false,
    stdin: asked?.stdin ?? false,
    stopSignal: asked?.stopSignal ?? signalOf(config.stopSignal, usual.stopSignal),
    stopTimeoutMs: asked?.stopTimeoutMs ?? usual.stopTimeoutMs,
    ...(image === undefined ? {} : { digest: image.digest }),
  };
}

const absolute = (directory: string): string =>
  directory.startsWith("/") ? directory : `/${directory}`;

const signalOf = (text: string, usual: number): number =>
  text === "" ? usual : signalFromText(text, "boot.image");

/** The image's variables with those asked for over them. */
export function environmentOf(
  ofImage: readonly string[],
  asked: Readonly<Record<string, string>>,
): ProcessPlan["env"] {
  const all = new Map<string, string>();
  for (const text of ofImage) {
    const at = text.indexOf("=");
    if (at > 0) all.set(text.slice(0, at), text.slice(at + 1));
  }
  for (const [key, value] of Object.entries(asked)) all.set(key, value);
  return Array.from(all, ([env, value]) => ({ env, value }));
}

/**
 * The spec that an image stands for: its files are the first disk, which is the guest's root, or
 * which boots by itself. Pure.
 */
export function onImage(spec: PodSpec, image: FoundImage | undefined): PodSpec {
  if (image === undefined) return spec;
  const { boot } = spec;
  if (image.type === "disk") {
    const { diskFormat: format = "raw" } = image.config;
    const disk = { path: image.file, format, readOnly: false };
    return { ...spec, boot: { ...boot, kernel: "none", disks: [disk, ...boot.disks] } };
  }
  const root = { path: image.file, format: "raw", readOnly: true } as const;
  const cmdline = ["podnet.root=vda", boot.cmdline].filter((word) => word !== "").join(" ");
  return { ...spec, boot: { ...boot, cmdline, disks: [root, ...boot.disks] } };
}
