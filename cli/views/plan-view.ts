import type { Plan } from "../../api/gen/podnet/v1/pod_pb.ts";
import type { Output } from "../io.ts";
import { harmless, styled } from "./text.ts";

/** A plan for people: what would be done, part by part. */
export function planText(out: Output, plan: Plan): string {
  const sections = plan.sections.map((section) => {
    const heading = `${styled(out, "bold", section.title)} ${styled(out, "dim", section.step)}`;
    return [heading, ...section.lines.map((line) => `  ${harmless(line)}`)].join("\n");
  });
  return `${sections.join("\n")}\n`;
}
