import test from "ava";
import { PodnetError } from "../../../../core/errors.ts";
import { TranslationRules } from "../../../../daemon/containers/translation-rules.ts";
import type { AttachmentId } from "../../../../daemon/store/holder.ts";
import { openLog } from "../../../../linux/log.ts";
import type { AttachedFragment } from "../../../../network/model/desired.ts";
import { nothingFound } from "../../../../network/bridge/inspect.ts";
import { until } from "../../../lab/until.ts";

const fragmentOf = (key: string): AttachedFragment => ({ kind: "attachment", key, ports: [] });
const refusal = new PodnetError("FIREWALL_FAILED", "not now");

/** Two containers whose rules are to be written, on a host that fails as asked. */
function opened() {
  const unruled = new Map(["a", "b"].map((id) => [id as AttachmentId, fragmentOf(id)]));
  const host = { fails: [] as string[], throws: false, asked: 0 };
  const rules = new TranslationRules({
    host: {
      async inspectRules(now) {
        host.asked++;
        if (host.throws) throw refusal;
        return new Map(
          now().map((fragment) => {
            const failed = host.fails.includes(fragment.key);
            return [fragment, failed ? { found: [], healed: false, error: refusal } : nothingFound];
          }),
        );
      },
    },
    ready: {
      unruled: () => Array.from(unruled, ([id, fragment]) => ({ id, fragment })),
      ruled: (ids) => ids.forEach((id) => unruled.delete(id)),
    },
    log: openLog({ component: "test", level: "silent" }),
    againMs: 10,
  });
  return { unruled, host, rules };
}

test("rules that could not be written are tried again until they are, of all containers", async (t) => {
  const { unruled, host, rules } = opened();
  host.throws = true;
  await rules.write();
  t.deepEqual([...unruled.keys()], ["a", "b"]);
  host.throws = false;
  await until("another try", () => unruled.size === 0);
  t.is(host.asked, 2);
  await rules.close();
});

test("a container whose rules fail keeps no other from its own; after the close nothing is tried", async (t) => {
  const { unruled, host, rules } = opened();
  host.fails = ["a"];
  await rules.write();
  t.deepEqual([...unruled.keys()], ["a"]);
  host.fails = [];
  await rules.close();
  // Its timer would have gone off before this one, which begins later and takes longer.
  await new Promise((resolve) => setTimeout(resolve, 50));
  t.is(host.asked, 1);
});
