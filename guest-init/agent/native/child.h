/*
 * A process from its start until it becomes a program of its own: process.c decides, child.c runs
 * it.
 */
#ifndef PODNET_CHILD_H
#define PODNET_CHILD_H

#include <sys/types.h>

#include "engine.h"

struct child;

/* The program that a child executes. Everything is copied. */
struct program {
  /* Texts that each end with NUL. */
  struct bytes args, env;
  const char *directory;
  uid_t uid;
  gid_t gid;
  /* Of gid_t. */
  struct bytes groups;
  int in, out, err;
  int terminal;
  /*
   * Not "": it is the first process of a mount namespace of its own, and this mounted directory is
   * its root. `shelf` is the mount that has the roots of all containers.
   */
  const char *root, *shelf;
  /* Whether it leads a new process namespace. */
  int own_processes;
  /* Paths that end with NUL each, hidden or not to be written to. */
  struct bytes masked, read_only;
  /* The file of the control group that it joins, which ends with NUL; empty without. */
  struct bytes group;
  /* The mount namespace that it joins; -1 without. */
  int joins;
  /* Bits of the capabilities that it and all it starts can have. */
  uint64_t capabilities;
  int no_new_privileges;
  /* Of struct sock_filter: what the kernel does about its system calls; empty without. */
  struct bytes filter;
};

/*
 * Starts a process, which leads its own process group when this returns, in the namespaces where it
 * stays: its number, or the negative errno.
 */
pid_t start_child(const struct program *program);

#endif
