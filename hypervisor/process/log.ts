/** Logs events outside of any request; the daemon passes its logger. */
export type Log = (
  level: "info" | "warn" | "error",
  message: string,
  fields: Readonly<Record<string, string | number | boolean>>,
) => void;

export const noLog: Log = () => {};
