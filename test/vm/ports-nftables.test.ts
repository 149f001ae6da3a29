import { testReach } from "./ports-reach.ts";

testReach("nftables");
