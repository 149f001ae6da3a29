import { isErrorCode, type ErrorCode, PodnetError } from "../../core/errors.ts";
import { type Digest, parseDigest } from "../archive/digest.ts";
import type { ImageConfig } from "../archive/image.ts";
import { Json } from "../archive/json.ts";
import type { DiskFormat } from "../archive/recognize.ts";
import type { ImageLimits } from "../layers/merge-layers.ts";
import type { RegistryAccess } from "../registry/registry-client.ts";
import type { ImageReference } from "../reference.ts";

/** What podnetd has a worker do; each message is a line of JSON. */
export interface ImageJob {
  readonly architecture: string;
  readonly limits: ImageLimits;
  readonly source:
    | {
        /** An archive, as the descriptor after standard error. */
        readonly kind: "archive";
        readonly bytes: number;
        /** Which of several images. */
        readonly name?: string;
      }
    | {
        readonly kind: "registry";
        readonly reference: ImageReference;
        readonly access: RegistryAccess;
      };
}

/** podnetd's answer to `wants`: the blobs that it has put into the worker's directory. */
export interface HadBlobs {
  readonly had: readonly string[];
}

const stages = ["waiting", "reading", "fetching", "converting"] as const;
export type Stage = (typeof stages)[number];

/** How far a stage is. */
export interface StageProgress {
  readonly stage: Stage;
  readonly done: number;
  /** 0 where it is not known. */
  readonly all: number;
}

/** What a worker has made: the file of this name in its directory. */
export interface MadeImage {
  readonly digest: Digest;
  readonly names: readonly string[];
  readonly config: ImageConfig;
  /** The file is a disk with a system of its own; absent: it is the root of pods. */
  readonly disk?: DiskFormat;
}

/** Of a disk: what starts in it is its own matter. */
export const noConfig: ImageConfig = {
  architecture: "",
  entrypoint: [],
  command: [],
  environment: [],
  directory: "",
  user: "",
  stopSignal: "",
  exposedPorts: [],
  labels: {},
};

export const madeFile = "image";

/** What a worker says. */
export type WorkerMessage =
  | { readonly progress: StageProgress }
  /** Layers that it would fetch. */
  | { readonly wants: readonly Digest[] }
  | { readonly made: MadeImage }
  | { readonly failed: PodnetError };

/** A line may be as long as a configuration. */
export const longestMessage = 16 * 2 ** 20;

/** Reads a worker's line. Throws `IMAGE_UNREADABLE` for what no worker says. */
export function parseWorkerMessage(line: string): WorkerMessage {
  const json = Json.of(Buffer.from(line), "The message");
  const progress = json.get("progress");
  if (progress !== undefined) {
    const stage = stages.find((each) => each === progress.need("stage").text) ?? "reading";
    return {
      progress: { stage, done: progress.need("done").count, all: progress.need("all").count },
    };
  }
  const wants = json.get("wants");
  if (wants !== undefined) return { wants: wants.texts.map(parseDigest) };
  const made = json.get("made");
  if (made !== undefined)
    return {
      made: {
        digest: parseDigest(made.need("digest").text),
        names: made.need("names").texts,
        config: configFrom(made.need("config")),
        ...diskFrom(made.get("disk")?.text),
      },
    };
  return { failed: errorFrom(json.need("failed")) };
}

function diskFrom(text: string | undefined): Pick<MadeImage, "disk"> {
  if (text === undefined) return {};
  return { disk: text === "qcow2" ? "qcow2" : "raw" };
}

function configFrom(json: Json): ImageConfig {
  const text = (name: string): string => json.need(name).text;
  const texts = (name: string): readonly string[] => json.need(name).texts;
  return {
    architecture: text("architecture"),
    entrypoint: texts("entrypoint"),
    command: texts("command"),
    environment: texts("environment"),
    directory: text("directory"),
    user: text("user"),
    stopSignal: text("stopSignal"),
    exposedPorts: texts("exposedPorts"),
    labels: Object.fromEntries(
      json.need("labels").entries.map(([name, value]) => [name, value.text]),
    ),
  };
}

function errorFrom(json: Json): PodnetError {
  const code = json.need("code").text;
  const known: ErrorCode = isErrorCode(code) ? code : "INTERNAL";
  const [hint, field] = [json.get("hint")?.text, json.get("field")?.text];
  return new PodnetError(known, json.need("message").text, {
    ...(hint === undefined ? {} : { hint }),
    ...(field === undefined ? {} : { field }),
  });
}

/** An error as a worker sends it. */
export const failedLine = ({ code, message, hint, field }: PodnetError): object => ({
  failed: { code, message, hint, field },
});
