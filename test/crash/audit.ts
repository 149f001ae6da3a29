import { existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { JsonObject } from "@bufbuild/protobuf";
import type { Acts } from "./acts.ts";
import { subject } from "./pods.ts";
import type { Worker } from "./worker.ts";

/** What is written of policies, and what is noted for one while a pod is learned from. */
export type AuditChange = "policy-log" | "learn";

const mib = 1 << 20;
const fileOf = (directory: string): string => path.join(directory, "denied.json");

/** Of a worker's podnetd. */
export const auditConfig = (directory: string): string =>
  `policy_log = "${fileOf(directory)}"\npolicy_log_mib = 1\n`;

const closed: JsonObject = { ingress: { default: "deny" } };
const written = "file:append to policy log:after#";
/** Longest that a denial may take to be written, milliseconds. */
const writtenMs = 5000;
/** Longest that the end of learning may take, with its retries, milliseconds. */
const removedMs = 20_000;

export const auditChanges: Readonly<Record<AuditChange, Acts>> = {
  // A denial for which the file has no room: it is renamed, and another one begins.
  "policy-log": {
    stays: "pod",
    from: "file:append to policy log:before",
    async prepare({ client, directory }) {
      writeFileSync(fileOf(directory), `${JSON.stringify({ filled: "x".repeat(mib - 100) })}\n`);
      await client.pods.create({ spec: { name: subject, policy: closed } });
    },
    async change({ client, lab, record, ended }) {
      const { pod } = await client.pods.get({ idOrName: subject });
      const address = pod?.interfaces[0]?.addresses[0]?.split("/")[0] ?? "";
      const before = record().filter((line) => line.startsWith(written)).length;
      // (It is denied, and ping fails.)
      await lab.lan.run("ping", "-c", "1", "-W", "1", address).catch(() => {});
      for (const deadline = performance.now() + writtenMs; performance.now() < deadline; ) {
        const now = record().filter((line) => line.startsWith(written)).length;
        if (now >= before + 2 || (await ended(20)) !== undefined) return;
        await delay(20);
      }
    },
  },
  learn: {
    stays: "pod",
    from: "netlink:nftables make table:before",
    prepare: ({ client }) => client.pods.create({ spec: { name: subject } }),
    async change({ client }) {
      for await (const _answer of client.policies.learn({ pod: subject, forS: 1 }));
    },
  },
};

/** Waits until nothing of learning is left, which podnetd tries again when the host refuses it. */
export async function learned({ lab }: Pick<Worker, "lab">): Promise<void> {
  for (const deadline = performance.now() + removedMs; performance.now() < deadline; ) {
    if (!(await lab.host.run("nft", "list", "tables")).includes("podnet_learn")) return;
    await delay(50);
  }
}

/** What of the files of denials is no line of JSON. */
export const unreadable = ({ directory }: Pick<Worker, "directory">): readonly string[] =>
  [fileOf(directory), `${fileOf(directory)}.1`].flatMap((file) => {
    if (!existsSync(file)) return [];
    const lines = readFileSync(file, "utf8").split("\n");
    return [
      ...(lines.at(-1) === "" ? [] : [`${file} ends within a line`]),
      ...lines.slice(0, -1).filter((line) => !isJson(line)),
    ];
  });

function isJson(line: string): boolean {
  try {
    JSON.parse(line);
    return true;
  } catch {
    return false;
  }
}
