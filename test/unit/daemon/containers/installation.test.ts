import {
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test, { type ExecutionContext } from "ava";
import { watchEffects } from "../../../../core/effect.ts";
import type { PodnetError } from "../../../../core/errors.ts";
import { Installation } from "../../../../daemon/containers/cni/installation.ts";
import { Database } from "../../../../daemon/store/database.ts";
import { openLog } from "../../../../linux/log.ts";

const program = "the plugin";

/**
 * A host with the plugin built, and the directories of runtimes; what podnetd remembers of it is in
 * a database.
 */
class Site implements Disposable {
  readonly #directory = mkdtempSync(path.join(tmpdir(), "podnet-installation-"));
  readonly #db: Database;
  /** Attached, as its podnetd counts them. */
  containers = 0;
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
      containers: () => this.containers,
      log: openLog({ component: "cni", level: "silent" }),
    });
  }

  /** The plugin where runtimes look for it. */
  get plugin(): string {
    return path.join(this.where.binDir, "podnet-cni");
  }

  /** Gives the plugin that was built to another user. */
  ownBuilt(uid: number): void {
    chownSync(path.join(this.#directory, "built"), uid, uid);
  }

  /** The plugin as it was built; empty: it was not. */
  build(text: string): void {
    const built = path.join(this.#directory, "built");
    if (text === "") rmSync(built);
    else writeFileSync(built, text);
  }

  /** All files where runtimes look. */
  files(): string[] {
    const { dir, binDir } = this.where;
    return [...readdirSync(dir), ...readdirSync(binDir)].toSorted();
  }

  content(): string[] {
    const { dir } = this.where;
    const list = readFileSync(path.join(dir, "10-podnet.conflist"), "utf8");
    return [readFileSync(this.plugin, "utf8"), `${list.endsWith("}\n")}`];
  }

  [Symbol.dispose](): void {
    this.#db.close();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

const whole = ["10-podnet.conflist", "podnet-cni"];

/**
 * Does it once for each call that leaves podnetd; `end`: none comes after the one that fails.
 * Answers how many there were.
 */
function atEach(end: boolean, body: (attempt: (act: () => unknown) => boolean) => void): number {
  for (let stop = 1; ; stop++) {
    let passed = 0;
    body((act) => {
      const at = (): void => {
        passed += 1;
        if (end ? passed >= stop : passed === stop) throw new Error("Injected failure");
      };
      watchEffects({ at, atAsync: async () => at() });
      try {
        act();
        return true;
      } catch {
        return false;
      } finally {
        watchEffects(undefined);
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
    t.true(points >= 18, `${points}`);
  },
);

test.serial("one that fails anywhere is undone, and reported", (t) => {
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

test.serial("the plugin is podnetd's own file, whoever has the one that was built", (t) => {
  // (In the package it is root's: podnetd could change the owner of a copy, and not its mode.)
  using site = new Site();
  site.ownBuilt(1234);
  site.open().install(site.where);
  const { uid, mode } = statSync(site.plugin);
  t.is(uid, process.getuid?.() ?? -1);
  t.is(mode & 0o777, 0o755);
});

test.serial("after an upgrade the plugin is renewed before the list, which never goes", (t) => {
  using site = new Site();
  site.open().install(site.where);
  const list = path.join(site.where.dir, "10-podnet.conflist");
  // Another one; what a loss of power left of one; none.
  for (const spoil of [
    () => site.build("the next plugin"),
    () => writeFileSync(site.plugin, ""),
    () => rmSync(site.plugin),
  ]) {
    spoil();
    const next = site.open();
    const order: string[] = [];
    watchEffects({
      at({ what }, side) {
        if (what.endsWith(" in place") && side === "after") order.push(what);
        // A runtime that finds no list takes another network.
        t.true(existsSync(list), what);
      },
      atAsync: async () => {},
    });
    try {
      next.present();
    } finally {
      watchEffects(undefined);
    }
    t.deepEqual(order, ["put podnet-cni in place", "put 10-podnet.conflist in place"]);
    t.deepEqual(site.content(), ["the next plugin", "true"]);
    t.is(statSync(site.plugin).mode & 0o777, 0o755);
    t.is(next.trouble, undefined);
  }
  // What is as it should be is left alone.
  const { ino } = statSync(site.plugin);
  site.open().present();
  t.is(statSync(site.plugin).ino, ino);
});

test.serial("a plugin that cannot be renewed is reported, and the list stays", (t) => {
  const points = atEach(false, (attempt) => {
    using site = new Site();
    site.open().install(site.where);
    // (The podnetd before was killed: its list is still there.)
    site.build("the next plugin");
    const next = site.open();
    attempt(() => next.present());
    t.deepEqual(site.files(), whole);
    if (readFileSync(site.plugin, "utf8") === "the next plugin") return;
    t.is(readFileSync(site.plugin, "utf8"), program);
    t.regex(next.trouble?.message ?? "", /Injected failure/);
    next.install(site.where);
    t.is(next.trouble, undefined);
  });
  t.true(points >= 7, `${points}`);
  using site = new Site();
  site.open().install(site.where);
  site.build("");
  const next = site.open();
  next.present();
  t.is(next.trouble?.code, "IMAGE_MISSING");
  t.deepEqual(site.files(), whole);
});

test.serial("an installation over another one fails anywhere with one of them whole", (t) => {
  const points = atEach(false, (attempt) => {
    using site = new Site();
    site.open().install(site.where);
    site.containers = 1;
    const list = path.join(site.where.dir, "10-podnet.conflist");
    const next = site.open();
    const done = attempt(() => next.install({ ...site.where, network: "other" }));
    t.deepEqual(site.files(), whole);
    const { plugins } = JSON.parse(readFileSync(list, "utf8"));
    t.is(plugins[0].network, done ? "other" : undefined);
    t.is(next.installed?.network, done ? "other" : undefined);
    t.is(readFileSync(site.plugin, "utf8"), program);
  });
  t.true(points >= 9, `${points}`);
});

test.serial("with containers attached nothing is uninstalled, nor moved, without force", (t) => {
  using site = new Site();
  const installation = site.open();
  installation.install(site.where);
  site.containers = 2;
  const refused = { code: "WRONG_STATE", message: /^2 containers are attached/ };
  const thrown = t.throws<PodnetError>(() => installation.uninstall(), refused);
  t.deepEqual(thrown.details, { containers: 2 });
  t.throws(() => installation.install({ ...site.where, dir: `${site.where.dir}/other` }), refused);
  t.deepEqual(site.files(), whole);
  t.is(installation.uninstall({ force: true }).length, 2);
  t.deepEqual(site.files(), []);
  t.deepEqual(installation.uninstall(), []);
});

test.serial("plugin and list are on the disk before and after they have their names", (t) => {
  using site = new Site();
  const files: string[] = [];
  watchEffects({
    at({ boundary, what }, side) {
      if (boundary === "file" && side === "after") files.push(what);
    },
    atAsync: async () => {},
  });
  try {
    site.open().install(site.where);
  } finally {
    watchEffects(undefined);
  }
  for (const name of whole) {
    const own = files.filter((what) => what.includes(name) && !what.startsWith("make directory"));
    t.deepEqual(own.slice(1), [
      `flush ${name}`,
      `put ${name} in place`,
      `flush directory of ${name}`,
    ]);
  }
});
