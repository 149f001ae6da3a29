import type { LogsRequest } from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import type { MainProcessAccess } from "../../../guest-init/channel/main-process.ts";
import type { ProcessEnd } from "../../../guest-init/protocol/main-process.ts";
import type { Output } from "../../api/process/process-stream.ts";
import type { FollowedProcess } from "../../pods/process/followed-process.ts";
import type { PodRow } from "../../pods/store/pod-row.ts";
import type { Asking } from "../routes.ts";

/**
 * A container of a pod: its main process, where the pod has one container, or one of those in its
 * machine. Methods look at how it is now.
 */
export interface Container {
  /** As docker's ids are: 64 hexadecimal digits. */
  readonly id: string;
  readonly name: string;
  readonly row: PodRow;
  readonly facts: ContainerFacts;
  readonly course: Course;
  /** How a program runs in it. */
  readonly place: ExecPlace;
  start(context: Asking): Promise<void>;
  /** Ends it within this time, unless given as long as hyperd would wait. */
  stop(ms: number | undefined, signal: AbortSignal): Promise<void>;
  kill(signal: number): Promise<void>;
  /** Gives it another name, which no other container of its pod has. */
  rename(name: string): Promise<void>;
  /** Its process, if it has been started. Throws where that cannot be reached. */
  held(): Attachable | undefined;
  /** Its process once it has been started; undefined if it is removed before. */
  next(signal: AbortSignal): Promise<Attachable | undefined>;
  /** Resolves when it ends; undefined for one that does not run. */
  over(): Promise<unknown> | undefined;
  /** The lines that are kept of its output, and were asked for. */
  kept(wanted: Pick<LogsRequest, "latestStart" | "since" | "tailLines">): Output[];
}

/** A process with output, input and a terminal. */
export type Attachable = Pick<FollowedProcess, "attach"> & {
  readonly access: MainProcessAccess;
  /** Resolves when there is access, for one that has just been started. Absent: there is. */
  readonly reached?: Promise<void>;
};

/** What of a container does not change while it runs. */
interface ContainerFacts {
  readonly image: string;
  readonly imageId: string;
  readonly workdir: string;
  readonly user: string;
  readonly terminal: boolean;
  readonly commands: readonly string[];
  readonly args: readonly string[];
  readonly variables: readonly string[];
  readonly labels: Readonly<Record<string, string>>;
  readonly volumes: readonly MountedVolume[];
}

/** A volume of the pod in a container. */
export interface MountedVolume {
  readonly name: string;
  readonly path: string;
  readonly readOnly: boolean;
}

export type Course =
  | { readonly kind: "pending" }
  | { readonly kind: "running"; readonly startedMs: number }
  | {
      readonly kind: "ended";
      readonly startedMs: number;
      readonly endedMs: number;
      readonly end: ProcessEnd | undefined;
    };

export interface ExecPlace {
  /** In this container of the machine; absent: alongside the main process. */
  readonly container?: string;
  readonly env: readonly { readonly env: string; readonly value: string }[];
  readonly workdir: string;
  readonly user: string;
}
