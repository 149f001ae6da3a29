import { isDamagedAttachment } from "./attachment-rows.ts";
import type { AnyAttachment } from "./store.ts";
import { containerText } from "./attachment-plan.ts";

/** Names a row's container for people, a damaged one included. */
export const rowText = (row: AnyAttachment): string =>
  containerText(isDamagedAttachment(row) ? row : row.plan);
