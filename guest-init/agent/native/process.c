/* Child processes and signals for the agent. Names and meaning: guest-init/agent/sys.ts. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine.h"

/* What a child gets, decided before the fork: after it only async-signal-safe calls are made. */
struct child {
  char **argv, **env;
  const char *directory;
  uid_t uid;
  gid_t gid;
  const gid_t *groups;
  size_t group_count;
  int in, out, err;
  int terminal;
  /* Closed by the child once it leads its own process group: signals can reach it from then on. */
  int begun;
};

/* Splits texts that each end with NUL into a vector for execve. Points into the block. */
static char **vector(struct bytes block) {
  size_t count = 0;
  for (uint32_t i = 0; i < block.length; i++) count += block.data[i] == 0;
  char **list = calloc(count + 1, sizeof *list);
  if (!list) return NULL;
  char *text = (char *)block.data;
  for (size_t i = 0; i < count; i++, text += strlen(text) + 1) list[i] = text;
  return list;
}

static void complain(const char *what) {
  dprintf(2, "podnet-guest: %s: %s\n", what, strerror(errno));
}

static _Noreturn void become(const struct child *child) {
  setsid();
  close(child->begun);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  signal(SIGPIPE, SIG_DFL);
  if (child->terminal) ioctl(child->in, TIOCSCTTY, 0);
  /* All three are CLOEXEC and above 2, since the agent keeps 0, 1 and 2 open: dup2 clears the flag. */
  dup2(child->in, 0);
  dup2(child->out, 1);
  dup2(child->err, 2);
  if (setgroups(child->group_count, child->groups) < 0 && child->uid != 0) complain("setgroups");
  if (setgid(child->gid) < 0 || setuid(child->uid) < 0) {
    complain("setuid");
    _exit(125);
  }
  if (child->directory[0] && chdir(child->directory) < 0) {
    complain(child->directory);
    _exit(125);
  }
  environ = child->env;
  execvp(child->argv[0], child->argv);
  /* The exit codes are those of a shell, as hyperstart's. */
  int why = errno;
  complain(child->argv[0]);
  _exit(why == ENOENT ? 127 : why == EACCES ? 126 : 125);
}

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

/* spawn(argv, env, directory, uid, gid, groups, terminal, out): out = pid, stdin, stdout, stderr. */
static double process_spawn(struct call *call) {
  struct bytes groups = arg_bytes(call, 5), out = arg_bytes(call, 7);
  if (out.length < 16) return -EINVAL;
  struct child child = {
      .argv = vector(arg_bytes(call, 0)),
      .env = vector(arg_bytes(call, 1)),
      .directory = arg_text(call, 2),
      .uid = (uid_t)arg_int(call, 3),
      .gid = (gid_t)arg_int(call, 4),
      .groups = (const gid_t *)groups.data,
      .group_count = groups.length / 4,
      .terminal = arg_int(call, 6),
  };
  /* in, out, err: [0] is read, [1] is written. */
  int in[2] = {-1, -1}, from[2] = {-1, -1}, err[2] = {-1, -1}, begun[2] = {-1, -1};
  double result = -ENOMEM;
  if (!child.argv || !child.env) goto done;
  if (!child.argv[0]) {
    result = -EINVAL;
    goto done;
  }
  int opened = child.terminal ? open_terminal(&in[1], &in[0], 0, 0)
                              : open_pipe(in, 1) | open_pipe(from, 0) | open_pipe(err, 0);
  if (opened < 0 || pipe2(begun, O_CLOEXEC) < 0) {
    result = -(double)errno;
    goto done;
  }
  child.in = in[0];
  child.out = child.terminal ? in[0] : from[1];
  child.err = child.terminal ? in[0] : err[1];
  child.begun = begun[1];
  pid_t pid = fork();
  if (pid == 0) become(&child);
  result = or_errno(pid);
  close(begun[1]);
  begun[1] = -1;
  char nothing;
  while (pid > 0 && read(begun[0], &nothing, 1) < 0 && errno == EINTR);
  if (pid > 0) {
    int32_t answer[4] = {pid, in[1], child.terminal ? in[1] : from[0], err[0]};
    memcpy(out.data, answer, sizeof answer);
    in[1] = from[0] = err[0] = -1;
  }
done:
  close_all(in, 2), close_all(from, 2), close_all(err, 2), close_all(begun, 2);
  free(child.argv), free(child.env);
  return result;
}

/* reap(out): out = pid, kind (0 exited, 1 killed), value. Answers 1 per ended child, 0 when there is none. */
static double process_reap(struct call *call) {
  struct bytes out = arg_bytes(call, 0);
  int status;
  pid_t pid = waitpid(-1, &status, WNOHANG);
  if (pid <= 0 || out.length < 12) return 0;
  int32_t answer[3] = {pid, WIFSIGNALED(status), WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status)};
  memcpy(out.data, answer, sizeof answer);
  return 1;
}

static double process_kill(struct call *call) { return or_errno(kill(arg_int(call, 0), arg_int(call, 1))); }
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
