import { setImmediate as turn } from "node:timers/promises";
import test from "ava";
import { type AttachmentHost, Attachments } from "../../../../network/containers/attachments.ts";
import type { AttachmentNetlink } from "../../../../network/containers/kernel.ts";
import { type Inspection, nothingFound } from "../../../../network/bridge/inspect.ts";

const { signal } = new AbortController();
const unasked = (): never => {
  throw new Error("Nothing of the kind was asked for");
};

test("what is asked of one attachment is done one after the other, of several side by side", async (t) => {
  const begun: string[] = [];
  const ends: (() => void)[] = [];
  const host: AttachmentHost = {
    apply: unasked,
    diff: unasked,
    remove: unasked,
    inspectRules: unasked,
    async inspect(part): Promise<Inspection> {
      part();
      await new Promise<void>((resolve) => ends.push(resolve));
      return nothingFound;
    },
  };
  const attachments = new Attachments(host, { netlink: {} as AttachmentNetlink, open: unasked });
  const look = (key: string, name: string): Promise<Inspection> => {
    const now = (): undefined => {
      begun.push(name);
    };
    return attachments.inspect(
      key,
      now,
      { heal: () => true, linksOnly: false, inside: false },
      signal,
    );
  };
  const looks = [look("c1", "first"), look("c1", "second"), look("c2", "another's")];
  await turn();
  t.deepEqual(begun, ["first", "another's"]);
  ends.shift()?.();
  await looks[0];
  await turn();
  t.deepEqual(begun, ["first", "another's", "second"]);
  for (const end of ends) end();
  await Promise.all(looks);
});
