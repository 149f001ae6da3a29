import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test, { type ExecutionContext } from "ava";
import { watchCrossings } from "../../core/crossing.ts";
import { Installation } from "../../daemon/cni/installation.ts";
import { Database } from "../../daemon/store/database.ts";
import { openLog } from "../../linux/log.ts";

const program = "the plugin";

/** A host with the plugin built, and the directories of runtimes; what podnetd remembers of it is in a database. */
class Site implements Disposable {
  readonly #directory = mkdtempSync(path.join(tmpdir(), "podnet-installation-"));
  readonly #db: Database;
  readonly where = {
    dir: path.join(this.#directory, "net.d"),
    binDir: path.join(this.#directory, "bin"),
  };

  constructor() {
    for (const each of ["state", "net.d", "bin"]) mkdirSync(path.join(this.#directory, each));
    writeFileSync(path.join(this.#directory, "built"), program);
    this.#db = Database.openIn(path.join(this.#directory, "state"));
  }

  /** As a podnetd has it that has just started. */
  open(): Installation {
    const settings = { socket: "/run/x/cni.sock", pendingDir: "/var/lib/x" };
    return new Installation({
      db: this.#db,
      settings: settings as never,
      program: path.join(this.#directory, "built"),
      log: openLog({ component: "cni", level: "silent" }),
    });
  }

  /** All files where runtimes look. */
  files(): string[] {
    const { dir, binDir } = this.where;
    return [...readdirSync(dir), ...readdirSync(binDir)].toSorted();
  }

  content(): string[] {
    const { dir, binDir } = this.where;
    const list = readFileSync(path.join(dir, "10-podnet.conflist"), "utf8");
    return [readFileSync(path.join(binDir, "podnet-cni"), "utf8"), `${list.endsWith("}\n")}`];
  }

  [Symbol.dispose](): void {
    this.#db.close();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

const whole = ["10-podnet.conflist", "podnet-cni"];

/** Does it once for each call that leaves podnetd; `end`: none comes after the one that fails. Answers how many there were. */
function atEach(end: boolean, body: (attempt: (act: () => unknown) => boolean) => void): number {
  for (let stop = 1; ; stop++) {
    let passed = 0;
    body((act) => {
      const at = (): void => {
        passed += 1;
        if (end ? passed >= stop : passed === stop) throw new Error("Injected failure");
      };
      watchCrossings({ at, atAsync: async () => at() });
      try {
        act();
        return true;
      } catch {
        return false;
      } finally {
        watchCrossings(undefined);
      }
    });
    if (passed < stop) return stop - 1;
  }
}

function isWholeOrNothing(t: ExecutionContext, site: Site, when: string): void {
  const files = site.files();
  if (files.length === 0) return;
  t.deepEqual(files, whole, when);
  t.deepEqual(site.content(), [program, "true"], when);
}

test.serial(
  "an installation that podnetd's end cuts short anywhere is whole or gone after its next start",
  (t) => {
    const points = atEach(true, (attempt) => {
      using site = new Site();
      attempt(() => site.open().install(site.where));
      const next = site.open();
      next.present();
      isWholeOrNothing(t, site, "installing");
      next.uninstall();
      t.deepEqual(site.files(), []);
    });
    t.true(points >= 14, `${points}`);
  },
);

test.serial("one that fails anywhere is undone, and told of", (t) => {
  atEach(false, (attempt) => {
    using site = new Site();
    const done = attempt(() => site.open().install(site.where));
    t.deepEqual(site.files(), done ? whole : []);
  });
});

test.serial("the end of an installation that is cut short anywhere is gone through with", (t) => {
  const points = atEach(true, (attempt) => {
    using site = new Site();
    site.open().install(site.where);
    const done = attempt(() => site.open().uninstall());
    const next = site.open();
    next.present();
    isWholeOrNothing(t, site, "uninstalling");
    if (done) t.deepEqual(site.files(), []);
    next.uninstall();
    t.deepEqual(site.files(), []);
  });
  t.true(points >= 8, `${points}`);
});
