import { main } from "./command.ts";

await main(process.argv);
