import { fuzz } from "./engine/suite.ts";

fuzz("text", async () => {
  const [{ addressTexts }, { text }, { hostFiles }] = await Promise.all([
    import("./targets/addresses.ts"),
    import("./targets/text.ts"),
    import("./targets/host-files.ts"),
  ]);
  return [...addressTexts, ...text, ...hostFiles];
});
