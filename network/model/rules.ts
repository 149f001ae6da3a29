import type { Element } from "./nftables-sets.ts";

/** The two kernel interfaces behind the one command. Their rules are separate, and packets pass both. */
export type Variant = "nft" | "legacy";
export const variants: readonly Variant[] = ["nft", "legacy"];

/** The tables of iptables that podnet writes. */
export type TableName = "filter" | "nat";
export const tableNames: readonly TableName[] = ["filter", "nat"];

/** One commit of one table of iptables. */
export interface IptablesEdit {
  readonly table: TableName;
  readonly lines: readonly string[];
  /** The commit makes our chain in this table, which is to be remembered. */
  readonly makesChain: boolean;
}

/** Family and name of the table of NAT and of what is let in, when nftables writes it. */
export const mainTableName = "inet podnet";

/** One transaction on one of our tables of nftables. */
export interface NftablesEdit {
  /** Family and name; absent is the main one's. */
  readonly table?: string;
  /**
   * What happens to table, sets, chains and rules: nothing; they are made where they are missing or are not as they
   * should be; the same with a new table, where a set or chain is in the way; all of it goes.
   */
  readonly base: "keep" | "make" | "remake" | "delete";
  /** Elements that go. They are there: nft refuses the whole transaction otherwise. */
  readonly remove: readonly Element[];
  /** Elements that come, after the others have gone. None of them may be there, whosoever. */
  readonly add: readonly Element[];
}

export const isEmpty = ({ base, remove, add }: NftablesEdit): boolean =>
  base === "keep" && remove.length === 0 && add.length === 0;
