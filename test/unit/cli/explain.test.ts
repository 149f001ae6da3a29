import test from "ava";
import { errorCodes } from "../../../core/errors.ts";
import { podnet } from "./fixtures/io.ts";

test("explain says what a code means, what to do, and how podnet ends", async (t) => {
  const { code, out } = await podnet(["explain", "NAME_IN_USE"]);
  t.is(code, 0);
  t.regex(
    out,
    /^NAME_IN_USE\nAnother pod[^]+\n\nChoose another name[^]+\n\nStatus \w+, exit 5\.\n$/,
  );
  t.false(/`|\]\(/.test((await podnet(["explain", "LIMIT_REACHED"])).out), "no Markdown is left");
  t.is((await podnet(["explain", "name-in-use"])).out, out);
  const json = JSON.parse((await podnet(["explain", "pod_not_found", "-o", "json"])).out);
  t.like(json, { kind: "ErrorCode", code: "POD_NOT_FOUND", status: "NotFound", exit: 4 });
  t.true(json.meaning.length > 0 && json.remedy.length > 0);
});

test("explain without a code lists all of them, each with a meaning", async (t) => {
  const [heading, ...rows] = (await podnet(["explain"])).out.trimEnd().split("\n");
  t.regex(heading ?? "", /^CODE +MEANING$/);
  t.deepEqual(
    rows.map((row) => row.split(" ")[0]),
    [...errorCodes],
  );
  for (const row of rows) t.regex(row, /^[A-Z_]+ {2,}\w.*[^.:;]$/);
});

test("explain suggests codes for one that does not exist", async (t) => {
  for (const [asked, hint] of [
    ["NAME_IN_USR", /Did you mean NAME_IN_USE\?/],
    ["mac", /Did you mean MAC_INVALID or MAC_IN_USE\?/],
    ["quite-else", /podnet explain\n/],
    ["", /podnet explain\n/],
  ] as const) {
    const { code, err, out } = await podnet(["explain", asked]);
    t.deepEqual([code, out], [2, ""], asked);
    t.regex(err, hint);
  }
});
