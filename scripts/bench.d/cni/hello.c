/* As little as a program that answers can do: what starting any costs. */
#include <unistd.h>

int main(void) {
  return write(1, "{}\n", 3) == 3 ? 0 : 1;
}
