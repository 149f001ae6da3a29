import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { listenUnix } from "../../../../daemon/listeners/unix-listener.ts";

test("a socket that is being opened is its owner's, and leaves the process's file mask as it was", async (t) => {
  const top = mkdtempSync(path.join(tmpdir(), "podnet-listener-"));
  t.teardown(() => rmSync(top, { recursive: true, force: true }));
  const mask = process.umask();
  const places = ["one", "two"].map((name) => path.join(top, name));
  const opening = places.map((place) => listenUnix({ path: place, group: undefined }, () => {}));
  t.is(process.umask(), mask);
  for (const place of places) t.is(statSync(place).mode & 0o777, 0o600);
  for (const each of opening) (await each).close();
  t.is(process.umask(), mask);
});
