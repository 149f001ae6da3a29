import { once } from "node:events";
import path from "node:path";
import { createInterface } from "node:readline";
import { openLab } from "../../../test/lab/lab.ts";

/** A host on which ports are published as runv does it. */
export interface AncestorHost extends AsyncDisposable {
  /** Publishes a port and takes it back; answers what the publishing cost, milliseconds. */
  publish(): Promise<number>;
}

let opened = 0;

/**
 * A host with so many published ports. What is measured runs in its namespace, so that nothing but
 * iptables counts.
 */
export async function openAncestor(ports: number): Promise<AncestorHost> {
  await using stack = new AsyncDisposableStack();
  const { host } = stack.use(await openLab(`runv${opened++}-`));
  const here = import.meta.dirname;
  const child = host.spawn(
    [path.join(here, "../../node"), path.join(here, "ancestor-rules.ts"), String(ports)],
    { stdio: ["pipe", "pipe", "inherit"] },
  );
  const ended = once(child, "exit");
  stack.defer(async () => {
    child.stdin?.end();
    await ended;
  });
  if (child.stdin === null || child.stdout === null) throw new Error("The child has no pipes");
  const { stdin } = child;
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async (): Promise<string> => {
    const { value, done } = await lines.next();
    if (done === true) throw new Error("The ancestors' way has ended");
    return value;
  };
  // It says when its rules are there.
  await next();
  const held = stack.move();
  return {
    async publish() {
      stdin.write("publish\n");
      return Number(await next());
    },
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  };
}
