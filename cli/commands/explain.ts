import { Code } from "@connectrpc/connect";
import type { Command } from "commander";
import { connectCodes } from "../../api/codes.ts";
import { type ErrorCode, errorCodes, PodnetError } from "../../core/errors.ts";
import { nearest } from "../../core/nearest.ts";
import { addOutput, type Context, type OutputOptions } from "../context.ts";
import { errorTexts } from "../error-texts.ts";
import { exitCodeOf } from "../exit-codes.ts";
import { document, printDocument } from "../output.ts";
import { styled, table } from "../views/text.ts";

const more = `
Needs no podnetd. Without a code: all codes, with what they mean in short.

Examples:
  podnet explain NAME_IN_USE
  podnet explain`;

/** `podnet explain`: what docs/reference/errors says about a code. */
export function addExplain(program: Command, context: Context): void {
  addOutput(program.command("explain").description("explain an error's code, and what to do"))
    .argument("[code]", "as an error shows it, in upper or lower case")
    .addHelpText("after", more)
    .action(async (asked: string | undefined, { output }: OutputOptions) => {
      const { io } = context;
      if (asked === undefined) {
        const items = errorCodes.map(explanationOf);
        if (output !== "table")
          await printDocument(io, output, document("ErrorCodeList", { items }));
        else io.stdout.write(table(["CODE", "MEANING"], items.map(inShort)));
        return;
      }
      const explained = explanationOf(codeOf(asked));
      if (output !== "table") {
        await printDocument(io, output, document("ErrorCode", explained));
        return;
      }
      const { code, meaning, remedy, status, exit } = explained;
      io.stdout.write(
        `${styled(io.stdout, "bold", code)}\n${meaning}\n\n${remedy}\n\nStatus ${status}, exit ${exit}.\n`,
      );
    });
}

/** The code that is meant, however it is written. */
function codeOf(asked: string): ErrorCode {
  const wanted = asked.toUpperCase().replaceAll("-", "_");
  const code = errorCodes.find((each) => each === wanted);
  if (code !== undefined) return code;
  const near = nearest(wanted, errorCodes);
  const like = near === undefined ? errorCodes.filter((each) => each.includes(wanted)) : [near];
  throw new PodnetError("INVALID_ARGUMENT", `"${asked}" is not the code of an error`, {
    field: "code",
    hint:
      like.length === 0 || wanted === ""
        ? "See all codes: podnet explain"
        : `Did you mean ${like.join(" or ")}?`,
  });
}

function explanationOf(code: ErrorCode) {
  const [meaning = "", remedy = ""] = errorTexts[code].trim().split("\n\n");
  const exit = exitCodeOf(new PodnetError(code, ""));
  return { code, meaning, remedy, status: Code[connectCodes[code]], exit };
}

/** A row of the list: the first sentence of what the code means. */
const inShort = ({ code, meaning }: ReturnType<typeof explanationOf>): string[] => [
  code,
  meaning.replaceAll("\n", " ").replace(/(?<=[a-z)])[.:;] .*$|\.$/, ""),
];
