import test from "ava";
import {
  type LearnPolicyRequest,
  PolicyService,
  type TailPolicyRequest,
} from "../../../api/gen/podnet/v1/policy_service_pb.ts";
import { PodnetError } from "../../../core/errors.ts";
import { addService } from "../../../api/service.ts";
import { serve } from "../api/fixtures/server.ts";
import { podnet } from "./fixtures/io.ts";

const asked: TailPolicyRequest[] = [];
const learning: LearnPolicyRequest[] = [];
const rule = {
  direction: "egress",
  policy: "builds",
  rule: "lan",
  reason: "\u001b[31m for people",
};
const server = await serve((router) =>
  addService(router, PolicyService, {
    async *learn(request) {
      learning.push(request);
      await Promise.resolve();
      yield { document: { name: "learned-web", rules: [] } };
      if (request.pod === "lost") throw new PodnetError("CANCELLED", "podnetd ends");
      yield { document: { name: "learned-web", rules: [{ name: "icmp" }] }, more: true };
    },
    async *tail(request) {
      asked.push(request);
      await Promise.resolve();
      const time = { seconds: 3723n, nanos: 5_000_000 };
      const tcp = { protocol: "tcp", address: "10.0.0.9", port: 22 };
      yield { verdict: { time, pod: "web", ...rule, unit: "packets", ...tcp, count: 1n } };
      const to6 = { protocol: "tcp", address: "2001:db8::7", port: 443, name: "a.example" };
      yield { verdict: { time, pod: "web", ...rule, unit: "connections", ...to6, count: 3n } };
      const name = { name: "b.example" };
      yield { verdict: { time, container: "c1", ...rule, unit: "questions", ...name, count: 1n } };
      yield { lost: 7n };
    },
  }),
);
test.after.always(() => server.kill());
const here = { socket: server.h2 };

test.serial("tail shows a line a verdict, with nothing that a terminal obeys", async (t) => {
  const { code, out, err } = await podnet(["policy", "tail", "web"], here);
  t.is(code, 0);
  const [packet, connection, question, ...others] = out.trimEnd().split("\n");
  t.regex(
    packet ?? "",
    /^01:02:03\.005 +web +egress +builds\/lan +tcp 10\.0\.0\.9:22 .*for people$/,
  );
  t.regex(connection ?? "", / tcp \[2001:db8::7\]:443 \(a\.example\) .*for people +3 times$/);
  t.regex(question ?? "", / c1 +egress +builds\/lan +name b\.example /);
  t.deepEqual(others, []);
  t.regex(err, /^7 more were denied/);
  t.notRegex(out, /\u001b/);
  t.like(asked.at(-1), { pod: "web", container: "", lastOnly: false });
});

test.serial("tail as JSON has a document a line", async (t) => {
  const argv = ["policy", "tail", "--container", "default/web", "--last", "-o", "json"];
  const { out } = await podnet(argv, here);
  const documents = out
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as { readonly kind: string; readonly lost?: string });
  t.deepEqual(
    documents.map(({ kind }) => kind),
    ["Verdict", "Verdict", "Verdict", "Verdict"],
  );
  t.is(documents.at(-1)?.lost, "7");
  t.like(asked.at(-1), { pod: "", container: "default/web", lastOnly: true });
});

test.serial("learn prints the last policy, as a file that apply takes", async (t) => {
  const { code, out, err } = await podnet(["policy", "learn", "web", "--for", "1500ms"], here);
  t.is(code, 0);
  t.is(out, "name: learned-web\nrules:\n  - name: icmp\n");
  t.regex(err, /^Learning what web uses, for 2 s\n.*more than a policy can have\n$/);
  t.like(learning.at(-1), { pod: "web", container: "", forS: 2 });
  await podnet(["policy", "learn", "--container", "ci/web"], here);
  t.like(learning.at(-1), { pod: "", container: "ci/web", forS: undefined });
});

test.serial("learn prints what there is when podnetd goes, and fails", async (t) => {
  const { code, out, err } = await podnet(["policy", "learn", "lost"], here);
  t.not(code, 0);
  t.is(out, "name: learned-web\nrules: []\n");
  t.regex(err, /UNAVAILABLE|CANCELLED|ends/);
});
