import { portNames } from "../protocol/codes.ts";
import { Agent } from "./agent.ts";
import { expediteKernel, loadModules, mountAll, quietenKernel } from "./boot.ts";
import { readText } from "./files.ts";
import { Loop } from "./loop.ts";
import { type Options, parseOptions, usage } from "./options.ts";
import { endMachine } from "./power.ts";
import { reason } from "./reply.ts";
import { enterRootOf, layerDisk, rootDisk } from "./mounts/root-disk.ts";
import { hasShares } from "./mounts/shares.ts";
import { sys } from "./sys.ts";
import { version } from "./version.ts";

/** Without a port after this time the other modules are loaded anyway, milliseconds. */
const portWaitMs = 200;

function start(options: Options): void {
  const loop = new Loop((thrown) => sys.log(reason(thrown)));
  (globalThis as { podnetTick?: () => void }).podnetTick = () => loop.tick();
  if (!options.isInit) {
    new Agent(loop, options).open();
    return;
  }
  mountAll();
  expediteKernel();
  quietenKernel();
  const commandLine = readText("/proc/cmdline") ?? "";
  let loaded = false;
  // After READY: the host plugs NICs from then on, and what it asks for meanwhile waits in the
  // channel.
  const loadRest = (): void => {
    if (!loaded) {
      loadModules("network");
      if (hasShares(commandLine)) loadModules("shares");
    }
    loaded = true;
  };
  const root = rootDisk(commandLine);
  if (root !== undefined) {
    // The modules are files of the initramfs, which is out of reach afterwards.
    loadModules("console");
    loadModules("root");
    loadRest();
    if (!enterRootOf(root, layerDisk(commandLine))) return endMachine(loop, "power-off");
  }
  const agent = new Agent(loop, options, {
    ready: () => loop.after(0, loadRest),
    // Below another root they are loaded already, and the image's files are not to be.
    loadModules: () => {
      if (root === undefined) loadModules("root");
    },
  });
  agent.open();
  if (root === undefined) loadModules("console");
  loop.after(portWaitMs, loadRest);
}

const isInit = sys.pid() === 1;
const options = parseOptions(sys.args(), isInit, portNames);
switch (options.kind) {
  case "version":
    sys.log(version);
    sys.exit(0);
    break;
  case "usage":
    sys.log(`${options.message}\n${usage}`);
    sys.exit(2);
    break;
  case "run":
    start(options);
}
