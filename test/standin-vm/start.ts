import { rmSync, writeFileSync } from "node:fs";
import type { Json } from "./arguments.ts";
import { type Behaviour, readBehaviour } from "./behaviour.ts";
import { Chardev } from "./chardev.ts";
import { type CommandLine, readCommandLine } from "./command-line.ts";
import { version } from "./commands.ts";
import { Guest } from "./guest.ts";
import { Machine } from "./machine.ts";
import { Monitor } from "./monitor.ts";

/** Runs a stand-in from QEMU's command line. The working directory is the machine's own. */
export function main(args: readonly string[]): void {
  try {
    const line = readCommandLine(args);
    if (line.version) printVersion();
    else start(line);
  } catch (error) {
    process.stderr.write(`qemu-system-x86_64: ${(error as Error).message}\n`);
    process.exit(1);
  }
}

function printVersion(): void {
  const { major, minor, micro } = version.qemu;
  process.stdout.write(`QEMU emulator version ${major}.${minor}.${micro} (${version.package})\n`);
}

function start(line: CommandLine): void {
  const qemu = readBehaviour(line.cmdline, "qemu");
  const refused = qemu.number("exit");
  if (refused !== undefined) {
    process.stderr.write("qemu-system-x86_64: the stand-in was asked to end\n");
    process.exit(refused);
  }
  const standIn = new StandIn(line, qemu);
  standIn.run();
}

/** A process that is to a podnetd what a QEMU with a guest is. */
class StandIn {
  readonly #line: CommandLine;
  readonly #behaviour: Behaviour;
  readonly #monitors: readonly Monitor[];
  readonly #console: Chardev | undefined;
  readonly #machine: Machine;
  readonly #guest: Guest;
  #presses = 0;

  constructor(line: CommandLine, behaviour: Behaviour) {
    this.#line = line;
    this.#behaviour = behaviour;
    const die = (name: string): void => this.#dieAt(name);
    this.#guest = new Guest({
      behaviour: readBehaviour(line.cmdline, "agent"),
      sockets: line.sockets,
      port: (id, open) => this.#event("VSERPORT_CHANGE", { open, id }),
      commandCame: die,
      console: (text) => this.#console?.send(text),
      powerOff: () => void this.#end({ guest: true, reason: "guest-shutdown" }),
      reset: () => this.#machine.reset(true),
    });
    this.#machine = new Machine(line, {
      event: (name, data) => this.#event(name, data),
      running: () => this.#guest.boot(),
      reset: () => this.#guest.reset(),
      powerButton: () => this.#pressed(),
      plugged: (nic, fd) => this.#guest.plugged(nic, fd),
      askedToLeave: (nic) => {
        if (!behaviour.has("keep-nics")) setImmediate(() => this.#machine.eject(nic));
      },
      unplugged: (nic) => this.#guest.unplugged(nic),
    });
    this.#console = this.#openConsole();
    this.#monitors = line.monitors.map(
      (id, index) =>
        new Monitor({
          id,
          path: line.sockets.get(id) ?? id,
          // The second monitor is for sources.
          behaviour: index === 0 ? behaviour : readBehaviour("", "qemu"),
          commandCame: index === 0 ? die : () => {},
          context: {
            machine: this.#machine,
            chardevs: () => this.#chardevs(),
            quit: () => void this.#end({ guest: false, reason: "host-qmp-quit" }),
          },
        }),
    );
  }

  run(): void {
    const { pidFile, paused } = this.#line;
    if (pidFile !== undefined) writeFileSync(pidFile, `${process.pid}\n`, { mode: 0o600 });
    // In QEMU's order: whoever sees one knows that those before it are there.
    for (const id of this.#line.sockets.keys())
      this.#allChardevs()
        .find((chardev) => chardev.id === id)
        ?.listen();
    for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const)
      process.on(signal, () => void this.#end({ guest: false, reason: "host-signal" }));
    const dieAfter = this.#behaviour.number("die-after");
    if (dieAfter !== undefined) setTimeout(() => process.kill(process.pid, "SIGKILL"), dieAfter);
    const storm = this.#behaviour.number("storm");
    if (storm !== undefined) setTimeout(() => this.#storm(2000), storm);
    const chatter = readBehaviour(this.#line.cmdline, "agent").number("chatter");
    if (chatter !== undefined) this.#chatter(chatter);
    if (!paused) this.#guest.boot();
  }

  /**
   * A guest without an agent that knows its power button, from one press on: it is booting before.
   */
  #pressed(): void {
    const from = readBehaviour(this.#line.cmdline, "agent").number("power-button");
    if (++this.#presses === from) void this.#end({ guest: true, reason: "guest-shutdown" });
  }

  /** Events that come true and unknown ones, so many of each. */
  #storm(rounds: number): void {
    const id = "\u001b]0;owned\u0007\nforged";
    for (let n = 0; n < rounds; n++) {
      this.#event("RESET", { guest: true, reason: "guest-reset" });
      this.#event("VSERPORT_CHANGE", { open: n % 2 === 0, id: `${id}${n}` });
      this.#event("DEVICE_DELETED", { device: `${id}${n}`, path: id });
      this.#event(`X_${id}${n}`, { n });
    }
  }

  /** So many bytes on the console, once a client listens. */
  #chatter(bytes: number): void {
    if (this.#console?.connected === true) this.#console.send("x".repeat(bytes));
    else setTimeout(() => this.#chatter(bytes), 50);
  }

  #openConsole(): Chardev | undefined {
    const { console: id, sockets } = this.#line;
    const path = id === undefined ? undefined : sockets.get(id);
    if (id === undefined || path === undefined) return undefined;
    return new Chardev(id, path, { connected: (socket) => void socket.resume() });
  }

  #allChardevs(): readonly Chardev[] {
    const others = [...this.#monitors, ...this.#guest.wires].map(({ chardev }) => chardev);
    return this.#console === undefined ? others : [this.#console, ...others];
  }

  #event(name: string, data?: Json): void {
    for (const monitor of this.#monitors) monitor.event(name, data);
  }

  /**
   * `die:NAME`: killed when this QMP command or guest command comes; `ready` is the moment before
   * READY.
   */
  #dieAt(name: string): void {
    if (this.#behaviour.is("die", name)) process.kill(process.pid, "SIGKILL");
  }

  /** In the order of QEMU's hash table, as 7.2 has it. */
  #chardevs(): readonly Json[] {
    const [qmp, observer] = this.#monitors.map(({ chardev }) => chardev);
    const [control, tty] = this.#guest.wires;
    const all: (readonly [Chardev | undefined, boolean])[] = [
      [qmp, true],
      [this.#console, true],
      [observer, true],
      [control.chardev, control.isOpen],
      [tty.chardev, tty.isOpen],
    ];
    return all.flatMap(([chardev, open]) =>
      chardev === undefined
        ? []
        : {
            "frontend-open": open,
            filename: `${chardev.connected ? "" : "disconnected:"}unix:${chardev.path},server=on`,
            label: chardev.id,
          },
    );
  }

  #ending = false;

  /** SHUTDOWN, what is on its way, and the end; the files go too. */
  async #end(shutdown: Json): Promise<void> {
    if (this.#ending) return;
    this.#ending = true;
    this.#event("SHUTDOWN", shutdown);
    // An answer to the command that ends us goes first.
    await new Promise((resolve) => setImmediate(resolve));
    await Promise.all(this.#monitors.map(({ chardev }) => chardev.flush()));
    for (const path of [...this.#line.sockets.values(), this.#line.pidFile])
      if (path !== undefined) rmSync(path, { force: true });
    process.exit(0);
  }
}
