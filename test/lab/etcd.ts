import { execFile } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { isPodnetError } from "../../core/errors.ts";
import type { EtcdOptions } from "../../etcd/client.ts";
import { makeCertificates } from "../unit/api/fixtures/certificates.ts";
import { type EtcdMember, Member, program, type Site } from "./etcd-member.ts";
import type { Machine } from "./lab.ts";

const exec = promisify(execFile);

export interface EtcdLabOptions {
  /** 1 unless given; 3 for one that outlives any of its members. */
  readonly members?: 1 | 3;
  /** Certificates for both ends and between members; clients without one are refused. */
  readonly tls?: boolean;
  /** One a member; loopback addresses of this process's own unless given. */
  readonly addresses?: readonly string[];
  /** Where each member runs; here unless given. */
  readonly machines?: readonly Machine[];
  /** More words for etcd's own command line. */
  readonly words?: readonly string[];
}

/** A real etcd, of one member or three; ends with the sandbox at the latest. */
export interface EtcdLab extends AsyncDisposable {
  readonly members: readonly EtcdMember[];
  /** How a client gets in; with the root user's password once there are users. */
  readonly client: EtcdOptions;
  /** Another program's view: `etcdctl` against all members; resolves to its standard output. */
  etcdctl(...words: readonly string[]): Promise<string>;
  /** The member that leads now. */
  leader(): Promise<EtcdMember>;
  /** From now on whoever comes must be a user: root, with this password. */
  requirePassword(password: string): Promise<void>;
  /** Returns when every member that runs answers. */
  ready(): Promise<void>;
  /** Compacts up to now and gives the space back. */
  compactAll(): Promise<void>;
}

let labs = 0;
/**
 * Loopback is 127.0.0.0/8: a part for each process, and of that one for each lab, so that none
 * meets another's.
 */
const ownAddress = (lab: number, index: number): string =>
  `127.${128 + ((process.pid >> 8) & 127)}.${process.pid & 255}.${lab * 4 + index + 1}`;

/**
 * What members come to each other from, which their certificates must name: on loopback its first
 * address.
 */
async function sources(machines: readonly Machine[] | undefined): Promise<string[]> {
  if (machines === undefined) return ["127.0.0.1"];
  const shown = await Promise.all(
    machines.map((machine) => machine.run("ip", "-o", "addr", "show")),
  );
  return shown.flatMap((text) =>
    Array.from(text.matchAll(/ inet6? ([^/ ]+)/g), ([, one = ""]) => one),
  );
}

/** Whether a call that failed may have been done: its answer was lost. */
export const isUncertain = (thrown: unknown): boolean =>
  isPodnetError(thrown, "ETCD_UNREACHABLE") && thrown.details["uncertain"] === true;

/** Starts it and waits until it answers. */
export async function startEtcd(options: EtcdLabOptions = {}): Promise<EtcdLab> {
  if (process.env["PODNET_SANDBOX"] !== "1")
    throw new Error("etcd listens; run this below scripts/sandbox");
  if (!existsSync(program("etcd"))) throw new Error("There is no etcd; run scripts/unpack-etcd");
  const lab = labs++;
  const count = options.members ?? 1;
  const names = ["a", "b", "c"].slice(0, count);
  const addresses = options.addresses ?? names.map((_, index) => ownAddress(lab, index));
  const directory = mkdtempSync(path.join(tmpdir(), "etcd-"));
  const secrets = options.tls === true ? path.join(directory, "tls") : undefined;
  let credentials: EtcdOptions["credentials"];
  let tls: EtcdOptions["tls"];
  if (secrets !== undefined) {
    mkdirSync(secrets);
    const called = (await sources(options.machines)).map((address) => `IP:${address}`);
    called.push(...addresses.map((address) => `IP:${address}`));
    const { ca, client } = await makeCertificates(secrets, called.join());
    tls = { ca, ...client };
  }
  const scheme = secrets === undefined ? "http" : "https";
  const cluster = names.map((name, i) => `${name}=${scheme}://${addresses[i]}:2380`).join();

  const ctl = async (endpoints: string, words: readonly string[]): Promise<string> => {
    const files = ["cacert=ca.crt", "cert=client.crt", "key=client.key"].map((pair) => {
      const [word, file = ""] = pair.split("=");
      return `--${word}=${path.join(secrets ?? "", file)}`;
    });
    const argv = [
      program("etcdctl"),
      `--endpoints=${endpoints}`,
      ...(secrets === undefined ? [] : files),
      ...(credentials === undefined ? [] : [`--user=${credentials.user}:${credentials.password}`]),
      ...words,
    ] as [string, ...string[]];
    const machine = options.machines?.[0];
    return machine === undefined
      ? (await exec(argv[0], argv.slice(1))).stdout
      : await machine.run(...argv);
  };

  const site: Site = { directory, scheme, cluster, words: options.words ?? [], secrets };
  const members = names.map(
    (name, index) =>
      new Member(name, addresses[index] as string, site, options.machines?.[index], ctl),
  );
  const endpoints = members.map(({ endpoint }) => endpoint);
  const etcdctl = (...words: readonly string[]): Promise<string> => ctl(endpoints.join(), words);
  const end = async (): Promise<void> => {
    await Promise.all(members.map((member) => member.kill()));
    rmSync(directory, { recursive: true, force: true });
  };
  const ready = async (): Promise<void> => {
    await Promise.all(members.filter(({ running }) => running).map((member) => member.ready()));
  };
  for (const member of members) member.start();
  try {
    await ready();
  } catch (error) {
    await end();
    throw error;
  }
  return {
    members,
    get client() {
      return {
        endpoints,
        ...(tls === undefined ? {} : { tls }),
        ...(credentials === undefined ? {} : { credentials }),
      };
    },
    etcdctl,
    async leader() {
      const statuses = JSON.parse(await etcdctl("endpoint", "status", "-w", "json")) as {
        readonly Endpoint: string;
        readonly Status: {
          readonly leader: number;
          readonly header: { readonly member_id: number };
        };
      }[];
      const found = statuses.find(({ Status }) => Status.leader === Status.header.member_id);
      const member = members.find(({ endpoint }) => endpoint === found?.Endpoint);
      if (member === undefined) throw new Error("There is no leader");
      return member;
    },
    async requirePassword(password) {
      await etcdctl("user", "add", `root:${password}`);
      await etcdctl("user", "grant-role", "root", "root");
      await etcdctl("auth", "enable");
      credentials = { user: "root", password };
    },
    ready,
    async compactAll() {
      const [status] = JSON.parse(await etcdctl("endpoint", "status", "-w", "json")) as [
        { readonly Status: { readonly header: { readonly revision: number } } },
      ];
      await etcdctl("compact", "--physical", String(status.Status.header.revision));
      await etcdctl("defrag");
    },
    [Symbol.asyncDispose]: end,
  };
}
