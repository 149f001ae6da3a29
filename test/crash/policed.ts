import type { JsonObject } from "@bufbuild/protobuf";
import type { Acts } from "./acts.ts";
import { subject } from "./pods.ts";
import type { Worker } from "./worker.ts";

/** Changes of policies. Those that decide by names bring a relay with them, and end it. */
export type PolicedChange = "names-apply" | "names-delete" | "rules-apply";

/** The policy that is applied and deleted. */
export const policy = "names";

const document: JsonObject = {
  name: policy,
  applies_to: { labels: { role: "named" } },
  rules: [{ name: "api", action: "allow", domains: ["api.example"] }],
};
const own: JsonObject = { default: "allow", rules: [] };
const make = ({ client }: Worker): Promise<unknown> =>
  client.pods.create({ spec: { name: subject, labels: { role: "named" } } });
const apply = ({ client }: Worker): Promise<unknown> => client.policies.apply({ document });

export const policedChanges: Readonly<Record<PolicedChange, Acts>> = {
  "names-apply": { stays: "pod", from: "commit:policy:before", prepare: make, change: apply },
  "names-delete": {
    stays: "pod",
    from: "commit:delete policy:before",
    async prepare(worker) {
      await make(worker);
      await apply(worker);
    },
    change: ({ client }) => client.policies.delete({ name: policy }),
  },
  // Rules of the pod's own, which go with it.
  "rules-apply": {
    stays: "pod",
    from: "commit:rules:before",
    prepare: ({ client }) => client.pods.create({ spec: { name: subject, policy: own } }),
    change: ({ client }) =>
      client.policies.apply({ document: { name: `pod:${subject}`, default: "deny" } }),
  },
};
