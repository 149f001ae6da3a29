import { fuzz } from "./engine/suite.ts";

fuzz("guest", async () => {
  const [{ frames }, { guestMessages }] = await Promise.all([
    import("./targets/frames.ts"),
    import("./targets/guest-messages.ts"),
  ]);
  return [...frames, ...guestMessages];
});
