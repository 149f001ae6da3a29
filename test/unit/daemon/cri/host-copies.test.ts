import { mkdirSync, mkdtempSync, renameSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { watchEffects } from "../../../../core/effect.ts";
import { hostCopies } from "../../../../daemon/cri/containers/guest-mounts.ts";

test.serial("a directory that becomes a link while it is copied leads to no other file", (t) => {
  // The owner of a directory that may be copied is not who may read the file.
  const top = mkdtempSync(join(tmpdir(), "podnet-copies-"));
  const [allowed, secrets] = [join(top, "allowed"), join(top, "secrets")];
  for (const directory of [join(allowed, "mine"), secrets]) {
    mkdirSync(directory, { recursive: true });
    writeFileSync(join(directory, "file"), directory === secrets ? "secret" : "own");
  }
  const copy = () =>
    hostCopies([{ hostPath: join(allowed, "mine/file"), target: "/file", field: "source" }], {
      within: [allowed],
      setting: "x.mount_paths",
    });
  t.is(Buffer.from((copy()[0] as { data: Uint8Array }).data).toString(), "own");
  watchEffects({
    at: ({ what }, side) => {
      if (what !== "open mount" || side !== "before") return;
      renameSync(join(allowed, "mine"), join(allowed, "was"));
      symlinkSync(secrets, join(allowed, "mine"));
    },
    atAsync: () => Promise.resolve(),
  });
  t.teardown(() => watchEffects(undefined));
  t.throws(copy, { message: /which has moved/ });
});
