import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Lab, openLab } from "./lab.ts";
import { type Podnetd, startPodnetd } from "./podnetd.ts";

export interface Stage extends AsyncDisposable {
  readonly lab: Lab;
  readonly directory: string;
  start(config?: string, env?: Readonly<Record<string, string>>): Promise<Podnetd>;
  /** What `ip` says there. */
  ip(...words: readonly string[]): Promise<string>;
  /** All addresses of all links. */
  addresses(): Promise<string>;
  rules(): Promise<string>;
}

let stages = 0;

/** A lab whose podnetd keeps its state from start to start. No pod is ever made here. */
export async function openStage(): Promise<Stage> {
  await using opened = new AsyncDisposableStack();
  const lab = opened.use(await openLab(`n${process.pid}-${++stages}-`));
  const directory = mkdtempSync(join(tmpdir(), "podnet-networks-"));
  opened.defer(() => rmSync(directory, { recursive: true, force: true }));
  const held = opened.move();
  return {
    lab,
    directory,
    start: async (config = "", env = {}) =>
      held.use(await startPodnetd({ machine: lab.host, directory, config, env })),
    ip: (...words) => lab.host.run("ip", ...words),
    addresses: async () => (await lab.host.run("ip", "-o", "addr")).replaceAll(" tentative", ""),
    rules: async () => {
      const saved = [await lab.host.run("iptables-save"), await lab.host.run("ip6tables-save")];
      return saved.flatMap((text) => text.match(/^-A .*/gm) ?? []).join("\n");
    },
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  };
}
