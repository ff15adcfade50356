/* Calls functions of the driver with nothing but zeros, each in a process of its own, and prints what each answered.
 *
 *     calls SONAME [FIRST] < names
 *
 * FIRST (cuInit, nvmlInit_v2) is called once before, if given. A line for each name: its result, -SIGNAL where it crashed, or "-"
 * where dlsym finds no such function.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECONDS 20

typedef int (*function)(long, long, long, long, long, long, long, long, long, long, long, long, long, long);

static int call(void *found) { return ((function)found)(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0); }

static void call_in_child(void *found) {
  int ends[2], result = 0, status = 0;
  if (pipe(ends)) return;
  pid_t child = fork();
  if (child == 0) {
    alarm(SECONDS);
    result = call(found);
    _exit(write(ends[1], &result, sizeof result) != sizeof result);
  }
  close(ends[1]);
  ssize_t got = read(ends[0], &result, sizeof result);
  close(ends[0]);
  waitpid(child, &status, 0);
  printf("%d\n", got == sizeof result ? result : WIFSIGNALED(status) ? -WTERMSIG(status) : -WEXITSTATUS(status));
}

int main(int argc, char **argv) {
  static char name[256];
  if (argc < 2) return 2;
  void *library = dlopen(argv[1], RTLD_NOW);
  if (argc > 2) call(dlsym(library, argv[2]));
  while (fgets(name, sizeof name, stdin)) {
    name[strcspn(name, "\n")] = 0;
    void *found = dlsym(library, name);
    if (found) {
      fflush(stdout);
      call_in_child(found);
    } else {
      printf("-\n");
    }
  }
  return 0;
}
