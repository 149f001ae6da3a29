import type { Element } from "./nftables-sets.ts";

/**
 * The two kernel interfaces behind the command `iptables`. Their rules are separate, and packets
 * pass both.
 */
export type Variant = "nft" | "legacy";
export const variants: readonly Variant[] = ["nft", "legacy"];

/** The tables of iptables that podnet writes. */
export type TableName = "filter" | "nat";
export const tableNames: readonly TableName[] = ["filter", "nat"];

/** One commit of one table of iptables. */
export interface IptablesEdit {
  readonly table: TableName;
  readonly lines: readonly string[];
  /** Whether the commit makes our chain in this table, which has to be recorded. */
  readonly makesChain: boolean;
}

/** Family and name of the table for NAT and accepted traffic, with the driver nftables. */
export const mainTableName = "inet podnet";

/** One transaction on one of our tables of nftables. */
export interface NftablesEdit {
  /** Family and name; absent is the main one's. */
  readonly table?: string;
  /**
   * The change of table, sets, chains and rules: none; make those that are missing or differ; make
   * all in a new table, because a set or chain conflicts; delete all.
   */
  readonly base: "keep" | "make" | "remake" | "delete";
  /** Elements that go. They are there: nft refuses the whole transaction otherwise. */
  readonly remove: readonly Element[];
  /**
   * The elements to add, after the others were removed. None of them may exist, whatever their
   * owner.
   */
  readonly add: readonly Element[];
  /** Chains that elements lead to: they are filled before those are added. Absent: none. */
  readonly fill?: readonly PolicyChain[];
  /** Names of chains that go, for no element leads to them any more. Absent: none. */
  readonly drop?: readonly string[];
}

/**
 * A chain that decides about flows. Its name says what it contains, so that it never changes, and
 * several pods share it.
 */
export interface PolicyChain {
  readonly name: string;
  /** In nft's language. */
  readonly rules: readonly string[];
}

export const isEmpty = ({ base, remove, add, fill = [] }: NftablesEdit): boolean =>
  base === "keep" && remove.length + add.length + fill.length === 0;
