import test from "ava";
import {
  type DeletePolicyRequest,
  PolicyService,
} from "../../../api/gen/podnet/v1/policy_service_pb.ts";
import { addService } from "../../../api/service.ts";
import { serve } from "../api/fixtures/server.ts";
import { podnet } from "./fixtures/io.ts";

const asked: DeletePolicyRequest[] = [];
const server = await serve((router) =>
  addService(router, PolicyService, {
    delete(request) {
      asked.push(request);
      const effect = { direction: "egress", change: "opens", rule: `${request.name}/default` };
      const effects = [
        { ...effect, pod: "build" },
        { ...effect, container: "prod/web", change: "closes" },
      ];
      return {
        existed: request.name !== "none",
        effects: request.planOnly && request.name === "builds" ? effects : [],
      };
    },
  }),
);
test.after.always(() => server.kill());
const here = { socket: server.h2 };

test.serial(
  "a plan of a delete shows whom it would open or close, and deletes nothing",
  async (t) => {
    const { code, out, err } = await podnet(["policy", "delete", "builds", "none", "--plan"], here);
    t.is(code, 0);
    t.true(asked.every(({ planOnly }) => planOnly));
    const lines = out.trimEnd().split("\n");
    t.regex(lines[0] ?? "", /^POD +DIRECTION +CHANGE +RULE$/);
    t.regex(lines[1] ?? "", /^build +egress +opens +builds\/default$/);
    t.regex(lines[2] ?? "", /^prod\/web +egress +closes +builds\/default$/);
    t.is(lines.length, 3);
    t.is(err, "There was no policy none\n");
    const json = JSON.parse(
      (await podnet(["policy", "delete", "builds", "--plan", "-o", "json"], here)).out,
    ) as { kind: string; items: unknown[] };
    t.is(json.kind, "PolicyEffectList");
    t.is(json.items.length, 2);
    const nothing = await podnet(["policy", "delete", "none", "--plan"], here);
    t.regex(nothing.err, /It would open and close nothing/);
  },
);

test.serial("a delete prints nothing of effects", async (t) => {
  const { code, out } = await podnet(["policy", "delete", "builds"], here);
  t.deepEqual([code, out, asked.at(-1)?.planOnly], [0, "", false]);
});
