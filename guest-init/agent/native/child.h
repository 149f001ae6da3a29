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
};

/*
 * Starts a process, which leads its own process group when this returns: its number, or the
 * negative errno.
 */
pid_t start_child(const struct program *program);

#endif
