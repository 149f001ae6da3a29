import { portNames } from "../protocol/codes.ts";
import { Agent } from "./agent.ts";
import { loadModules, mountAll } from "./boot.ts";
import { Loop } from "./loop.ts";
import { type Options, parseOptions, usage } from "./options.ts";
import { reason } from "./reply.ts";
import { sys } from "./sys.ts";
import { version } from "./version.ts";

function start(options: Options): void {
  const loop = new Loop((thrown) => sys.log(reason(thrown)));
  (globalThis as { podnetTick?: () => void }).podnetTick = () => loop.tick();
  if (options.isInit) mountAll();
  const agent = new Agent(loop, options);
  agent.open();
  if (options.isInit) {
    loadModules("console");
    // The ports announce themselves from here on; what the host asks for meanwhile waits in the channel.
    loadModules("network");
  }
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
