/*
 * Starts processes without a copy of the agent's page tables: the copy, and the faults that undo
 * it, are the largest cost of a short process. The child runs in the agent's memory until
 * execve(2), on a stack of its own. The agent does not wait for the execve(2), as it would after
 * vfork(2): a directory whose file system does not answer, or a SIGSTOP from a process of the
 * child's user, would hold up PID 1. So the child makes system calls by itself: libc's would write
 * the agent's errno.
 */
#define _GNU_SOURCE
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct child {
  struct child *next;
  struct program is;
  char **argv, **env;
  /* 1 once it has its terminal, or a container its namespaces. */
  int begun;
  /* The kernel writes 0 when it has left the agent's memory. */
  int here;
  char path[4096];
  _Alignas(16) char stack[16384];
};

/* Children that may still run. */
static struct child *children;

/* --- in the child ----------------------------------------------------------------------------- */

#if defined(__x86_64__)
static long raw5(long number, long a, long b, long c, long d, long e) {
  register long fourth __asm__("r10") = d;
  register long fifth __asm__("r8") = e;
  __asm__ volatile("syscall"
                   : "+a"(number)
                   : "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth)
                   : "rcx", "r11", "memory");
  return number;
}
#elif defined(__aarch64__)
static long raw5(long number, long a, long b, long c, long d, long e) {
  register long eighth __asm__("x8") = number;
  register long first __asm__("x0") = a;
  register long second __asm__("x1") = b;
  register long third __asm__("x2") = c;
  register long fourth __asm__("x3") = d;
  register long fifth __asm__("x4") = e;
  __asm__ volatile("svc 0"
                   : "+r"(first)
                   : "r"(eighth), "r"(second), "r"(third), "r"(fourth), "r"(fifth)
                   : "memory");
  return first;
}
#endif

static long raw(long number, long a, long b, long c, long d) { return raw5(number, a, b, c, d, 0); }

static void complain(struct child *child, const char *what, long why) {
  int length = snprintf(child->path, sizeof child->path, "podnet-guest: %s: %s\n", what, strerror((int)-why));
  if (length >= (int)sizeof child->path) length = sizeof child->path - 1;
  raw(SYS_write, 2, (long)child->path, length, 0);
}

static _Noreturn void leave(int code) {
  for (;;) raw(SYS_exit_group, code, 0, 0, 0);
}

/* execvpe(3) with the child's own PATH. Answers why it did not come to that. */
static long become(struct child *child) {
  const char *name = child->argv[0], *path = "";
  size_t length = strlen(name);
  if (strchr(name, '/')) return raw(SYS_execve, (long)name, (long)child->argv, (long)child->env, 0);
  for (char **text = child->env; *text; text++)
    if (!strncmp(*text, "PATH=", 5)) path = *text + 5;
  long why = -ENOENT;
  for (const char *end; length > 0; path = end + 1) {
    end = strchrnul(path, ':');
    size_t before = (size_t)(end - path);
    if (before + length + 2 <= sizeof child->path) {
      memcpy(child->path, path, before);
      /* An empty part is the directory it is in. */
      if (before > 0) child->path[before++] = '/';
      memcpy(child->path + before, name, length + 1);
      /* An execve(2) that finds nothing costs the guest's kernel an address space. */
      long result = raw(SYS_faccessat, AT_FDCWD, (long)child->path, F_OK, 0);
      if (result == 0) result = raw(SYS_execve, (long)child->path, (long)child->argv, (long)child->env, 0);
      if (result == -EACCES) why = result;
      else if (result != -ENOENT && result != -ENOTDIR) return result;
    }
    if (!*end) break;
  }
  return why;
}

/*
 * In the protocol a command of its own sets a terminal's size, right behind the one that starts the
 * process: a program that asks at once must find it. Setting a size sends SIGWINCH, which is
 * blocked here, and so stays pending.
 */
static void await_size(void) {
  const unsigned long wanted = 1ul << (SIGWINCH - 1);
  const struct timespec longest = {.tv_nsec = 100000000};
  raw(SYS_rt_sigtimedwait, (long)&wanted, 0, (long)&longest, sizeof wanted);
}

static long raw_mount(const char *source, const char *target, const char *type, unsigned long flags) {
  return raw5(SYS_mount, (long)source, (long)target, (long)type, (long)flags, 0);
}

/* In a container alone: paths are those of its image, and lead nowhere else. Some may be absent. */
static long restrict_paths(const struct program *is) {
  const unsigned long bare = MS_NOSUID | MS_NODEV | MS_NOEXEC;
  long why = 0;
  const char *path = (const char *)is->masked.data, *end = path + is->masked.length;
  for (; path < end && why >= 0; path += strlen(path) + 1) {
    why = raw_mount("/dev/null", path, "", MS_BIND);
    if (why == -ENOTDIR) why = raw_mount("tmpfs", path, "tmpfs", bare | MS_RDONLY);
    if (why == -ENOENT) why = 0;
  }
  path = (const char *)is->read_only.data, end = path + is->read_only.length;
  for (; path < end && why >= 0; path += strlen(path) + 1) {
    why = raw_mount(path, path, "", MS_BIND | MS_REC);
    if (why == -ENOENT) why = 0;
    else if (why >= 0) why = raw_mount("", path, "", MS_BIND | MS_REMOUNT | MS_RDONLY | bare);
  }
  return why;
}

/* Joins a control group, which limits it and all it starts. */
static long join_group(const struct program *is) {
  if (is->group.length == 0) return 0;
  long file = raw(SYS_openat, AT_FDCWD, (long)is->group.data, O_WRONLY | O_CLOEXEC, 0);
  if (file < 0) return file;
  long result = raw(SYS_write, file, (long)"0", 1, 0);
  raw(SYS_close, file, 0, 0, 0);
  return result < 0 ? result : 0;
}

/*
 * Makes the container's root that of its mount namespace, which is new, and lets go of the others':
 * what is mounted here keeps disks busy. Its /proc shows the process namespace that it is in.
 */
static long enter_container(const struct program *is) {
  long shelf = raw(SYS_openat, AT_FDCWD, (long)is->shelf, O_PATH | O_DIRECTORY | O_CLOEXEC, 0), why;
  if (shelf < 0) return shelf;
  if ((why = raw(SYS_chdir, (long)is->root, 0, 0, 0)) < 0) return why;
  if ((why = raw_mount(".", "/", "", MS_MOVE)) < 0) return why;
  if ((why = raw(SYS_chroot, (long)".", 0, 0, 0)) < 0) return why;
  if ((why = raw(SYS_fchdir, shelf, 0, 0, 0)) < 0) return why;
  if ((why = raw(SYS_umount2, (long)".", MNT_DETACH, 0, 0)) < 0) return why;
  if ((why = raw(SYS_chdir, (long)"/", 0, 0, 0)) < 0) return why;
  raw(SYS_close, shelf, 0, 0, 0);
  if ((why = raw_mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)) < 0) return why;
  return restrict_paths(is);
}

/* What root may do in a container, now and after each execve(2). */
static void limit_capabilities(uint64_t allowed) {
  for (int each = 0; each < 64; each++)
    if (!(allowed >> each & 1)) raw(SYS_prctl, PR_CAPBSET_DROP, each, 0, 0);
}

/* From now on the kernel asks the filter about each system call of it and all it starts. */
static long filter_calls(const struct program *is) {
  struct sock_fprog program = {.len = (unsigned short)(is->filter.length / sizeof(struct sock_filter)),
                               .filter = (struct sock_filter *)is->filter.data};
  return program.len == 0 ? 0 : raw(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&program, 0);
}

/* The agent goes on. */
static void begin(struct child *child) {
  __atomic_store_n(&child->begun, 1, __ATOMIC_RELEASE);
  raw(SYS_futex, (long)&child->begun, FUTEX_WAKE, 1, 0);
}

static int run(void *argument) {
  struct child *child = argument;
  const struct program *is = &child->is;
  raw(SYS_setsid, 0, 0, 0, 0);
  /*
   * The agent's own: what it ignores would stay ignored, and its answers to a trap are not for a
   * child.
   */
  static const int own[] = {SIGPIPE, SIGSEGV, SIGBUS};
  const long usual[4] = {0};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) raw(SYS_rt_sigaction, own[i], (long)usual, 0, 8);
  if (is->terminal) {
    raw(SYS_ioctl, is->in, TIOCSCTTY, 0, 0);
    if (!is->root[0]) begin(child);
    await_size();
  }
  /*
   * All three are CLOEXEC and above 2, since the agent keeps 0, 1 and 2 open: the copies are not.
   */
  raw(SYS_dup3, is->in, 0, 0, 0);
  raw(SYS_dup3, is->out, 1, 0, 0);
  raw(SYS_dup3, is->err, 2, 0, 0);
  long why = join_group(is);
  if (why < 0) {
    complain(child, "control group", why);
    leave(125);
  }
  if (is->root[0]) why = enter_container(is);
  else if (is->joins >= 0) why = raw(SYS_setns, is->joins, CLONE_NEWNS, 0, 0);
  if (why < 0) {
    complain(child, "container", why);
    leave(125);
  }
  /* Who joins its namespaces now finds them as they are to be. */
  if (is->root[0]) begin(child);
  limit_capabilities(is->capabilities);
  /* Only root may filter without giving up new privileges. The filter has to allow what follows. */
  if (!is->no_new_privileges && (why = filter_calls(is)) < 0) {
    complain(child, "system call filter", why);
    leave(125);
  }
  why = raw(SYS_setgroups, is->groups.length / sizeof(gid_t), (long)is->groups.data, 0, 0);
  if (why < 0 && is->uid != 0) complain(child, "setgroups", why);
  if ((why = raw(SYS_setgid, is->gid, 0, 0, 0)) < 0 || (why = raw(SYS_setuid, is->uid, 0, 0, 0)) < 0) {
    complain(child, "setuid", why);
    leave(125);
  }
  if (is->directory[0] && (why = raw(SYS_chdir, (long)is->directory, 0, 0, 0)) < 0) {
    complain(child, is->directory, why);
    leave(125);
  }
  if (is->no_new_privileges) {
    raw5(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if ((why = filter_calls(is)) < 0) {
      complain(child, "system call filter", why);
      leave(125);
    }
  }
  /* Until here no signal has found the agent's handlers; one that came meanwhile is due now. */
  const unsigned long none = 0;
  raw(SYS_rt_sigprocmask, SIG_SETMASK, (long)&none, 0, sizeof none);
  why = become(child);
  complain(child, child->argv[0], why);
  /* The exit codes are those of a shell, as hyperstart's. */
  leave(why == -ENOENT ? 127 : why == -EACCES ? 126 : 125);
}

/* --- in the agent ----------------------------------------------------------------------------- */

static void *copy(const void *from, size_t length) {
  void *to = malloc(length + 1);
  if (to) memcpy(to, from, length);
  return to;
}

static struct bytes copy_bytes(struct bytes from) {
  return (struct bytes){copy(from.data, from.length), from.length};
}

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

static void discard(struct child *child) {
  free(child->is.args.data), free(child->is.env.data), free(child->is.groups.data), free((char *)child->is.directory);
  free((char *)child->is.root), free((char *)child->is.shelf);
  free(child->is.masked.data), free(child->is.read_only.data), free(child->is.group.data);
  free(child->is.filter.data);
  free(child->argv), free(child->env), free(child);
}

static void discard_gone(void) {
  for (struct child **link = &children; *link;) {
    struct child *child = *link;
    if (__atomic_load_n(&child->here, __ATOMIC_ACQUIRE)) {
      link = &child->next;
    } else {
      *link = child->next;
      discard(child);
    }
  }
}

static struct child *prepare(const struct program *program) {
  struct child *child = malloc(sizeof *child);
  if (!child) return NULL;
  child->is = *program;
  child->is.args = copy_bytes(program->args);
  child->is.env = copy_bytes(program->env);
  child->is.groups = copy_bytes(program->groups);
  child->is.directory = strdup(program->directory);
  child->is.root = strdup(program->root);
  child->is.shelf = strdup(program->shelf);
  child->is.masked = copy_bytes(program->masked);
  child->is.read_only = copy_bytes(program->read_only);
  child->is.group = copy_bytes(program->group);
  child->is.filter = copy_bytes(program->filter);
  child->begun = 0;
  child->argv = child->is.args.data ? vector(child->is.args) : NULL;
  child->env = child->is.env.data ? vector(child->is.env) : NULL;
  const struct program *is = &child->is;
  if (child->argv && child->env && is->groups.data && is->directory && is->root && is->shelf && is->masked.data &&
      is->read_only.data && is->group.data && is->filter.data)
    return child;
  discard(child);
  return NULL;
}

/* Waits until it has begun, or is gone before. */
static void await_begin(struct child *child) {
  const struct timespec while_here = {.tv_nsec = 50000000};
  while (!__atomic_load_n(&child->begun, __ATOMIC_ACQUIRE) && __atomic_load_n(&child->here, __ATOMIC_ACQUIRE))
    syscall(SYS_futex, &child->begun, FUTEX_WAIT, 0, &while_here);
}

pid_t start_child(const struct program *program) {
  discard_gone();
  struct child *child = prepare(program);
  if (!child) return -ENOMEM;
  pid_t pid = -EINVAL;
  if (child->argv[0]) {
    sigset_t all, ours;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &ours);
    child->here = 1;
    int flags = CLONE_VM | CLONE_CHILD_CLEARTID | SIGCHLD | (program->root[0] ? CLONE_NEWNS : 0) | (program->own_processes ? CLONE_NEWPID : 0);
    pid = clone(run, child->stack + sizeof child->stack, flags, child, NULL, NULL, &child->here);
    if (pid < 0) pid = -errno;
    sigprocmask(SIG_SETMASK, &ours, NULL);
  }
  if (pid < 0) {
    discard(child);
    return pid;
  }
  child->next = children;
  children = child;
  /* A size that is set before the terminal is the child's would not be noticed. */
  if (program->root[0] || program->terminal) await_begin(child);
  return pid;
}
