import { readFileSync } from "node:fs";
import { Code, ConnectError } from "@connectrpc/connect";
import test from "ava";
import {
  connectCodes,
  fromConnectError,
  fromErrorInfo,
  toConnectError,
  toErrorInfo,
} from "../../../api/codes.ts";
import { exitCodeOf } from "../../../cli/exit-codes.ts";
import { errorCodes, PodnetError } from "../../../core/errors.ts";

const read = (page: string): string =>
  readFileSync(new URL(`../../../docs/reference/${page}`, import.meta.url), "utf8");
/** The pages that explain the codes, in the order of the table that links to them. */
const pages = [...read("errors.md").matchAll(/^\| \[[^\]]+\]\((errors\/\w+\.md)\)/gm)].map(
  ([, page = ""]) => read(page),
);

test("docs/reference/errors has every code, in order, with its status and exit code", (t) => {
  const sections = pages.flatMap((page) => [
    ...page.matchAll(/^## (\S+)\n([^]*?)(?=^#|$(?![^]))/gm),
  ]);
  t.deepEqual(
    sections.map((section) => section[1]),
    [...errorCodes],
  );
  for (const [, code = "", text = ""] of sections) {
    const known = errorCodes.find((one) => one === code) ?? "INTERNAL";
    const exit = exitCodeOf(new PodnetError(known, ""));
    t.true(text.trim().endsWith(`Status \`${Code[connectCodes[known]]}\`, exit ${exit}.`), code);
    t.is(text.trim().split("\n\n").length, 3, `${code}: meaning, what to do, status`);
  }
});

test("every code comes back from the wire with all it carries", (t) => {
  for (const code of errorCodes) {
    const error = new PodnetError(code, "Message", {
      hint: "Hint",
      field: "field",
      step: "step",
      details: { errno: 17, name: "x", yes: true },
    });
    const back = fromErrorInfo(toErrorInfo(error));
    t.like(back, { code, message: "Message", hint: "Hint", field: "field", step: "step" });
    t.deepEqual(back.details, { errno: "17", name: "x", yes: "true" });
    t.is(toConnectError(error).code, connectCodes[code]);
    t.is(fromConnectError(toConnectError(error)).code, code);
  }
});

test("what is not there stays undefined", (t) => {
  const back = fromErrorInfo(toErrorInfo(new PodnetError("INTERNAL", "x")));
  t.deepEqual([back.hint, back.field, back.step], [undefined, undefined, undefined]);
});

test("a newer podnet's code is kept alongside INTERNAL", (t) => {
  const info = toErrorInfo(new PodnetError("INTERNAL", "x"));
  info.code = "BRAND_NEW";
  const back = fromErrorInfo(info);
  t.is(back.code, "INTERNAL");
  t.is(back.details["code"], "BRAND_NEW");
});

test("a status without detail is known by its meaning", (t) => {
  const said = (code: Code): string => fromConnectError(new ConnectError("x", code)).code;
  t.is(said(Code.Unimplemented), "UNSUPPORTED");
  t.is(said(Code.DeadlineExceeded), "DEADLINE_EXCEEDED");
  t.is(said(Code.Canceled), "CANCELLED");
  t.is(said(Code.DataLoss), "INTERNAL");
  t.is(fromConnectError("text").code, "INTERNAL");
});
