type Status = "ok" | "warning" | "failed";

/** What one check found. */
export interface Finding {
  readonly name: string;
  readonly status: Status;
  /** A plain sentence, without a full stop. */
  readonly message: string;
  /** What to do; empty where nothing is to be done. */
  readonly hint: string;
  /** A command that repairs it, safe and of podnet's own parts; `--fix` runs it. */
  readonly fix?: readonly string[];
}

export const ok = (name: string, message: string): Finding => ({
  name,
  status: "ok",
  message,
  hint: "",
});
export const warning = (name: string, message: string, hint: string): Finding => ({
  name,
  status: "warning",
  message,
  hint,
});
export const failed = (name: string, message: string, hint: string): Finding => ({
  name,
  status: "failed",
  message,
  hint,
});
