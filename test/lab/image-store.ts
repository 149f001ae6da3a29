import { existsSync, readdirSync, readFileSync, rmdirSync, rmSync } from "node:fs";
import path from "node:path";
import { systemClock } from "../../core/clock.ts";
import type { ImagesConfig } from "../../daemon/config/images.ts";
import { ImageJobs } from "../../daemon/images/image-jobs.ts";
import { openLog } from "../../linux/log.ts";
import { Images } from "../../daemon/images/images.ts";
import { Database } from "../../daemon/store/database.ts";
import {
  type CgroupLayout,
  chooseCgroups,
  parseCgroupMounts,
} from "../../hypervisor/jail/cgroup-layout.ts";
import type { Credential } from "../../images/registry/auth-file.ts";
import type { StageProgress } from "../../images/worker/messages.ts";
import { type ImagesProgram, imagesProgram } from "../../images/worker/program.ts";

const checkout = path.resolve(import.meta.dirname, "../..");
const mounts = parseCgroupMounts(readFileSync("/proc/self/mountinfo", "utf8"));
const memoryMib = 512;
export const workerUid = 2_000_065_534;

/** Where the control groups of workers are made whose stores are in directories below `top`. */
function layoutOf(top: string): CgroupLayout {
  const files = { controllers: () => undefined, has: existsSync };
  const layout = chooseCgroups(mounts, files, path.basename(top));
  if ("missing" in layout) throw new Error(`No cgroups: ${layout.missing.join(" ")}`);
  return layout;
}

const directoriesOf = (layout: CgroupLayout): readonly string[] =>
  layout.version === 2 ? [layout.directory] : [layout.memory, layout.pids];

/** Removes all stores below a directory, with what their workers' control groups were made in. */
export function removeImageStores(top: string): void {
  for (const each of directoriesOf(layoutOf(top))) if (existsSync(each)) rmdirSync(each);
  rmSync(top, { recursive: true, force: true });
}

const silent = (): void => {};
export const never = new AbortController().signal;

export interface ImageStoreOptions extends Partial<ImagesConfig> {
  readonly program?: ImagesProgram;
  readonly memoryMib?: number;
}

/** podnetd's store of images with its jobs, in a directory, after podnetd's start. */
export async function openImageStore(directory: string, options: ImageStoreOptions = {}) {
  const { program = imagesProgram(checkout, process.execPath), ...given } = options;
  const cgroups = layoutOf(path.dirname(directory));
  const db = Database.openIn(directory);
  const config: ImagesConfig = {
    directory: path.join(directory, "image-store"),
    registries: ["localhost:5001"],
    insecure: [],
    ca: undefined,
    authFile: undefined,
    mostBytes: 2 ** 30,
    mostImageBytes: 2 ** 30,
    mostLayerBytes: 2 ** 30,
    evict: false,
    jobMs: 60_000,
    ...given,
  };
  const images = new Images({
    db,
    directory: config.directory,
    registry: config.registries[0],
    mostBytes: config.mostBytes,
    evict: config.evict,
    holders: () => [],
    clock: systemClock,
  });
  images.recover();
  const jobs = new ImageJobs({
    db,
    images,
    config,
    worker: { program, jail: { uid: workerUid, cgroups, memoryMib: given.memoryMib ?? memoryMib } },
    architecture: "amd64",
    clock: systemClock,
    log: openLog({ component: "images" }),
  });
  await jobs.recover();
  /** Directories and control groups of jobs. */
  const left = (): readonly string[] => [
    ...namesIn(path.join(config.directory, "jobs")),
    ...directoriesOf(cgroups)
      .flatMap(namesIn)
      .filter((name) => name.startsWith("images-")),
  ];
  const pull = (
    name: string,
    reports: (progress: StageProgress) => void = silent,
    credential?: Credential,
  ) => jobs.pull(name, { policy: "always", mayPullFromAll: true, credential }, reports, never);
  const importIt = (
    source: Parameters<ImageJobs["import"]>[0],
    name: string,
    signal: AbortSignal = never,
  ) => jobs.import(source, { name, choose: "" }, silent, signal);
  return { db, images, jobs, left, pull, importIt, directory, config };
}

const namesIn = (directory: string): readonly string[] =>
  existsSync(directory) ? readdirSync(directory) : [];
