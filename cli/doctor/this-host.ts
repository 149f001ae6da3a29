import { execFile } from "node:child_process";
import { open, readFile, stat, statfs } from "node:fs/promises";
import { connect } from "node:net";
import type { TargetOptions } from "../target.ts";
import type { Host } from "./host.ts";

/** A program that hangs, or prints without end, does not hold the doctor up. */
const limits = { timeout: 10_000, maxBuffer: 8 << 20, killSignal: "SIGKILL" } as const;
const connectMs = 2000;
/** Of a file; those that are read have some kB. */
const readBytes = 1 << 20;

const errnoOf = (thrown: unknown): string =>
  (thrown as NodeJS.ErrnoException | undefined)?.code ?? "unknown";

/** This host, looked at and never changed. */
export const thisHost: Host = {
  async read(path) {
    try {
      return (await readFile(path, "utf8")).slice(0, readBytes);
    } catch {
      return null;
    }
  },
  async openError(path) {
    try {
      await (await open(path, "r+")).close();
      return null;
    } catch (thrown) {
      return errnoOf(thrown);
    }
  },
  async stat(path) {
    try {
      const found = await stat(path);
      const kind = found.isSocket()
        ? "socket"
        : found.isDirectory()
          ? "directory"
          : found.isFile()
            ? "file"
            : "other";
      return { mode: found.mode & 0o7777, uid: found.uid, gid: found.gid, kind };
    } catch {
      return null;
    }
  },
  async room(path) {
    try {
      const { bavail, blocks, bsize } = await statfs(path);
      const mib = (count: number): number => Math.floor((count * bsize) / 2 ** 20);
      return { freeMib: mib(bavail), totalMib: mib(blocks) };
    } catch {
      return null;
    }
  },
  run: ([program = "", ...args]) =>
    new Promise((resolve) => {
      const env = { ...process.env, LC_ALL: "C", PATH: searched(process.env["PATH"]) };
      execFile(program, args, { ...limits, env }, (error, stdout, stderr) => {
        if (error !== null && ["ENOENT", "EACCES"].includes(errnoOf(error))) resolve(null);
        else {
          const code = error === null ? 0 : typeof error.code === "number" ? error.code : null;
          resolve({ code, stdout, stderr });
        }
      });
    }),
  connectError: (host, port) =>
    new Promise((resolve) => {
      const socket = connect({ host, port, timeout: connectMs });
      const done = (answer: string | null): void => {
        socket.destroy();
        resolve(answer);
      };
      socket
        .once("connect", () => done(null))
        .once("timeout", () => done("ETIMEDOUT"))
        .once("error", (error) => done(errnoOf(error)));
    }),
  self: () =>
    Promise.resolve({
      uid: process.getuid?.() ?? 0,
      groups: process.getgroups?.() ?? [],
      nowMs: Date.now(),
    }),
};

/** Where a user's shell does not look for programs of the administrator, we do. */
const searched = (path = "/usr/bin:/bin"): string => `${path}:/usr/local/sbin:/usr/sbin:/sbin`;

/** This host, of a caller that may have named podnetd's socket. */
export function hostOfCaller(
  { socket, url }: TargetOptions,
  env: Readonly<Record<string, string | undefined>>,
): Host {
  const isByUrl = (url ?? env["PODNET_URL"] ?? "") !== "";
  const named = socket ?? (isByUrl ? "" : (env["PODNET_SOCKET"] ?? ""));
  if (named === "") return thisHost;
  return { ...thisHost, self: async () => ({ ...(await thisHost.self()), socket: named }) };
}
