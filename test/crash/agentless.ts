import type { Acts } from "./acts.ts";
import type { Worker } from "./worker.ts";
import { subject } from "./pods.ts";

/** Changes of a pod without an agent, with a seed disk: its guest is answered at its ports. */
export type AgentlessChange = "agentless-create" | "agentless-add" | "agentless-stop";

const pod = { idOrName: subject };

const create = ({ client }: Worker): Promise<unknown> =>
  client.pods.create({
    spec: {
      name: subject,
      boot: { agent: "none", cloudInit: {}, cmdline: "standin.agent=power-button:1" },
    },
  });

export const agentlessChanges: Readonly<Record<AgentlessChange, Acts>> = {
  "agentless-create": {
    stays: undefined,
    from: "commit:claim:before",
    prepare: async () => {},
    change: create,
  },
  "agentless-add": {
    stays: "pod",
    from: "commit:replan:before",
    prepare: create,
    change: ({ client }) => client.pods.addInterface({ ...pod, interface: {} }),
  },
  "agentless-stop": {
    stays: "pod",
    from: "commit:stopping:before",
    prepare: create,
    change: ({ client }) => client.pods.stop(pod),
  },
};
