/** Where the driver says what nobody asked for; the daemon hands in its logger. */
export type Log = (
  level: "info" | "warn" | "error",
  message: string,
  fields: Readonly<Record<string, string | number | boolean>>,
) => void;

export const noLog: Log = () => {};
