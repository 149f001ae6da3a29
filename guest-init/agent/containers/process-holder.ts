import { sys } from "../sys.ts";

/**
 * The process that leads the namespace of processes that containers of a pod share: it takes in
 * those whose parents have ended. Nothing in that namespace can end it.
 */
export class ProcessHolder {
  #pid: number | undefined;

  /** Its number. It is started for the first container, and ends with the machine. */
  get pid(): number {
    this.#pid ??= start();
    return this.#pid;
  }

  /** A process has ended: with its leader a namespace is of no use any more. */
  ended(pid: number): void {
    if (pid === this.#pid) this.#pid = undefined;
  }
}

function start(): number {
  const { pid, stdin, stdout, stderr } = sys.spawn({
    args: ["/proc/self/exe", "--hold"],
    env: [],
    directory: "/",
    uid: 0,
    gid: 0,
    groups: [],
    terminal: false,
    confinement: {
      place: { kind: "holder" },
      // With fewer, containers could look into the agent's files by it.
      capabilities: undefined,
      noNewPrivileges: false,
      group: undefined,
    },
  });
  for (const fd of [stdin, stdout, stderr]) sys.close(fd);
  return pid;
}
