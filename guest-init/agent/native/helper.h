/* What the agent's program does in processes of their own: helper.c. */
#ifndef PODNET_HELPER_H
#define PODNET_HELPER_H

/* Does what the first argument names, and answers its exit code; -1 when it names nothing. */
int run_helper(int argc, char **argv);

#endif
