/*
 * Runs CNI plugins as a runtime does, as cheaply as can be, and reports what it took: what a
 * spawner costs would count for both sides, and make the slower one look better. `runner`: reads
 * from standard input
 *
 * SLOTS COUNT
 * COMMAND ID NETNS CNI_PATH LINK PROGRAM CONFIG [PROGRAM CONFIG ...]
 *
 * (COUNT of the second line; fields end with tabs)
 *
 * and runs SLOTS calls at a time. The programs of a call run one after the other, each with its
 * configuration on standard input; in an ADD each further one is given the result of the one
 * before. Answers a line for each call, in order of their ends: INDEX, microseconds, processor
 * microseconds of the programs and all that they waited for, microseconds until LINK was gone (0:
 * not asked for), exit code, when it began (microseconds of CLOCK_MONOTONIC), the last one's
 * standard output on one line; and at last `done` and microseconds for all.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_FIELDS = 16, MOST_SLOTS = 64, MOST_OUTPUT = 1 << 16 };
enum { COMMAND, ID, NETNS, CNI_PATH, LINK, FIRST_PROGRAM };

struct call {
  char *fields[MOST_FIELDS];
  int count;
};

struct slot {
  struct call *call;
  int index, program, out;
  pid_t pid;
  double begin, cpu;
  size_t length;
  char output[MOST_OUTPUT];
};

static void die(const char *what) {
  perror(what);
  exit(1);
}

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec * 1e6 + at.tv_nsec / 1e3;
}

static char *environment[8];

static void set(int at, const char *name, const char *value) {
  free(environment[at]);
  if (asprintf(&environment[at], "%s=%s", name, value) < 0) die("asprintf");
}

static char *input_of(const struct slot *slot) {
  const char *config = slot->call->fields[slot->program + 1];
  char *input;
  if (slot->program == FIRST_PROGRAM || strcmp(slot->call->fields[COMMAND], "ADD") != 0) return strdup(config);
  if (asprintf(&input, "%.*s,\"prevResult\":%s}", (int)strlen(config) - 1, config, slot->output) < 0) die("asprintf");
  return input;
}

static void spawn(struct slot *slot) {
  char **fields = slot->call->fields;
  int in[2], out[2];
  char *input = input_of(slot);
  char *argv[] = {fields[slot->program], NULL};
  posix_spawn_file_actions_t actions;
  if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0) die("pipe");
  /* (It fits into the pipe.) */
  if (write(in[1], input, strlen(input)) != (ssize_t)strlen(input)) die("write");
  close(in[1]);
  free(input);
  set(0, "CNI_COMMAND", fields[COMMAND]);
  set(1, "CNI_CONTAINERID", fields[ID]);
  set(2, "CNI_NETNS", fields[NETNS]);
  set(3, "CNI_PATH", fields[CNI_PATH]);
  set(4, "CNI_IFNAME", "eth0");
  set(5, "PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  if (posix_spawn(&slot->pid, fields[slot->program], &actions, NULL, argv, environment) != 0) die(fields[slot->program]);
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  slot->out = out[0];
  slot->length = 0;
}

static double until_gone(const struct slot *slot) {
  char path[64];
  if (slot->call->fields[LINK][0] == 0) return 0;
  snprintf(path, sizeof path, "/sys/class/net/%s", slot->call->fields[LINK]);
  while (access(path, F_OK) == 0) usleep(200);
  return now() - slot->begin;
}

/* A program has closed its output. True when it was the last of its call. */
static int ended(struct slot *slot) {
  struct rusage used;
  int status, code;
  double took;
  close(slot->out);
  if (wait4(slot->pid, &status, 0, &used) < 0) die("wait4");
  took = now() - slot->begin;
  slot->cpu += (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
  slot->output[slot->length] = 0;
  for (char *at = slot->output; *at != 0; at++)
    if (*at == '\n' || *at == '\t') *at = ' ';
  code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  slot->program += 2;
  if (code == 0 && slot->program + 1 < slot->call->count) {
    spawn(slot);
    return 0;
  }
  printf("%d\t%.0f\t%.0f\t%.0f\t%d\t%.0f\t%s\n", slot->index, took, slot->cpu, until_gone(slot), code, slot->begin, slot->output);
  slot->call = NULL;
  return 1;
}

static void run(struct call *calls, int count, int slots) {
  static struct slot all[MOST_SLOTS];
  double begin = now();
  for (int next = 0, left = count; left > 0;) {
    struct pollfd watched[MOST_SLOTS];
    for (int i = 0; i < slots; i++) {
      if (all[i].call == NULL && next < count) {
        all[i].call = &calls[next];
        all[i].index = next++;
        all[i].program = FIRST_PROGRAM;
        all[i].cpu = 0;
        all[i].begin = now();
        spawn(&all[i]);
      }
      watched[i].fd = all[i].call == NULL ? -1 : all[i].out;
      watched[i].events = POLLIN;
    }
    if (poll(watched, slots, -1) < 0) die("poll");
    for (int i = 0; i < slots; i++) {
      struct slot *slot = &all[i];
      ssize_t got;
      if (watched[i].fd < 0 || watched[i].revents == 0) continue;
      got = read(slot->out, slot->output + slot->length, MOST_OUTPUT - 1 - slot->length);
      if (got > 0) slot->length += got;
      else if (ended(slot)) left--;
    }
  }
  printf("done\t%.0f\n", now() - begin);
  fflush(stdout);
}

int main(void) {
  char *line = NULL;
  size_t room = 0;
  int slots, count;
  while (getline(&line, &room, stdin) > 0) {
    struct call *calls;
    if (sscanf(line, "%d %d", &slots, &count) != 2 || slots < 1 || slots > MOST_SLOTS) return 2;
    calls = calloc(count, sizeof *calls);
    for (int i = 0; i < count; i++) {
      char *text = NULL, *rest;
      size_t size = 0;
      if (getline(&text, &size, stdin) < 0) return 2;
      text[strcspn(text, "\n")] = 0;
      for (rest = text; rest != NULL && calls[i].count < MOST_FIELDS;) calls[i].fields[calls[i].count++] = strsep(&rest, "\t");
      if (calls[i].count < FIRST_PROGRAM + 2) return 2;
    }
    run(calls, count, slots);
    for (int i = 0; i < count; i++) free(calls[i].fields[0]);
    free(calls);
  }
  return 0;
}
