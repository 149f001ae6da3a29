import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import type { ServiceImpl } from "@connectrpc/connect";
import test from "ava";
import type { Podnet } from "../../../../api/client.ts";
import { PodState } from "../../../../api/gen/podnet/v1/pod_pb.ts";
import { type LabelPodRequest, PodService } from "../../../../api/gen/podnet/v1/pod_service_pb.ts";
import { addService } from "../../../../api/service.ts";
import { stepsOf } from "../../../../cli/commands/apply/ports.ts";
import { PodnetError } from "../../../../core/errors.ts";
import { serve } from "../../api/fixtures/server.ts";
import { podnet } from "../fixtures/io.ts";

const folder = mkdtempSync(path.join(tmpdir(), "podnet-apply-"));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

type Labels = Readonly<Record<string, string>>;

/** A podnetd whose pods have the labels that `labelsOf` says at each look. */
async function playPods(labelsOf: (name: string) => Labels | undefined, failing = "") {
  const changes: LabelPodRequest[] = [];
  const created: string[] = [];
  const notFound = () => new PodnetError("POD_NOT_FOUND", "There is no such pod");
  const service: Partial<ServiceImpl<typeof PodService>> = {
    get({ idOrName }) {
      const labels = labelsOf(idOrName);
      if (labels === undefined) throw notFound();
      return {
        pod: { id: `id-${idOrName}`, name: idOrName, state: PodState.RUNNING, labels, spec: {} },
      };
    },
    create({ spec, planOnly }) {
      if (!planOnly) created.push(spec?.name ?? "");
      return {};
    },
    label(request) {
      if (request.idOrName === `id-${failing}`)
        throw new PodnetError("WRONG_STATE", "It ends just now", { hint: "Wait for its end" });
      changes.push(request);
      return {};
    },
  };
  const server = await serve((router) => addService(router, PodService, service));
  let files = 0;
  return {
    changes,
    created,
    apply(text: string, ...flags: readonly string[]) {
      const file = path.join(folder, `${path.basename(server.folder)}-${++files}.yaml`);
      writeFileSync(file, text);
      return podnet(["apply", "-f", file, ...flags], { socket: server.h2 });
    },
    [Symbol.asyncDispose]: () => server.kill(),
  };
}

test("what others change between the comparison and the change is compared again", async (t) => {
  const looks: Labels[] = [{ app: "old" }, { app: "old", late: "1" }];
  await using played = await playPods(() => looks.shift());
  const { code, out, err } = await played.apply("kind: Pod\nname: web\nlabels: { app: new }\n");
  t.is(code, 0, err);
  t.deepEqual(played.changes[0]?.remove, ["late"], "a map is named whole");
  t.regex(out, /- labels\.late: 1/);
});

test("a pod that another apply has made in between is not made again", async (t) => {
  const looks: (Labels | undefined)[] = [undefined, { app: "x" }];
  await using played = await playPods(() => looks.shift());
  const { code, out, err } = await played.apply("kind: Pod\nname: web\nlabels: { app: x }\n");
  t.is(code, 0, err);
  t.deepEqual(played.created, []);
  t.regex(out, /0 created, 0 changed, 1 unchanged/);
});

test("a failure in the middle keeps its hint, says what is done, and prints that for programs", async (t) => {
  await using played = await playPods(() => ({ app: "old" }), "b");
  const pod = (name: string): string => `kind: Pod\nname: ${name}\nlabels: { app: new }\n---\n`;
  const { code, out, err } = await played.apply(["a", "b", "c"].map(pod).join(""), "-o", "json");
  t.not(code, 0);
  t.regex(err, /"step":"pod b"/);
  t.regex(err, /Wait for its end\. 1 document before it is applied\. Apply again for the rest/);
  const { items } = JSON.parse(out) as { items: { name: string }[] };
  t.deepEqual(
    items.map(({ name }) => name),
    ["a"],
  );
});

test("a program sees which changes are refused, and that nothing was changed", async (t) => {
  await using played = await playPods(() => ({ app: "old" }));
  const first = "kind: Pod\nname: a\nlabels: { app: new }\n---\n";
  const text = "kind: Pod\nname: b\nlabels: { app: new }\nresources: { vcpu: 2 }\n";
  const { code, out } = await played.apply(`${first}${text}`, "-o", "json");
  t.not(code, 0);
  t.deepEqual(played.changes, []);
  const { dryRun, items } = JSON.parse(out) as {
    dryRun: boolean;
    items: { changes: { field: string; refused: string }[] }[];
  };
  t.true(dryRun);
  const refused = items[1]?.changes.filter((change) => change.refused !== "");
  t.deepEqual(
    refused?.map(({ field }) => field),
    ["resources.vcpu"],
  );
});

test("labels, ports and interfaces of a pod that exists are checked before any change", async (t) => {
  await using played = await playPods(() => ({ app: "old" }));
  for (const [field, why] of [
    ["labels: { 'no good': x }", /labels/],
    ["ports: [{ pod_port: 70000 }]", /pod_port/],
    ["interfaces: [{ guest_name: eth1 }, {}]", /is called "eth1" too/],
  ] as const) {
    const first = "kind: Pod\nname: a\nlabels: { app: new }\n---\n";
    const { code, err } = await played.apply(`${first}kind: Pod\nname: b\n${field}\n`);
    t.not(code, 0);
    t.regex(err, why);
    t.deepEqual(played.changes, [], field);
  }
});

test("two documents about one thing are refused, also where one stands in a pod or network", async (t) => {
  await using played = await playPods(() => undefined);
  const policy = (name: string): string => `---\nkind: Policy\nname: ${name}\ndefault: deny\n`;
  for (const [text, who] of [
    ["kind: Pod\nname: a\n---\nkind: Pod\nname: a\n", /"pod a" is there twice/],
    [`kind: Pod\nname: a\npolicy: { default: allow }\n${policy("pod:a")}`, /"policy pod:a" is/],
    [`kind: Network\nname: n\npolicy: {}\n${policy("network:n")}`, /"policy network:n" is/],
  ] as const) {
    const { code, err } = await played.apply(text);
    t.not(code, 0);
    t.regex(err, who);
  }
});

test("ports that only move are published again when what comes between fails", async (t) => {
  const calls: string[] = [];
  const pods = {
    unpublishPorts: async () => void calls.push("unpublish"),
    publishPorts: async ({ ports }: { ports: { hostPort: number }[] }) =>
      void calls.push(`publish ${ports.map(({ hostPort }) => hostPort).join(" ")}`),
  };
  const port = { hostIp: "127.0.0.1", hostPort: 8080, podPort: 80, protocol: "tcp" } as never;
  const ports = { changes: [], unpublish: [port], publish: [port], moved: [port] };
  const fails = async (): Promise<never> => {
    throw new PodnetError("AGENT_REFUSED", "The guest refuses the address");
  };
  const [step] = stepsOf("a", ports, [fails]);
  const { signal } = new AbortController();
  await t.throwsAsync(async () => step?.({ pods } as unknown as Podnet, signal), {
    message: "The guest refuses the address",
  });
  t.deepEqual(calls, ["unpublish", "publish 8080"]);
});
