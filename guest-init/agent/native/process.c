/* Child processes and signals for the agent. Names and meaning: guest-init/agent/sys.ts. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"
#include "engine.h"

/* Opens a pair of descriptors; the agent's end does not block. */
static int open_pipe(int ends[2], int ours) {
  if (pipe2(ends, O_CLOEXEC) < 0) return -1;
  return fcntl(ends[ours], F_SETFL, O_NONBLOCK);
}

static int open_terminal(int *ours, int *theirs, int rows, int columns) {
  *ours = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  if (*ours < 0 || grantpt(*ours) < 0 || unlockpt(*ours) < 0) return -1;
  char name[64];
  if (ptsname_r(*ours, name, sizeof name)) return -1;
  *theirs = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (*theirs < 0) return -1;
  struct winsize size = {.ws_row = (unsigned short)(rows ? rows : 24), .ws_col = (unsigned short)(columns ? columns : 80)};
  return ioctl(*ours, TIOCSWINSZ, &size);
}

static void close_all(const int *fds, int count) {
  for (int i = 0; i < count; i++)
    if (fds[i] >= 0) close(fds[i]);
}

/*
 * Starts a child in the process namespace of another process, and in its mount namespace unless it
 * has a root of its own. The agent itself stays where it is: its next children are its own again.
 */
static pid_t start_joined(struct program *program, int neighbour) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/ns/mnt", neighbour);
  int own = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
  int mounts = open(path, O_RDONLY | O_CLOEXEC);
  snprintf(path, sizeof path, "/proc/%d/ns/pid", neighbour);
  int processes = open(path, O_RDONLY | O_CLOEXEC);
  if (!program->root[0]) program->joins = mounts;
  pid_t result = -errno;
  if (own >= 0 && mounts >= 0 && processes >= 0) {
    if (setns(processes, CLONE_NEWPID) < 0) result = -errno;
    else {
      result = start_child(program);
      setns(own, CLONE_NEWPID);
    }
  }
  if (own >= 0) close(own);
  if (processes >= 0) close(processes);
  /* The child has a copy of it: descriptors are not shared. */
  if (mounts >= 0) close(mounts);
  return result;
}

static int32_t texts_in(struct bytes block) {
  int32_t count = 0;
  for (uint32_t i = 0; i < block.length; i++) count += block.data[i] == 0;
  return count;
}

/*
 * spawn(argv, env, directory, uid, gid, groups, terminal, out, masked, root, shelf, readOnly,
 * neighbour, withheld, noNewPrivileges, group, ownProcesses, filter): out = how many arguments and
 * variables there are, then pid, stdin, stdout, stderr. `neighbour` is the process whose namespaces
 * it joins, 0 without. `withheld` are the numbers of capabilities that it cannot have. The last ten
 * may be absent.
 */
static double process_spawn(struct call *call) {
  struct bytes out = arg_bytes(call, 7);
  if (out.length < 16) return -EINVAL;
  struct program program = {
      .args = arg_bytes(call, 0),
      .env = arg_bytes(call, 1),
      .directory = arg_text(call, 2),
      .uid = (uid_t)arg_int(call, 3),
      .gid = (gid_t)arg_int(call, 4),
      .groups = arg_bytes(call, 5),
      .terminal = arg_int(call, 6),
      .masked = arg_bytes(call, 8),
      /* Texts share their places with those six before them. */
      .root = arg_text(call, 9),
      .shelf = arg_text(call, 10),
      .read_only = arg_bytes(call, 11),
      .joins = -1,
      .capabilities = UINT64_MAX,
      .no_new_privileges = arg_int(call, 14),
      .group = arg_bytes(call, 15),
      .own_processes = arg_int(call, 16),
      .filter = arg_bytes(call, 17),
  };
  int32_t counts[2];
  memcpy(counts, out.data, sizeof counts);
  /* A NUL inside one would make two of it. */
  if (texts_in(program.args) != counts[0] || texts_in(program.env) != counts[1]) return -EINVAL;
  int neighbour = arg_int(call, 12);
  struct bytes withheld = arg_bytes(call, 13);
  for (uint32_t i = 0; i < withheld.length; i++)
    if (withheld.data[i] < 64) program.capabilities &= ~(1ull << withheld.data[i]);
  /* in, out, err: [0] is read, [1] is written. */
  int in[2] = {-1, -1}, from[2] = {-1, -1}, err[2] = {-1, -1};
  int opened = program.terminal ? open_terminal(&in[1], &in[0], 0, 0)
                                : open_pipe(in, 1) | open_pipe(from, 0) | open_pipe(err, 0);
  double result = -(double)errno;
  if (opened >= 0) {
    program.in = in[0];
    program.out = program.terminal ? in[0] : from[1];
    program.err = program.terminal ? in[0] : err[1];
    result = neighbour > 0 ? start_joined(&program, neighbour) : start_child(&program);
  }
  if (result > 0) {
    int32_t answer[4] = {(int32_t)result, in[1], program.terminal ? in[1] : from[0], err[0]};
    memcpy(out.data, answer, sizeof answer);
    in[1] = from[0] = err[0] = -1;
  }
  close_all(in, 2), close_all(from, 2), close_all(err, 2);
  return result;
}

/*
 * reap(out): out = pid, kind (0 exited, 1 killed), value. Answers 1 per ended child, 0 when there
 * is none.
 */
static double process_reap(struct call *call) {
  struct bytes out = arg_bytes(call, 0);
  int status;
  pid_t pid = waitpid(-1, &status, WNOHANG);
  if (pid <= 0 || out.length < 12) return 0;
  int32_t answer[3] = {pid, WIFSIGNALED(status), WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status)};
  memcpy(out.data, answer, sizeof answer);
  return 1;
}

/*
 * kill(pid, signal): a negative pid is a process group. A child that does not lead its group yet is
 * alone in it, and has its signals blocked until it is a program.
 */
static double process_kill(struct call *call) {
  pid_t pid = arg_int(call, 0);
  int result = kill(pid, arg_int(call, 1));
  if (result < 0 && errno == ESRCH && pid < -1) result = kill(-pid, arg_int(call, 1));
  return or_errno(result);
}
static double process_pid(struct call *call) { return (void)call, getpid(); }

/* signals(numbers): blocks them and answers a descriptor that delivers them, 128 bytes each. */
static double process_signals(struct call *call) {
  struct bytes wanted = arg_bytes(call, 0);
  sigset_t set;
  sigemptyset(&set);
  for (uint32_t i = 0; i < wanted.length; i++) sigaddset(&set, wanted.data[i]);
  sigprocmask(SIG_BLOCK, &set, NULL);
  signal(SIGPIPE, SIG_IGN);
  return or_errno(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

const struct native process_functions[] = {
    {"spawn", process_spawn}, {"reap", process_reap},       {"kill", process_kill},
    {"pid", process_pid},     {"signals", process_signals}, {NULL, NULL},
};
