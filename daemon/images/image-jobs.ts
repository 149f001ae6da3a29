import { createHash, randomBytes } from "node:crypto";
import {
  chmodSync,
  closeSync,
  constants,
  fstatSync,
  fsyncSync,
  openSync,
  renameSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { abortable } from "../../core/aborting.ts";
import type { Clock } from "../../core/clock.ts";
import { perform } from "../../core/effect.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { Slots } from "../../core/slots.ts";
import type { CgroupPlan } from "../../hypervisor/driver.ts";
import { lookAtOpen } from "../../hypervisor/disks/image-file.ts";
import { makeCgroups } from "../../hypervisor/jail/cgroup.ts";
import { endWorker } from "../../hypervisor/process/worker-program.ts";
import { readRegular } from "../../linux/files/regular-file.ts";
import type { Log } from "../../linux/log.ts";
import type { Digest } from "../../images/archive/digest.ts";
import type { DiskFormat } from "../../images/archive/recognize.ts";
import { parseReference, referenceText, withRegistry } from "../../images/reference.ts";
import { type Credential, parseAuthFile } from "../../images/registry/auth-file.ts";
import {
  type ImageJob,
  madeFile,
  type MadeImage,
  type StageProgress,
} from "../../images/worker/messages.ts";
import type { ImagesConfig } from "../config/images.ts";
import type { Database } from "../store/database.ts";
import type { Images, StoredImageRow } from "./images.ts";
import { type ImportSource, openSource } from "./import-source.ts";
import { makeJobDirectory, removeJobDirectory, takeFile } from "./job-directory.ts";
import { LayerCache } from "./layer-cache.ts";
import { noRoom } from "./no-room.ts";
import { runWorker, workerCgroups, type WorkerHost } from "./run-worker.ts";
import {
  deleteJob,
  type ImageJobRow,
  listJobs,
  putImage,
  putJob,
  putName,
  putWorker,
} from "./store.ts";

/** Pulls and imports at a time, and those that may wait. */
const jobsAtATime = 2;
const mostWaiting = 32;

export interface ImageJobsParts {
  readonly db: Database;
  readonly images: Images;
  readonly config: ImagesConfig;
  readonly worker: WorkerHost;
  /** As Go names it. */
  readonly architecture: string;
  readonly clock: Clock;
  readonly log: Log;
}

/** When a registry is asked. */
export const pullPolicies = ["missing", "always", "never"] as const;
type PullPolicy = (typeof pullPolicies)[number];

export interface PullOptions {
  readonly policy: PullPolicy;
  /** The caller is an administrator. */
  readonly mayPullFromAll: boolean;
  /** The caller's own, in the place of podnetd's. It is in memory alone, until the pull ends. */
  readonly credential?: Credential | undefined;
}

type Report = (progress: StageProgress) => void;

const mostEntries = 500_000;
const mostAuthBytes = 2 ** 20;
const mostCaBytes = 4 * 2 ** 20;
/** Where a job does its work. */
interface Place extends Omit<ImageJobRow, "worker"> {
  /** Its worker's. */
  readonly directory: string;
}

/** A pull that several callers wait for. */
interface SharedPull {
  readonly done: Promise<StoredImageRow>;
  readonly reports: Set<Report>;
  readonly stop: AbortController;
  last: StageProgress | undefined;
}

/**
 * Pulls and imports of images. A job's row is committed before its directory and control groups are
 * made, and deleted after them; its worker is recorded before it gets anything to do. `recover`
 * ends workers of a podnetd that was killed, and removes what is left of their jobs.
 */
export class ImageJobs implements AsyncDisposable {
  readonly #parts: ImageJobsParts;
  readonly #layers: LayerCache;
  readonly #pulls = new Map<string, SharedPull>();
  readonly #ended = new AbortController();
  readonly #running = new Set<Promise<unknown>>();
  readonly #slots = new Slots(jobsAtATime);

  constructor(parts: ImageJobsParts) {
    this.#parts = parts;
    const { directory, mostLayerBytes } = parts.config;
    this.#layers = new LayerCache(join(directory, "layers"), mostLayerBytes);
  }

  /** Before anything else is asked of it. */
  async recover(): Promise<void> {
    const { db, log } = this.#parts;
    for (const job of listJobs(db))
      try {
        await this.#removeJob(job);
      } catch (err) {
        // Pods do not wait for it: its row stays, and the next start tries again.
        log.warn({ job: job.id, err }, "What an image's job left cannot be removed yet");
      }
  }

  /**
   * Pulls an image from its registry, once for all who ask at the same time. Throws
   * `IMAGE_NOT_FOUND`, `REGISTRY_UNREACHABLE`, `REGISTRY_DENIED`, `REGISTRY_FAILED`,
   * `PERMISSION_DENIED`, and as an import does.
   */
  async pull(
    asked: string,
    { policy, mayPullFromAll, credential }: PullOptions,
    report: Report,
    signal: AbortSignal,
  ): Promise<StoredImageRow> {
    const { images, config } = this.#parts;
    const reference = withRegistry(parseReference(asked), config.registries[0]);
    if (policy !== "always") {
      const found = tryFind(images, asked);
      if (found !== undefined) return found;
      if (policy === "never") return images.findImage(asked);
    }
    const { registry = "" } = reference;
    if (!mayPullFromAll && !config.registries.includes(registry))
      throw new PodnetError(
        "PERMISSION_DENIED",
        `Only an administrator may pull from ${printable(registry)}`,
        { field: "reference", hint: "Have the registry added to images.registries" },
      );
    // Callers share a pull only if they are the same to the registry.
    const key = `${referenceText(reference)} ${reference.digest} ${markOf(credential)}`;
    const pull = this.#pulls.get(key) ?? this.#startPull(key, reference, credential);
    pull.reports.add(report);
    if (pull.last !== undefined) report(pull.last);
    try {
      return await abortable(pull.done, signal, "The pull");
    } finally {
      pull.reports.delete(report);
      // A pull goes on as long as one of its callers waits.
      if (pull.reports.size === 0) pull.stop.abort();
    }
  }

  #startPull(
    key: string,
    reference: ReturnType<typeof parseReference>,
    credential: Credential | undefined,
  ): SharedPull {
    const { config, architecture } = this.#parts;
    const stop = new AbortController();
    const reports = new Set<Report>();
    const job = (): ImageJob => ({
      architecture,
      limits: { entries: mostEntries, bytes: config.mostImageBytes },
      source: { kind: "registry", reference, access: this.#accessTo(reference, credential) },
    });
    const shared: Pick<SharedPull, "last" | "reports" | "stop"> = {
      reports,
      stop,
      last: undefined,
    };
    const report: Report = (progress) => {
      shared.last = progress;
      for (const each of reports) each(progress);
    };
    // What was asked for by a digest keeps it as its name.
    const { digest, tag } = reference;
    const name = referenceText({ ...reference, tag: digest === undefined ? tag : undefined });
    const done = this.#job(
      (place, signal) =>
        this.#make({ job: job(), ...place, fd: undefined, report, signal }, [name]),
      stop.signal,
      report,
    ).finally(() => this.#pulls.delete(key));
    const pull: SharedPull = Object.assign(shared, { done });
    pull.done.catch(() => {});
    this.#pulls.set(key, pull);
    return pull;
  }

  #accessTo(
    { registry = "", repository }: ReturnType<typeof parseReference>,
    given: Credential | undefined,
  ) {
    const { insecure, ca, authFile } = this.#parts.config;
    const read = (file: string, most: number): Buffer => readRegular(file, most, { follow: true });
    return {
      registry,
      insecure: insecure.includes(registry),
      ca: ca === undefined ? undefined : read(ca, mostCaBytes).toString("utf8"),
      credential:
        given !== undefined || authFile === undefined
          ? given
          : parseAuthFile(read(authFile, mostAuthBytes), registry, repository),
    };
  }

  /**
   * Imports an archive or a directory: an OCI layout, what docker save writes, or a root directory.
   * Throws `IMAGE_MISSING`, `IMAGE_UNREADABLE`, `UNSUPPORTED`, `LIMIT_REACHED`,
   * `INVALID_ARGUMENT`, `STATE_UNWRITABLE`, `CANCELLED`, `DEADLINE_EXCEEDED`.
   */
  import(
    source: ImportSource,
    { name, choose }: { readonly name: string; readonly choose: string },
    report: Report,
    signal: AbortSignal,
  ): Promise<StoredImageRow> {
    const { db, config, worker, architecture } = this.#parts;
    const given = name === "" ? undefined : parseReference(name, "name");
    if (given?.digest !== undefined) throw noDigest();
    return this.#job(
      async (place, ended) => {
        const fd = await openSource(source, {
          copy: join(dirname(place.directory), "source"),
          mostBytes: config.mostImageBytes,
          report,
          packing: {
            host: worker,
            directory: place.directory,
            cgroups: place.cgroups,
            started: (record) => putWorker(db, place.id, record),
            signal: ended,
          },
        });
        try {
          const job: ImageJob = {
            architecture,
            limits: { entries: mostEntries, bytes: config.mostImageBytes },
            source: {
              kind: "archive",
              bytes: fstatSync(fd).size,
              ...(choose === "" ? {} : { name: choose }),
            },
          };
          const names = given === undefined ? undefined : [referenceText(given)];
          return await this.#make({ job, ...place, fd, report, signal: ended }, names);
        } finally {
          closeSync(fd);
        }
      },
      signal,
      report,
    );
  }

  /** Has a worker make the file, and stores it. */
  async #make(
    given: {
      readonly job: ImageJob;
      readonly id: string;
      readonly directory: string;
      readonly cgroups: readonly CgroupPlan[];
      readonly fd: number | undefined;
      readonly report: Report;
      readonly signal: AbortSignal;
    },
    names: readonly string[] | undefined,
  ): Promise<StoredImageRow> {
    const { db, config, worker } = this.#parts;
    const { job, id, directory, cgroups, fd, report, signal } = given;
    const fileBytes = this.#room();
    let lent: readonly Digest[] = [];
    let wanted: readonly Digest[] = [];
    const work = (isLending: boolean): Promise<MadeImage> =>
      runWorker({
        host: worker,
        job,
        directory,
        fd,
        fileBytes: Math.max(fileBytes, config.mostImageBytes),
        allBytes: fileBytes + config.mostImageBytes,
        progress: report,
        cgroups,
        started: (record) => putWorker(db, id, record),
        lend: (digests) => {
          wanted = digests;
          lent = isLending ? this.#layers.lend(digests, directory) : [];
          return lent;
        },
        signal,
      });
    const made = await work(true).catch((thrown: unknown) => {
      if (lent.length === 0 || !isPodnetError(thrown, "IMAGE_UNREADABLE")) throw thrown;
      // A layer that was kept may be damaged: all are fetched anew.
      for (const digest of lent) this.#layers.drop(digest);
      this.#makeDirectory(directory);
      return work(false);
    });
    const image = this.#store(made, join(directory, madeFile), names ?? made.names);
    this.#layers.keep(wanted, directory);
    return image;
  }

  /** Bytes that one more image may have: all but what images that cannot go have. */
  #room(): number {
    const { images, config } = this.#parts;
    const taken = images.list().filter(({ file }) => !config.evict || images.isHeld(file));
    const room = config.mostBytes - taken.reduce((sum, { bytes }) => sum + bytes, 0);
    if (room > 0) return room;
    throw new PodnetError("LIMIT_REACHED", "The images of this host take all the room they may", {
      hint: "podnet image prune removes images without a name; or raise images.max_mib",
    });
  }

  #store(
    { digest, config, disk }: MadeImage,
    made: string,
    names: readonly string[],
  ): StoredImageRow {
    const { db, images, clock } = this.#parts;
    const fd = perform("file", "open made image", () => {
      if (!takeFile(made))
        throw new PodnetError("INTERNAL", "The program podnet-images made no plain file");
      return openSync(made, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    });
    try {
      const { size } = fstatSync(fd);
      if (disk !== undefined) refuseBadDisk(fd, disk);
      const known = tryFind(images, digest);
      if (known === undefined) {
        images.makeRoom(size);
        const nowMs = clock.now();
        const row = {
          digest,
          type: disk === undefined ? "root" : "disk",
          config: disk === undefined ? config : { ...config, diskFormat: disk },
          bytes: size,
          createdMs: nowMs,
          usedMs: nowMs,
        } as const;
        putImage(db, { ...row, state: "storing" });
        perform("file", "store image", () => {
          chmodSync(made, 0o600);
          fsyncSync(fd);
          renameSync(made, images.fileOf(digest));
        });
        db.transaction(() => {
          putImage(db, { ...row, state: "ready" });
          for (const name of usable(names)) putName(db, name, digest);
        });
      } else
        db.transaction(() => {
          for (const name of usable(names)) putName(db, name, digest);
        });
    } finally {
      closeSync(fd);
    }
    return images.findImage(digest);
  }

  /** Does work in a directory of its own, when it is its turn. */
  async #job<T>(
    work: (place: Place, signal: AbortSignal) => Promise<T>,
    signal: AbortSignal,
    report: Report,
  ): Promise<T> {
    const { config } = this.#parts;
    const limit = AbortSignal.timeout(config.jobMs);
    const ended = AbortSignal.any([signal, this.#ended.signal, limit]);
    const job = async (): Promise<T> => {
      report({ stage: "waiting", done: 0, all: 0 });
      if (this.#slots.waiting >= mostWaiting)
        throw new PodnetError("LIMIT_REACHED", "Too many pulls and imports wait already", {
          hint: "Try again later",
        });
      using _slot = await this.#slots.take(ended, "The work on the image");
      try {
        return await this.#inPlace(work, ended);
      } catch (thrown) {
        throw noRoom(thrown);
      }
    };
    const running = job();
    this.#running.add(running);
    try {
      return await running;
    } finally {
      this.#running.delete(running);
    }
  }

  async #inPlace<T>(
    work: (place: Place, signal: AbortSignal) => Promise<T>,
    signal: AbortSignal,
  ): Promise<T> {
    const { db, clock, worker } = this.#parts;
    const id = randomBytes(8).toString("hex");
    const cgroups = workerCgroups(worker, id);
    putJob(db, { id, cgroups }, clock.now());
    try {
      const directory = join(this.#directoryOf(id), "work");
      this.#makeDirectory(directory);
      makeCgroups(cgroups);
      return await work({ id, directory, cgroups }, signal);
    } finally {
      // (Its worker has ended.)
      await this.#removeJob({ id, cgroups, worker: undefined });
    }
  }

  #makeDirectory(directory: string): void {
    const uid = this.#parts.worker.jail?.uid;
    perform("file", "make job's directory", () => makeJobDirectory(directory, uid));
  }

  #directoryOf(id: string): string {
    return join(this.#parts.config.directory, "jobs", id);
  }

  async #removeJob({ id, cgroups, worker }: ImageJobRow): Promise<void> {
    await endWorker("podnet-images", worker, cgroups);
    perform("file", "remove job's directory", () => removeJobDirectory(this.#directoryOf(id)));
    deleteJob(this.#parts.db, id);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#ended.abort();
    await Promise.allSettled(this.#running);
  }
}

/**
 * A disk names no other file of the host, and is whole: what a machine would be refused for is
 * refused now.
 */
function refuseBadDisk(fd: number, format: DiskFormat): void {
  const found = lookAtOpen(fd, format);
  if (found.kind !== "unreadable") return;
  throw new PodnetError("IMAGE_UNREADABLE", `The disk ${found.why}`, {
    hint: "Copy it again; to merge it with its backing file: qemu-img convert -O qcow2 OLD NEW",
  });
}

function tryFind(images: Images, reference: string): StoredImageRow | undefined {
  try {
    return images.findImage(reference);
  } catch (thrown) {
    if (isPodnetError(thrown, "IMAGE_NOT_FOUND")) return undefined;
    throw thrown;
  }
}

/** Tells credentials apart without having them. */
const markOf = (credential: Credential | undefined): string =>
  credential === undefined
    ? ""
    : createHash("sha256").update(JSON.stringify(credential)).digest("hex");

/** Names that podnet can use; an archive may have others, such as a tag alone. */
const usable = (names: readonly string[]): readonly string[] =>
  names.flatMap((name) => {
    if (!/[/:@]/.test(name)) return [];
    try {
      return [referenceText(parseReference(name))];
    } catch {
      return [];
    }
  });

const noDigest = (): PodnetError =>
  new PodnetError("INVALID_ARGUMENT", "A name that an image is given has no digest", {
    field: "name",
    hint: "Write NAME:TAG",
  });
