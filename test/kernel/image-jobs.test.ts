import { existsSync, mkdirSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { ImageJobs } from "../../daemon/images/image-jobs.ts";
import { listJobs, putJob } from "../../daemon/images/store.ts";
import { Database } from "../../daemon/store/database.ts";
import { run } from "../../linux/processes/command.ts";

test("what a job left and cannot be removed keeps no other job, and no start, waiting", async (t) => {
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-image-jobs-"));
  const db = Database.openIn(directory);
  const warned: string[] = [];
  const log = { warn: ({ job }: { job: string }) => warned.push(job) };
  const parts = { db, config: { directory, mostLayerBytes: 0 }, log };
  const jobs = new ImageJobs(parts as unknown as ConstructorParameters<typeof ImageJobs>[0]);
  for (const id of ["held", "other"]) {
    putJob(db, { id, cgroups: [] }, 1);
    mkdirSync(path.join(directory, "jobs", id), { recursive: true });
  }
  const held = path.join(directory, "jobs", "held");
  await run(["mount", "-t", "tmpfs", "podnet-test", held]);
  t.teardown(() => run(["umount", held]).catch(() => {}));
  await jobs.recover();
  t.deepEqual(warned, ["held"]);
  t.deepEqual(
    listJobs(db).map(({ id }) => id),
    ["held"],
  );
  t.false(existsSync(path.join(directory, "jobs", "other")));
  await run(["umount", held]);
  await jobs.recover();
  t.deepEqual(listJobs(db), []);
});
