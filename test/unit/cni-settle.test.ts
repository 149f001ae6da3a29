import { mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { draftName, pendingName, renderPending } from "../../cni/protocol/pending.ts";
import { settlePending } from "../../daemon/cni/settle-pending.ts";
import { openLog } from "../../linux/log.ts";

const log = openLog({ component: "cni", level: "silent" });

const record = (containerId: string, atMs: number): string => {
  const env = { CNI_COMMAND: "DEL", CNI_CONTAINERID: containerId, CNI_IFNAME: "eth0" };
  const config = JSON.stringify({ cniVersion: "1.0.0", name: "podnet", type: "podnet-cni" });
  return renderPending({ ...env, CNI_PATH: "/" }, Buffer.from(config).toString("base64"), atMs);
};

/** A directory with records in it; those of `attached` are, since then. */
function site(attached: Readonly<Record<string, number>>) {
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-settle-"));
  const deleted: string[] = [];
  const attachments = {
    named: ({ containerId }: { readonly containerId: string }) => {
      const createdMs = attached[containerId];
      return createdMs === undefined ? undefined : ({ createdMs } as never);
    },
    delete: async ({ containerId }: { readonly containerId: string }) => {
      if (containerId === "stuck") throw new Error("Injected failure");
      deleted.push(containerId);
    },
  };
  return {
    deleted,
    write: (name: string, text: string) => writeFileSync(path.join(directory, name), text),
    age: (name: string) => utimesSync(path.join(directory, name), 1, 1),
    files: () => readdirSync(directory),
    settle: () => settlePending({ directory, attachments, log }),
    [Symbol.dispose]: () => rmSync(directory, { recursive: true, force: true }),
  };
}

test("a DEL that was written down is done once, unless it was written before the ADD", async (t) => {
  using at = site({ gone: 1000, again: 3000 });
  for (const id of ["gone", "again", "never-was"])
    at.write(pendingName(id, "eth0"), record(id, 2000));
  await at.settle();
  t.deepEqual(at.deleted, ["gone"]);
  t.deepEqual(at.files(), []);
});

test("one that cannot be done or read stays, and keeps no other from it", async (t) => {
  using at = site({ stuck: 1000, next: 1000 });
  at.write("a@eth0.json", "{");
  for (const id of ["stuck", "next"]) at.write(pendingName(id, "eth0"), record(id, 2000));
  await at.settle();
  t.deepEqual(at.deleted, ["next"]);
  t.deepEqual(at.files(), ["a@eth0.json", "stuck@eth0.json"]);
});

test("what a plugin that was killed left of a record goes, and one that is being written stays", async (t) => {
  using at = site({});
  const [old, fresh] = [draftName(4711), draftName(4712)];
  for (const name of [old, fresh, ".keep"]) at.write(name, "{");
  for (const name of [old, ".keep"]) at.age(name);
  await at.settle();
  t.deepEqual(at.files(), [fresh, ".keep"].toSorted());
});
